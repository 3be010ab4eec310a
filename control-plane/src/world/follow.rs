//! Keeps the world up to date: LISTEN first, then load, then follow by events; a poll is the backstop.
//!
//! A change costs what changed, never a reload; a gap in the events costs one. Notifications are only hints and may be
//! lost. While the database is away the last world stays in force, and everything recovers by itself; an answer that
//! does not come counts as away, so that a silent link cannot hold the follower up. A history that does not hold what was
//! published (a restored dump, a failover that lost commits, even when others have taken their numbers since) freezes the
//! world until an operator starts a new epoch or the old history is back: nothing here can tell which one is right.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spareline_core::Revision;
use spareline_core::items::{Delta, Items};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Publisher, World, announce};
use crate::store::{ChangeSet, Changes, EventFilter, Head, Hint, Listener, Snapshot, Store, StoreError};

/// How long a lost notification can go unnoticed.
const POLL: Duration = Duration::from_secs(5);
/// How long reading may take at first; doubled after every time-out, for a database that is only slow.
const ANSWER: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(40));
/// Pauses between tries while the database is away.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Follows the registry until `stop`.
pub async fn follow(store: Store, publisher: Publisher, stop: CancellationToken) {
    let mut follower = Follower {
        committed: store.committed(),
        store,
        publisher,
        listener: None,
        world: None,
        lost_since: None,
        unheard: None,
        frozen: false,
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = follower.run() => {}
    }
}

struct Follower {
    store: Store,
    publisher: Publisher,
    committed: watch::Receiver<i64>,
    listener: Option<Listener>,
    world: Option<(Head, Arc<World>)>,
    lost_since: Option<Instant>,
    /// When the first change came that no notification has told of.
    unheard: Option<Instant>,
    frozen: bool,
}

impl Follower {
    async fn run(&mut self) {
        let (mut pause, mut limit) = (RETRY.0, ANSWER.0);
        // Whether what comes next was told of, or only found by looking.
        let mut told = true;
        loop {
            let known = self.world.as_ref().map(|(head, _)| *head);
            match within(limit, self.step()).await {
                Ok(()) => {
                    self.found();
                    (pause, limit) = (RETRY.0, ANSWER.0);
                    if self.is_deaf(told, known) {
                        tracing::info!(
                            event = "notifications_lost",
                            "changes came without a notification: listening anew"
                        );
                        (self.listener, self.unheard, told) = (None, None, true);
                        continue;
                    }
                    told = self.wait().await;
                }
                Err(error) => {
                    told = true;
                    if timed_out(&error) {
                        limit = (limit * 2).min(ANSWER.1);
                    }
                    self.lost(&error);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
            }
        }
    }

    /// Listens if it does not yet, and reads what is new.
    async fn step(&mut self) -> Result<(), StoreError> {
        if self.listener.is_none() {
            self.listener = Some(self.store.listen().await?);
        }
        let Some((head, world)) = self.world.clone() else {
            let snapshot = self.store.load().await?;
            return self.load(snapshot).await;
        };
        match self.store.changes_since(head).await? {
            Changes::None => self.thaw(),
            Changes::Some(changes) => {
                self.thaw();
                self.apply(&world, changes);
            }
            Changes::Forked(found) => self.freeze(found, head),
            Changes::Reload => {
                let snapshot = self.store.load().await?;
                if snapshot.head.epoch == head.epoch
                    && (self.frozen || snapshot.head.revision < head.revision)
                {
                    self.freeze(snapshot.head, head);
                } else {
                    self.load(snapshot).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether the listener's line seems dead without a word: every change is notified, also our own.
    fn is_deaf(&mut self, told: bool, known: Option<Head>) -> bool {
        let changed = known.is_some() && self.world.as_ref().map(|(head, _)| *head) != known;
        if !changed || self.listener.is_none() {
            return false;
        }
        !told || self.unheard.get_or_insert_with(Instant::now).elapsed() > POLL
    }

    /// Until there is a reason to read again; whether somebody said so.
    async fn wait(&mut self) -> bool {
        let known = self.world.as_ref().map_or(0, |(head, _)| head.revision);
        let deadline = Instant::now() + POLL;
        let Some(listener) = &mut self.listener else { return true };
        let news = async {
            loop {
                tokio::select! {
                    hint = listener.next() => {
                        self.unheard = None;
                        match hint {
                            Ok(Hint::Revision(revision)) if revision == known => {}
                            Ok(_) => return true,
                            Err(_) => return false,
                        }
                    }
                    changed = self.committed.changed() => {
                        if changed.is_err() {
                            std::future::pending::<()>().await;
                        }
                        if *self.committed.borrow_and_update() != known {
                            return true;
                        }
                    }
                }
            }
        };
        let told = tokio::time::timeout_at(deadline, news).await;
        // Without a listener the next step makes one before it reads, so nothing is missed in between.
        if told == Ok(false) {
            self.listener = None;
        }
        told.is_ok()
    }

    async fn load(&mut self, snapshot: Snapshot) -> Result<(), StoreError> {
        let head = snapshot.head;
        let emptied = snapshot.channels.is_empty() && self.emptied().await?;
        let rollouts = snapshot.rollouts.clone().into();
        let mut world = match &self.world {
            Some((old, world)) if old.epoch == head.epoch => {
                world.with(Revision(head.revision), items_of(snapshot))
            }
            _ => World::new(head.epoch.to_string().into(), Revision(head.revision), items_of(snapshot)),
        };
        world.had_channels |= emptied;
        world.rollouts = rollouts;
        tracing::info!(
            event = "world_loaded",
            epoch = %world.epoch,
            revision = head.revision,
            channels = world.items.channel_count(),
            "loaded the registry at revision {}", head.revision
        );
        self.publish(head, world);
        Ok(())
    }

    /// Whether having no channels is somebody's doing, rather than the wrong database.
    async fn emptied(&self) -> Result<bool, StoreError> {
        let filter = EventFilter { kind: Some("channel.deleted".into()), ..Default::default() };
        Ok(!self.store.events(&filter, 1, "").await?.items.is_empty())
    }

    fn apply(&mut self, world: &World, changes: ChangeSet) {
        let ChangeSet { head, channels, credentials, statuses, policies, removed, rollouts } = changes;
        let delta = Delta::of(channels, credentials, statuses, policies).without(&removed);
        let mut next = world.with(Revision(head.revision), world.items.apply(&delta));
        if *next.rollouts != *rollouts {
            next.rollouts = rollouts.into();
        }
        self.publish(head, next);
    }

    fn publish(&mut self, head: Head, world: World) {
        if let Some((_, before)) = self.world.as_ref().filter(|(old, _)| old.epoch == head.epoch) {
            announce::changes(&before.items, &world.items, &SystemTime::now().into());
        }
        if self.world.as_ref().is_none_or(|(old, _)| old.epoch != head.epoch) {
            self.publisher.metrics().history_lost.set(0);
        }
        self.thaw();
        self.publisher.metrics().world_revision.set(head.revision);
        let world = self.publisher.publish(world);
        self.world = Some((head, world));
    }

    fn freeze(&mut self, found: Head, held: Head) {
        if !self.frozen {
            tracing::error!(
                event = "history_lost",
                head_revision = found.revision,
                held_revision = held.revision,
                epoch = %held.epoch,
                "the database's history does not hold what was already published: serving the last registry; \
                 run `spareline-control new-epoch` once the database holds what you want"
            );
        }
        self.frozen = true;
        self.publisher.metrics().history_lost.set(1);
    }

    /// What was published is part of the database's history, again.
    fn thaw(&mut self) {
        if std::mem::take(&mut self.frozen) {
            tracing::info!(
                event = "history_found",
                "the database's history holds what was published: following it again"
            );
            self.publisher.metrics().history_lost.set(0);
        }
    }

    fn lost(&mut self, error: &StoreError) {
        // Whatever was notified meanwhile is gone.
        self.listener = None;
        if self.lost_since.is_none() {
            self.lost_since = Some(Instant::now());
            self.publisher.metrics().database_up.set(0);
            self.publisher.metrics().database_losses.inc();
            let serving = self.world.as_ref().map(|(head, _)| head.revision);
            tracing::warn!(
                event = "database_lost",
                error = %error,
                revision = serving,
                "the database does not answer: serving the last registry, trying again"
            );
        }
    }

    fn found(&mut self) {
        self.publisher.metrics().database_up.set(1);
        if let Some(since) = self.lost_since.take() {
            let away_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(event = "database_back", away_ms, "the database answers again");
        }
    }
}

/// As the work says, or that the database did not answer.
async fn within(
    limit: Duration,
    work: impl Future<Output = Result<(), StoreError>>,
) -> Result<(), StoreError> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(StoreError::silent()))
}

fn timed_out(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(sqlx::Error::Io(why)) if why.kind() == std::io::ErrorKind::TimedOut)
}

fn items_of(snapshot: Snapshot) -> Items {
    let Snapshot { channels, credentials, statuses, policies, .. } = snapshot;
    Delta::of(channels, credentials, statuses, policies).items().collect()
}

#[cfg(test)]
mod tests;
