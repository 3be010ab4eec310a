//! The registry at one revision, immutable, and where every reader gets it from.
//!
//! [`follow()`] keeps a [`World`] in a `watch` channel; sessions, reports and the prober read it and never the database.
//! Invariants: a published world is complete and of one revision; within an epoch revisions never go backwards; a
//! lost database leaves the last world in place, for ever.

pub(crate) mod announce;
pub mod follow;
mod narrow;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spareline_core::Revision;
#[cfg(test)]
use spareline_core::items::Item;
use spareline_core::items::Items;
use spareline_core::policy::FleetPolicy;
use tokio::sync::watch;

pub use follow::follow;
pub use narrow::{GroupSet, Narrow};

use crate::metrics::Metrics;
use crate::rollout::Overlay;

/// The registry at one revision.
#[derive(Clone, Debug)]
pub struct World {
    /// Which history this is a point of.
    pub epoch: Arc<str>,
    /// The point.
    pub revision: Revision,
    /// Everything, with secrets.
    pub items: Items,
    /// What the fleet believes, from the global policy.
    pub rules: FleetPolicy,
    /// The registry has had channels in this epoch, so that having none is somebody's decision.
    pub had_channels: bool,
    /// The rollouts that last, by id: what their cohorts see instead.
    pub rollouts: Arc<[Overlay]>,
}

/// A proxy, as far as its view depends on it.
#[derive(Clone, Debug)]
pub struct Viewer<'a> {
    /// The groups it serves.
    pub groups: &'a GroupSet,
    /// Its id.
    pub proxy_id: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// Reads worlds. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Worlds {
    current: watch::Receiver<Option<Arc<World>>>,
    narrow: Arc<Narrow>,
    metrics: Arc<Metrics>,
}

/// Publishes worlds: the other end of [`Worlds`].
#[derive(Debug)]
pub struct Publisher {
    current: watch::Sender<Option<Arc<World>>>,
    metrics: Arc<Metrics>,
}

/// Makes both ends; nothing is published yet.
pub fn channel() -> (Publisher, Worlds) {
    measured(Arc::default())
}

/// As [`channel`], with metrics that say how it stands.
pub fn measured(metrics: Arc<Metrics>) -> (Publisher, Worlds) {
    let (sender, receiver) = watch::channel(None);
    let worlds = Worlds { current: receiver, narrow: Arc::default(), metrics: metrics.clone() };
    (Publisher { current: sender, metrics }, worlds)
}

// === impl World ===

impl World {
    /// A complete world.
    pub fn new(epoch: Arc<str>, revision: Revision, items: Items) -> Self {
        let rules = FleetPolicy::resolve(items.policy("").map(Arc::as_ref));
        let had_channels = items.channel_count() > 0;
        Self { epoch, revision, items, rules, had_channels, rollouts: Arc::default() }
    }

    /// The same with some items replaced, at a later revision.
    #[must_use]
    pub fn with(&self, revision: Revision, items: Items) -> Self {
        let mut next = Self::new(self.epoch.clone(), revision, items);
        next.had_channels |= self.had_channels;
        next.rollouts = self.rollouts.clone();
        next
    }

    /// The rollouts that a proxy is in, by id.
    pub fn cohort(&self, proxy_id: &str, labels: &BTreeMap<String, String>) -> Arc<[i64]> {
        let within = self.rollouts.iter().filter(|r| r.cohort.has(proxy_id, labels));
        within.map(|r| r.rollout_id).collect()
    }

    /// The registry as that cohort sees it, of all groups.
    pub fn seen_by(&self, cohort: &[i64]) -> Items {
        let mut items = self.items.clone();
        for rollout in self.rollouts.iter().filter(|r| cohort.contains(&r.rollout_id)) {
            rollout.lay(&mut items);
        }
        items
    }
}

// === impl Worlds ===

impl Worlds {
    /// What this replica counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The newest world; `None` before the first is complete.
    pub fn current(&self) -> Option<Arc<World>> {
        self.current.borrow().clone()
    }

    /// The newest world, once there is one; `None` when none will ever come.
    pub async fn ready(&self) -> Option<Arc<World>> {
        let mut current = self.current.clone();
        let world = current.wait_for(Option::is_some).await.ok()?;
        world.clone()
    }

    /// Waits for a world of at least `revision`, at most `limit`.
    pub async fn at_least(&self, revision: Revision, limit: Duration) -> Option<Arc<World>> {
        let mut current = self.current.clone();
        let reached = current.wait_for(|w| w.as_ref().is_some_and(|w| w.revision >= revision));
        tokio::time::timeout(limit, reached).await.ok()?.ok()?.clone()
    }

    /// To wait for changes with, by who goes by `world`: one that came since that was read is news already.
    pub fn since(&self, world: &Arc<World>) -> watch::Receiver<Option<Arc<World>>> {
        let mut current = self.current.clone();
        let still = current.borrow_and_update().as_ref().is_some_and(|now| Arc::ptr_eq(now, world));
        if !still {
            current.mark_changed();
        }
        current
    }

    /// To wait for any.
    #[cfg(test)]
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<World>>> {
        self.current.clone()
    }

    /// A proxy's view: the baseline, or the candidates of the rollouts it is in, narrowed to its groups. Shared by all of equal
    /// groups and cohort.
    pub fn view(&self, viewer: &Viewer<'_>, world: &World) -> Items {
        let cohort = if world.rollouts.is_empty() {
            Arc::default()
        } else {
            world.cohort(viewer.proxy_id, viewer.labels)
        };
        self.narrow.of(viewer.groups, &cohort, world)
    }
}

// === impl Publisher ===

impl Publisher {
    /// What this replica counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Makes a world the current one. Within an epoch an older one is dropped.
    ///
    /// Returns the current one.
    pub fn publish(&self, world: World) -> Arc<World> {
        let world = Arc::new(world);
        self.current.send_if_modified(|current| {
            let older = current
                .as_ref()
                .is_some_and(|now| now.epoch == world.epoch && now.revision >= world.revision);
            if !older {
                *current = Some(world.clone());
            }
            !older
        });
        self.current.borrow().clone().unwrap_or(world)
    }
}

/// The world of these items, for tests.
#[cfg(test)]
pub(crate) fn of(epoch: &str, revision: i64, items: impl IntoIterator<Item = Item>) -> World {
    World::new(epoch.into(), Revision(revision), items.into_iter().collect())
}
