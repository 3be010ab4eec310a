//! What each set of groups may see, and each cohort, computed once for all sessions that ask.
//!
//! A set that is followed from world to world costs what changed; the parts of two worlds share what did not, so a
//! session's difference is cheap too. A set that nobody holds any more is forgotten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spareline_core::Revision;
use spareline_core::items::{Items, Narrowed};
use spareline_core::spec::DEFAULT_GROUP;

use super::World;

/// A set of groups; equal sets share one part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupSet(Arc<[String]>);

/// The parts in use.
#[derive(Debug, Default)]
pub struct Narrow {
    parts: Mutex<BTreeMap<Key, Arc<Mutex<Option<Part>>>>>,
}

/// Groups, and the rollouts seen.
type Key = (GroupSet, Arc<[i64]>);

#[derive(Debug)]
struct Part {
    epoch: Arc<str>,
    revision: Revision,
    narrowed: Narrowed,
}

// === impl GroupSet ===

impl GroupSet {
    /// Sorted, without repetitions. None means `default`, as it does for a channel.
    pub fn new(groups: &[String]) -> Self {
        let mut groups = if groups.is_empty() { vec![DEFAULT_GROUP.to_owned()] } else { groups.to_vec() };
        groups.sort_unstable();
        groups.dedup();
        Self(groups.into())
    }

    /// Its members.
    pub fn groups(&self) -> &[String] {
        &self.0
    }
}

// === impl Narrow ===

impl Narrow {
    /// The part of a world as a cohort sees it. Older worlds than the last one asked for are narrowed from scratch and not kept.
    pub(super) fn of(&self, groups: &GroupSet, cohort: &Arc<[i64]>, world: &World) -> Items {
        let slot = {
            let mut parts = locked(&self.parts);
            let key = (groups.clone(), cohort.clone());
            match parts.get(&key) {
                Some(slot) => slot.clone(),
                None => {
                    // A baseline's set is gone with the last session that holds it: ours and one in the map. A cohort's
                    // part, which holds a set of its own, is gone with a rollout.
                    let lasts = |id: &i64| world.rollouts.iter().any(|r| r.rollout_id == *id);
                    parts.retain(|(set, cohort), _| match cohort.is_empty() {
                        true => Arc::strong_count(&set.0) > 1,
                        false => cohort.iter().all(lasts),
                    });
                    let own = if cohort.is_empty() { groups.clone() } else { GroupSet::new(groups.groups()) };
                    parts.entry((own, cohort.clone())).or_default().clone()
                }
            }
        };
        let mut slot = locked(&slot);
        let next = match slot.as_ref() {
            Some(part) if part.epoch == world.epoch && part.revision == world.revision => {
                return part.narrowed.items().clone();
            }
            Some(part) if part.epoch == world.epoch && part.revision > world.revision => {
                return world.seen_by(cohort).for_groups(groups.groups());
            }
            Some(part) if part.epoch == world.epoch => part.narrowed.follow(&world.seen_by(cohort)),
            // Versions mean nothing across epochs.
            _ => Narrowed::new(&world.seen_by(cohort), groups.groups()),
        };
        let items = next.items().clone();
        *slot = Some(Part { epoch: world.epoch.clone(), revision: world.revision, narrowed: next });
        items
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
