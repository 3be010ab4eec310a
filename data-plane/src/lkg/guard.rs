//! Notices a copy that was in use whenever the process died at its start.
//!
//! Before a copy is opened its checksum is written down with a count; a process that lives a while, or ends in order,
//! removes the note.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    disk::{self, Disk as _, Files},
    seal::hex,
};

/// As many starts in a row, each ended by force within [`SETTLED`], make a copy suspect.
pub(super) const STARTS: u32 = 5;
/// A process that lives that long has not died at its start.
pub(super) const SETTLED: Duration = Duration::from_secs(5);

/// The note.
#[derive(Debug)]
pub(super) struct Guard {
    path: PathBuf,
    counts: BTreeMap<String, u32>,
}

impl Guard {
    /// Reads the note; one that cannot be read counts as none.
    pub(super) fn read(dir: &Path) -> Self {
        let path = dir.join("registry.starts");
        let counts = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { path, counts: counts.unwrap_or_default() }
    }

    /// Whether too many starts with it failed.
    pub(super) fn suspects(&self, checksum: &[u8; 32]) -> bool {
        self.counts.get(&hex(checksum)).is_some_and(|count| *count >= STARTS)
    }

    /// It is about to be opened.
    pub(super) fn begin(&mut self, checksum: &[u8; 32]) -> io::Result<()> {
        *self.counts.entry(hex(checksum)).or_default() += 1;
        let text = serde_json::to_vec(&self.counts).map_err(io::Error::other)?;
        let beside = self.path.with_extension("tmp");
        Files.write(&beside, &text)?;
        Files.replace(&beside, &self.path)
    }

    /// It was not used after all.
    pub(super) fn unused(&mut self, checksum: &[u8; 32]) {
        self.counts.remove(&hex(checksum));
    }

    /// The start went well.
    pub(super) fn settled(&mut self) {
        self.counts.clear();
        let _ = disk::remove(&self.path);
    }
}
