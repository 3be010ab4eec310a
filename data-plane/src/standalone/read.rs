//! Reads the file of channels and the secrets it names.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use spareline_core::{
    Secret,
    file::{Problem, RegistryFile, Source},
};
use xxhash_rust::xxh3::Xxh3Default;

use super::problem;

/// The largest file taken, in bytes.
const LARGEST: u64 = 64 << 20;

/// How files looked: which they are, how long, and when they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp(BTreeMap<PathBuf, Option<Look>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    file: (u64, u64),
    length: u64,
    written: (i64, i64),
}

/// One reading.
#[derive(Debug)]
pub(super) struct Reading {
    /// From before anything was read.
    pub(super) stamp: Stamp,
    /// Of the content, secrets included.
    pub(super) hash: u64,
    pub(super) outcome: Result<Found, Vec<Problem>>,
}

/// A file and its secrets.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) file: RegistryFile,
    /// By name; those that channels list.
    pub(super) secrets: BTreeMap<String, Secret>,
}

impl Stamp {
    fn see(&mut self, path: &Path) {
        let look = |m: fs::Metadata| Look {
            file: (m.dev(), m.ino()),
            length: m.len(),
            written: (m.mtime(), m.mtime_nsec()),
        };
        self.0.insert(path.to_owned(), fs::metadata(path).ok().map(look));
    }

    /// How the same files look now.
    pub(super) fn again(&self) -> Self {
        let mut now = Self::default();
        self.0.keys().for_each(|path| now.see(path));
        now
    }
}

impl Reading {
    /// Reads.
    pub(super) fn of(path: &Path) -> Self {
        let mut stamp = Stamp::default();
        stamp.see(path);
        let mut hash = Xxh3Default::new();
        let outcome = read(path, &mut stamp, &mut hash);
        if let Err(problems) = &outcome {
            problems.iter().for_each(|p| hash.update(p.to_string().as_bytes()));
        }
        Self { stamp, hash: hash.digest(), outcome }
    }
}

fn read(path: &Path, stamp: &mut Stamp, hash: &mut Xxh3Default) -> Result<Found, Vec<Problem>> {
    let unreadable = |why: String| vec![problem(format!("cannot be read: {why}"))];
    let length = fs::metadata(path).map_err(|why| unreadable(why.to_string()))?.len();
    if length > LARGEST {
        return Err(unreadable(format!("{length} bytes are too many")));
    }
    let text = fs::read_to_string(path).map_err(|why| unreadable(why.to_string()))?;
    hash.update(text.as_bytes());
    let (file, mut problems) = RegistryFile::read(&text, path.parent().unwrap_or(Path::new(".")))?;
    let listed: BTreeSet<&String> = file.channels.iter().flatten().flat_map(|c| &c.credentials).collect();
    let mut secrets = BTreeMap::new();
    for (name, source) in file.credentials.iter().filter(|(name, _)| listed.contains(name)) {
        match secret(source, stamp) {
            Ok(secret) => {
                hash.update(name.as_bytes());
                hash.update(secret.expose().as_bytes());
                secrets.insert(name.clone(), secret);
            }
            Err(why) => problems.at_path(&format!("credentials.{name}"), why),
        }
    }
    if file.channels.is_none() {
        problems.at_path("channels", "there are none; write `channels: []` if that is meant");
    }
    if problems.list.is_empty() { Ok(Found { file, secrets }) } else { Err(problems.list) }
}

fn secret(source: &Source, stamp: &mut Stamp) -> Result<Secret, String> {
    let text = match source {
        Source::Env(variable) => environment(variable)
            .ok_or_else(|| format!("the environment variable {variable} is not set, or not text")),
        Source::File(path) => {
            stamp.see(path);
            fs::read_to_string(path).map_err(|why| format!("{} cannot be read: {why}", path.display()))
        }
        Source::Stored(_) => {
            Err("credential_id names a secret of a control plane: use secret_env or secret_file".to_owned())
        }
    }?;
    let text = text.trim();
    if text.is_empty() {
        return Err("the secret is empty".to_owned());
    }
    if !text.bytes().all(|b| (0x21..=0x7e).contains(&b)) {
        return Err("the secret must be visible ASCII without spaces: it is sent in a header".to_owned());
    }
    Ok(Secret::new(text))
}

/// The file names the variables: they cannot be keys of the configuration.
fn environment(variable: &str) -> Option<String> {
    std::env::var_os(variable)?.into_string().ok()
}
