//! What is asked of a disk, so that tests can put a bad one in its place.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// A place for files.
pub(super) trait Disk: Send + Sync + std::fmt::Debug {
    /// A new file for our eyes only, synced; whatever was there is gone.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// One file takes the place of another, at once; lasting when it returns.
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;
}

/// The real one.
#[derive(Debug)]
pub(super) struct Files;

impl Disk for Files {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        remove(path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        File::open(to.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// Removes a file that may not be there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}
