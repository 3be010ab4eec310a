//! The two files that take turns.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use super::{
    codec::{self, Kept, Refusal, Whole},
    disk::{self, Disk},
    seal::Key,
};

/// No registry is that long; a file that is has other problems.
const LONGEST: u64 = 1 << 30;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    A,
    B,
}

impl Slot {
    pub(super) const BOTH: [Self; 2] = [Self::A, Self::B];

    pub(super) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// A directory with the two.
#[derive(Debug)]
pub(super) struct Slots {
    dir: PathBuf,
    disk: Box<dyn Disk>,
}

/// What a slot holds; `None`: no file.
pub(super) type Look = Option<Result<Whole, Refusal>>;

impl Slots {
    pub(super) fn new(dir: &Path, disk: Box<dyn Disk>) -> Self {
        Self { dir: dir.to_owned(), disk }
    }

    /// Where a slot's file is.
    pub(super) fn path(&self, slot: Slot) -> PathBuf {
        self.dir.join(match slot {
            Slot::A => "registry.a.lkg",
            Slot::B => "registry.b.lkg",
        })
    }

    /// Reads a slot's file and checks it from outside.
    pub(super) fn look(&self, slot: Slot) -> Look {
        match read(&self.path(slot)) {
            Ok(bytes) => Some(codec::check(bytes)),
            Err(why) if why.kind() == io::ErrorKind::NotFound => None,
            Err(why) => Some(Err(Refusal::Unreadable(why.to_string()))),
        }
    }

    /// Writes beside the slot, then takes its place.
    pub(super) fn write(&self, slot: Slot, kept: &Kept, sequence: u64, key: &Key) -> io::Result<usize> {
        let bytes = codec::encode(kept, sequence, key).map_err(io::Error::other)?;
        let beside = self.dir.join("registry.tmp");
        let done =
            self.disk.write(&beside, &bytes).and_then(|()| self.disk.replace(&beside, &self.path(slot)));
        if done.is_err() {
            // Room for others on a full disk.
            let _ = disk::remove(&beside);
        }
        done.map(|()| bytes.len())
    }

    /// Puts a slot's file where nobody uses it; one of each is kept.
    pub(super) fn put_aside(&self, slot: Slot) -> io::Result<PathBuf> {
        let from = self.path(slot);
        let mut to = from.clone().into_os_string();
        to.push(".aside");
        fs::rename(&from, &to)?;
        Ok(to.into())
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    if length > LONGEST {
        return Err(io::Error::other(format!("{length} bytes are too many")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}
