//! While running: writes what came into force, at most once a second and never on the way of a request.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use spareline_core::{items::Item, view::View};
use spareline_proto::dataplane::v1 as dp;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    codec::Kept,
    guard::SETTLED,
    restore::{Keeper, position},
};
use crate::state::Shared;

/// Between two writes, and the most of the time that writing may take.
const PAUSE: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;
/// The longest pause after failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// An unchanged registry that was confirmed meanwhile is written again that often, so that its age is right.
const REFRESH: Duration = Duration::from_secs(15 * 60);

/// Keeps the registry until told to stop; then once more.
pub async fn keep(shared: Arc<Shared>, mut keeper: Keeper, stop: CancellationToken) {
    let settled = Instant::now() + SETTLED;
    let mut not_before = Instant::now();
    let mut pause = PAUSE;
    let mut failing = false;
    loop {
        let now = Instant::now();
        if now >= settled {
            keeper.guard.settled();
        }
        let wanted = keeper.wants(&shared, REFRESH);
        let next = if wanted { not_before } else { now + SETTLED };
        tokio::select! {
            () = stop.cancelled() => break,
            () = shared.changed.notified(), if !wanted => continue,
            () = sleep_until(next) => {}
        }
        if !wanted {
            continue;
        }
        let began = Instant::now();
        let Some((back, done)) = write(&shared, keeper).await else { return };
        keeper = back;
        told(&shared, &done, &mut failing);
        pause = if done.is_ok() {
            PAUSE.max(began.elapsed().saturating_mul(SHARE))
        } else {
            (pause * 2).min(LONGEST_PAUSE)
        };
        not_before = Instant::now() + pause;
    }
    keeper.guard.settled();
    if keeper.wants(&shared, PAUSE)
        && let Some((_, done)) = write(&shared, keeper).await
    {
        told(&shared, &done, &mut failing);
    }
}

fn told(shared: &Shared, done: &std::io::Result<usize>, failing: &mut bool) {
    match done {
        Ok(bytes) => {
            shared.metrics.registry_file_writes.inc();
            if std::mem::take(failing) {
                tracing::info!(
                    event = "registry_write_recovered",
                    bytes,
                    "the registry is kept on disk again"
                );
            } else {
                tracing::debug!(event = "registry_written", bytes, "the registry was written to disk");
            }
        }
        Err(why) => {
            shared.metrics.registry_file_failures.inc();
            if !std::mem::replace(failing, true) {
                tracing::warn!(
                    event = "registry_write_failed",
                    why = %why,
                    "the registry cannot be written to disk, the copy there stays: {why}"
                );
            }
        }
    }
}

/// Writes elsewhere than on this thread. `None`: the writer is lost.
async fn write(shared: &Arc<Shared>, mut keeper: Keeper) -> Option<(Keeper, std::io::Result<usize>)> {
    let shared = shared.clone();
    let task = tokio::task::spawn_blocking(move || {
        let done = keeper.write_view(&shared);
        (keeper, done)
    });
    match task.await {
        Ok(done) => Some(done),
        Err(why) => {
            tracing::error!(event = "registry_not_kept", "the registry is not kept on disk any more: {why}");
            None
        }
    }
}

impl Keeper {
    /// Whether what is in force should be written; `refresh`: also where only its confirmation is so much newer.
    pub(super) fn wants(&mut self, shared: &Shared, refresh: Duration) -> bool {
        let view = shared.view();
        if view.epoch().is_empty() {
            return false;
        }
        let empty = view.items().channel_count() == 0;
        self.had_channels |= !empty;
        // The session refuses an empty registry after one with channels unless it is flagged. One that is empty from
        // the start was never flagged: a copy that could not be used this time is worth more.
        if empty && self.has_copy && !self.had_channels {
            return false;
        }
        match &self.saved {
            Some((saved, confirmed)) if *saved == position(&view) => {
                let since = confirmed_at(shared).and_then(|at| at.duration_since(*confirmed).ok());
                since.is_some_and(|since| since > refresh)
            }
            _ => true,
        }
    }

    /// Writes what is in force.
    pub(super) fn write_view(&mut self, shared: &Shared) -> std::io::Result<usize> {
        let view = shared.view();
        let confirmed = confirmed_at(shared).unwrap_or_else(SystemTime::now);
        let kept = Kept {
            registry: Some(registry(&view)),
            groups: shared.config.groups.iter().map(|g| g.to_string()).collect(),
            confirmed: Some(confirmed.into()),
            written: Some(SystemTime::now().into()),
            clock_offset_ms: shared.clock_offset_ms(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let size = self.write(&kept)?;
        self.saved = Some((position(&view), confirmed));
        Ok(size)
    }
}

/// When the registry in force was last known to be current, by the local clock.
fn confirmed_at(shared: &Shared) -> Option<SystemTime> {
    SystemTime::now().checked_sub(shared.registry_age()?)
}

/// Every item, as a snapshot has them.
fn registry(view: &View) -> dp::SnapshotChunk {
    let mut all = dp::SnapshotChunk { position: Some(position(view)), last: true, ..Default::default() };
    for item in view.items().iter() {
        match item {
            Item::Channel(m) => all.channels.push((*m).clone()),
            Item::Credential(m) => all.credentials.push((*m).clone()),
            Item::Status(m) => all.statuses.push((*m).clone()),
            Item::Policy(m) => all.policies.push((*m).clone()),
        }
    }
    all
}
