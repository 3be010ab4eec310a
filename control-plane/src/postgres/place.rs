//! Where a cluster lives: its data and its socket, both where the server's user may go.

use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use super::user::User;
use super::{PostgresError, Result, io};

/// The socket's name within its directory, and how long a socket's path may be.
const SOCKET: &str = "/.s.PGSQL.5432";
const LONGEST: usize = 107;

/// The directories of one cluster, locked for this process.
#[derive(Debug)]
pub(super) struct Place {
    /// Holds everything; owned by the server's user.
    pub(super) home: PathBuf,
    /// Where the socket is.
    pub(super) socket: PathBuf,
    /// Held while we live; the system lets go of it when we die.
    _lock: File,
}

impl Place {
    /// The cluster's own place in a state directory, or beside it where the server's user may not go there.
    pub(super) fn of(state_dir: &Path, user: Option<User>) -> Result<Place> {
        io(
            format!("create {}", state_dir.display()),
            DirBuilder::new().recursive(true).mode(0o711).create(state_dir),
        )?;
        let state_dir = io(format!("find {}", state_dir.display()), state_dir.canonicalize())?;
        let tag = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(state_dir.as_os_str().as_encoded_bytes()));
        let homes = [
            state_dir.join("postgres"),
            PathBuf::from(format!("/var/lib/spareline-{tag}")),
            std::env::temp_dir().join(format!("spareline-{tag}")),
        ];
        let mut problem = String::new();
        for home in homes {
            if let Some(user) = user
                && let Some(closed) = closed_to(home.parent().unwrap_or(Path::new("/")), user)
            {
                problem = format!("the server's user may not enter {}", closed.display());
                continue;
            }
            match own(&home, user) {
                Ok(()) => return Place::at(home, &tag, user),
                Err(error) => problem = error.to_string(),
            }
        }
        Err(PostgresError::Unusable { path: state_dir, problem })
    }

    /// A fresh place for a throwaway cluster.
    pub(super) fn temporary(user: Option<User>) -> Result<Place> {
        let name = format!("spareline-pg-{}", uuid::Uuid::new_v4().simple());
        let parent = [std::env::temp_dir(), PathBuf::from("/tmp")]
            .into_iter()
            .find(|dir| user.is_none_or(|u| closed_to(dir, u).is_none()))
            .ok_or_else(|| PostgresError::Unusable {
                path: std::env::temp_dir(),
                problem: "the server's user may not enter it".into(),
            })?;
        let home = parent.join(&name);
        own(&home, user)?;
        Place::at(home, &name, user)
    }

    fn at(home: PathBuf, tag: &str, user: Option<User>) -> Result<Place> {
        let path = home.join("lock");
        let lock = io(
            format!("open {}", path.display()),
            File::options().create(true).truncate(false).write(true).open(&path),
        )?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(PostgresError::InUse(home)),
            Err(TryLockError::Error(e)) => return io(format!("lock {}", path.display()), Err(e)),
        }
        let mut socket = home.clone();
        if socket.as_os_str().len() + SOCKET.len() > LONGEST {
            socket = PathBuf::from(format!("/tmp/spareline-socket-{tag}"));
            if socket.as_os_str().len() + SOCKET.len() > LONGEST {
                return Err(PostgresError::Unusable {
                    path: home,
                    problem: "its path is too long for a socket".into(),
                });
            }
            own(&socket, user)?;
        }
        Ok(Place { home, socket, _lock: lock })
    }
}

/// Makes a directory that only the server's user (and root) may enter. An existing one must be that user's already: in a
/// directory that all may write to, somebody else could have put it there.
fn own(dir: &Path, user: Option<User>) -> Result<()> {
    let made = DirBuilder::new().mode(0o700).create(dir);
    match (made, user) {
        (Ok(()), Some(user)) => io(
            format!("give {} to the server's user", dir.display()),
            chown(dir, Some(user.uid), Some(user.gid)),
        ),
        (Ok(()), None) => Ok(()),
        (Err(e), _) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let metadata = io(format!("look at {}", dir.display()), std::fs::symlink_metadata(dir))?;
            let ours = match user {
                Some(user) => user.uid,
                None => io("look at /proc/self", std::fs::metadata("/proc/self"))
                    .map_or(metadata.uid(), |m| m.uid()),
            };
            if metadata.is_dir() && metadata.uid() == ours {
                return Ok(());
            }
            Err(PostgresError::Unusable {
                path: dir.to_owned(),
                problem: "is there already and does not belong to the server's user".into(),
            })
        }
        (Err(e), _) => io(format!("create {}", dir.display()), Err(e)),
    }
}

/// The first directory on the way to `dir`, itself included, that the user may not search.
fn closed_to(dir: &Path, user: User) -> Option<PathBuf> {
    let mut way: Vec<&Path> = dir.ancestors().collect();
    way.reverse();
    way.into_iter()
        .find(|step| {
            let Ok(metadata) = std::fs::metadata(step) else { return true };
            let bit = if metadata.uid() == user.uid {
                0o100
            } else if metadata.gid() == user.gid {
                0o010
            } else {
                0o001
            };
            metadata.mode() & bit == 0
        })
        .map(Path::to_owned)
}
