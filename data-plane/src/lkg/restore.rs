//! At the start: which copy, if any, to serve from.

use std::{
    cmp::Reverse,
    fs::{DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use spareline_core::{
    Revision, Secret,
    view::{Clock, View},
};
use spareline_proto::dataplane::v1 as dp;

use super::{
    codec::{Kept, Opened, Refusal, Whole},
    disk::{Disk, Files},
    guard::Guard,
    key::{self, NoKey},
    seal::Key,
    slots::{Slot, Slots},
};
use crate::{config::Config, standalone, state::Shared, watch};

/// Keeps the registry of one process on disk.
#[derive(Debug)]
pub struct Keeper {
    pub(super) slots: Slots,
    key: Key,
    pub(super) guard: Guard,
    lock_path: PathBuf,
    lock: Option<File>,
    /// Where the next copy goes: never where the best one is.
    next: Slot,
    sequence: u64,
    /// What the newest copy of ours holds, and when that was known to be current.
    pub(super) saved: Option<(dp::Position, SystemTime)>,
    /// A whole copy is there, ours or not.
    pub(super) has_copy: bool,
    /// A registry with channels was in force in this process.
    pub(super) had_channels: bool,
    /// What was not used at the last look, and why.
    pub(super) unused: Vec<(Slot, Refusal)>,
}

/// Why nothing is kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotKept {
    #[error("{0}")]
    Key(#[from] NoKey),
    #[error("{dir} cannot be used: {why}")]
    Dir { dir: PathBuf, why: io::Error },
}

/// Puts the last known good registry in force, where there is one. `None`: nothing is kept.
pub fn restore(shared: &Shared) -> Option<Keeper> {
    let dir = shared.config.state_dir.as_deref()?;
    match Keeper::open(dir, shared.config.state_key.as_ref(), Box::new(Files)) {
        Ok(mut keeper) => {
            keeper.restore(shared);
            Some(keeper)
        }
        Err(why) => {
            tracing::error!(event = "registry_not_kept", "the registry is not kept on disk: {why}");
            None
        }
    }
}

impl Keeper {
    pub(super) fn open(dir: &Path, key: Option<&Secret>, disk: Box<dyn Disk>) -> Result<Self, NotKept> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|why| NotKept::Dir { dir: dir.to_owned(), why })?;
        let mut keeper = Self {
            slots: Slots::new(dir, disk),
            key: key::find(dir, key)?,
            guard: Guard::read(dir),
            lock_path: dir.join("registry.lock"),
            lock: None,
            next: Slot::A,
            sequence: 0,
            saved: None,
            has_copy: false,
            had_channels: false,
            unused: Vec::new(),
        };
        // Busy: the process before us still drains; it is asked again before each write.
        let _ = keeper.lock();
        Ok(keeper)
    }

    /// Two processes never write to one directory.
    fn lock(&mut self) -> io::Result<bool> {
        if self.lock.is_some() {
            return Ok(false);
        }
        let file = File::options().create(true).truncate(false).write(true).open(&self.lock_path)?;
        match file.try_lock() {
            Ok(()) => {
                self.lock = Some(file);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => {
                Err(io::Error::other("another process keeps its registry there"))
            }
            Err(TryLockError::Error(why)) => Err(why),
        }
    }

    /// Whole files, the newest first; what is broken is told. Sets where to write next.
    fn survey(&mut self) -> Vec<(Slot, Whole)> {
        self.unused.clear();
        let mut whole = Vec::new();
        for slot in Slot::BOTH {
            match self.slots.look(slot) {
                None => {}
                Some(Ok(file)) => whole.push((slot, file)),
                Some(Err(why)) => self.tell(slot, why),
            }
        }
        whole.sort_by_key(|(_, file)| Reverse(file.sequence));
        self.has_copy = !whole.is_empty();
        if let Some((newest, file)) = whole.first() {
            self.sequence = file.sequence;
            self.next = newest.other();
        }
        whole
    }

    /// Serves from the newest copy that holds.
    pub(super) fn restore(&mut self, shared: &Shared) {
        for (slot, file) in self.survey() {
            let (checksum, path) = (file.checksum, self.slots.path(slot));
            if self.guard.suspects(&checksum) {
                let aside = self.slots.put_aside(slot);
                tracing::error!(
                    event = "registry_file_aside",
                    file = %path.display(),
                    moved = aside.is_ok(),
                    starts = super::guard::STARTS,
                    "the process died at its last starts with this registry file: it is put aside"
                );
                continue;
            }
            if let Err(why) = self.guard.begin(&checksum) {
                tracing::warn!(
                    event = "registry_guard_failed",
                    "a crash at the start would go unnoticed: {why}"
                );
            }
            match file.open(&self.key).and_then(|opened| view_of(shared, opened)) {
                Ok(found) => {
                    self.next = slot.other();
                    self.in_force(shared, found, &path);
                    return;
                }
                Err(why) => {
                    self.guard.unused(&checksum);
                    self.tell(slot, why);
                }
            }
        }
        if self.has_copy {
            tracing::error!(
                event = "registry_not_restored",
                "no registry file can be used: waiting for the control plane"
            );
        }
    }

    fn in_force(&mut self, shared: &Shared, found: Found, path: &Path) {
        let Found { view, rejected, age } = found;
        let position = position(&view);
        tracing::info!(
            event = "registry_restored",
            file = %path.display(),
            revision = position.revision,
            epoch = %position.epoch,
            channels = view.items().channel_count(),
            age_s = age.as_secs_f64(),
            rejected,
            "serving from the last known good registry"
        );
        self.had_channels = view.items().channel_count() > 0;
        self.saved = Some((position, SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)));
        shared.publish(Arc::new(view));
        shared.confirmed_before(age);
    }

    fn tell(&mut self, slot: Slot, why: Refusal) {
        let path = self.slots.path(slot);
        let (file, kind) = (path.display(), if why.is_damage() { "damaged" } else { "refused" });
        tracing::warn!(event = "registry_file_unusable", file = %file, kind, why = %why, "{file} is not used: {why}");
        self.unused.push((slot, why));
    }

    /// Writes a copy in place of the older one; answers its size in bytes.
    pub(super) fn write(&mut self, kept: &Kept) -> io::Result<usize> {
        if self.lock()? {
            // Whoever had it may have written since we looked.
            self.survey();
        }
        let size = self.slots.write(self.next, kept, self.sequence.saturating_add(1), &self.key)?;
        self.sequence = self.sequence.saturating_add(1);
        self.next = self.next.other();
        self.has_copy = true;
        Ok(size)
    }
}

struct Found {
    view: View,
    rejected: usize,
    age: Duration,
}

/// What this proxy makes of a copy.
fn view_of(shared: &Shared, opened: Opened) -> Result<Found, Refusal> {
    let Opened { kept, items, position } = opened;
    let config = &shared.config;
    if position.epoch.is_empty() {
        return Err(Refusal::Content("no epoch".into()));
    }
    let alone = position.epoch.starts_with(standalone::EPOCH);
    if alone != config.standalone_file.is_some() {
        return Err(Refusal::Origin(if alone { "a channels file" } else { "a control plane" }));
    }
    let items = match missing(config, &kept) {
        true => return Err(Refusal::Groups(kept.groups.join(", "))),
        false if kept.groups.len() > config.groups.len() => items.for_groups(&config.groups),
        false => items,
    };
    let wall = SystemTime::now();
    let time = |stamp: Option<prost_types::Timestamp>| SystemTime::try_from(stamp?).ok();
    // Our clock may have been set back, or not be set yet: then no time has passed.
    let not_before = time(kept.written).map_or(wall, |written| wall.max(written));
    let clock =
        Clock { server_time: Some(shifted(not_before, kept.clock_offset_ms).into()), now: shared.now() };
    let revision = Revision(position.revision);
    let (view, rejections) = shared.view().replace(&items, &position.epoch, revision, clock);
    watch::rejected(shared, &rejections);
    let channels = items.channel_count();
    if channels > 0 && view.items().channel_count() == 0 {
        return Err(Refusal::Unusable(channels));
    }
    let confirmed = time(kept.confirmed).unwrap_or(SystemTime::UNIX_EPOCH);
    let age = wall.duration_since(confirmed).unwrap_or_default();
    Ok(Found { view, rejected: rejections.len(), age })
}

/// Whether we serve a group that the copy does not cover.
fn missing(config: &Config, kept: &Kept) -> bool {
    config.groups.iter().any(|group| !kept.groups.iter().any(|held| **held == **group))
}

fn shifted(time: SystemTime, ms: i64) -> SystemTime {
    let by = Duration::from_millis(ms.unsigned_abs());
    if ms < 0 { time.checked_sub(by) } else { time.checked_add(by) }.unwrap_or(time)
}

/// What a view holds.
pub(super) fn position(view: &View) -> dp::Position {
    dp::Position {
        epoch: view.epoch().to_string(),
        revision: view.revision().0,
        digest: view.items().digest(),
    }
}
