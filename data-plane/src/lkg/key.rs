//! Where the key comes from: the configuration, or a file of our own beside what it seals.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use spareline_core::Secret;

use super::{
    disk::{Disk as _, Files},
    seal::{self, Key},
};

/// No key, hence nothing is kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoKey {
    /// A key file cannot be read or made.
    #[error("the key file {path} cannot be used: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// Our own key file holds something else.
    #[error("the key file {0} holds no key; remove it to have a new one made")]
    Content(PathBuf),
    /// The machine gives no random numbers.
    #[error("{0}")]
    Crypto(#[from] seal::Broken),
}

/// The key that the operator gave, or our own.
pub(super) fn find(dir: &Path, given: Option<&Secret>) -> Result<Key, NoKey> {
    match given {
        Some(secret) => Ok(Key::new(secret.expose().as_bytes())?),
        None => own(&dir.join("registry.key")),
    }
}

fn own(path: &Path) -> Result<Key, NoKey> {
    let wrong = |why| NoKey::File { path: path.to_owned(), why };
    let made = match fs::exists(path) {
        Ok(true) => false,
        Ok(false) => make(path)?,
        Err(why) => return Err(wrong(why)),
    };
    let text = fs::read_to_string(path).map_err(wrong)?;
    let text = text.trim();
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(NoKey::Content(path.to_owned()));
    }
    close(path);
    tracing::info!(
        event = "registry_key_own",
        file = %path.display(),
        made,
        "the registry file is sealed with a key of our own beside it: that only protects a copy of the registry \
         file; set state_key or state_key_file to keep the key elsewhere"
    );
    Ok(Key::new(text.as_bytes())?)
}

/// Makes a key, unless another process was quicker.
fn make(path: &Path) -> Result<bool, NoKey> {
    let wrong = |why| NoKey::File { path: path.to_owned(), why };
    let key = seal::hex(&seal::random::<32>()?);
    let beside = path.with_extension(format!("key.{}", std::process::id()));
    Files.write(&beside, key.as_bytes()).map_err(wrong)?;
    // Unlike a rename, a link never takes the place of what is there.
    let linked = fs::hard_link(&beside, path);
    let _ = fs::remove_file(&beside);
    match linked {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(why) => Err(wrong(why)),
    }
}

/// Takes away what others may do with it.
fn close(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let open = fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o077 != 0);
    if open {
        let closed = fs::set_permissions(path, fs::Permissions::from_mode(0o600)).is_ok();
        tracing::warn!(event = "registry_key_open", file = %path.display(), closed, "others could read the key file");
    }
}
