//! Who the server runs as: never root.

use std::os::unix::fs::MetadataExt;

use super::{PostgresError, Result};

/// An unprivileged account of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// `None`: we are not root, the server runs as we do. Root runs it as `postgres`, else as `nobody`.
pub(super) fn server_user() -> Result<Option<User>> {
    // The owner of our own entry in /proc is our effective user; elsewhere a file we make says the same.
    let ours = match std::fs::metadata("/proc/self") {
        Ok(metadata) => metadata.uid(),
        Err(_) => return Ok(None),
    };
    if ours != 0 {
        return Ok(None);
    }
    let passwd = super::io("read /etc/passwd", std::fs::read_to_string("/etc/passwd"))?;
    ["postgres", "nobody"].iter().find_map(|name| entry(&passwd, name)).map(Some).ok_or_else(|| {
        PostgresError::Start(
            "we are root and there is no user `postgres` or `nobody` to run the server as".into(),
        )
    })
}

fn entry(passwd: &str, name: &str) -> Option<User> {
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some(User { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
}
