//! What each set of groups may see, computed once for all sessions that ask.
//!
//! A set that is followed from world to world costs what changed; the parts of two worlds share what did not, so a
//! session's difference is cheap too. A set that nobody holds any more is forgotten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spareline_core::Revision;
use spareline_core::items::{Items, Narrowed};

use super::World;

/// A set of groups; equal sets share one part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupSet(Arc<[String]>);

/// The parts in use.
#[derive(Debug, Default)]
pub struct Narrow {
    parts: Mutex<BTreeMap<GroupSet, Arc<Mutex<Option<Part>>>>>,
}

#[derive(Debug)]
struct Part {
    epoch: Arc<str>,
    revision: Revision,
    narrowed: Narrowed,
}

// === impl GroupSet ===

impl GroupSet {
    /// Sorted, without repetitions.
    pub fn new(groups: &[String]) -> Self {
        let mut groups = groups.to_vec();
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
    /// The part of a world. Older worlds than the last one asked for are narrowed from scratch and not kept.
    pub(super) fn of(&self, groups: &GroupSet, world: &World) -> Items {
        let slot = {
            let mut parts = locked(&self.parts);
            match parts.get(groups) {
                Some(slot) => slot.clone(),
                None => {
                    // Ours and one in the map are gone with the last session that holds the set.
                    parts.retain(|set, _| Arc::strong_count(&set.0) > 1);
                    parts.entry(groups.clone()).or_default().clone()
                }
            }
        };
        let mut slot = locked(&slot);
        let next = match slot.as_ref() {
            Some(part) if part.epoch == world.epoch && part.revision == world.revision => {
                return part.narrowed.items().clone();
            }
            Some(part) if part.epoch == world.epoch && part.revision > world.revision => {
                return world.items.for_groups(groups.groups());
            }
            Some(part) if part.epoch == world.epoch => part.narrowed.follow(&world.items),
            // Versions mean nothing across epochs.
            _ => Narrowed::new(&world.items, groups.groups()),
        };
        let items = next.items().clone();
        *slot = Some(Part { epoch: world.epoch.clone(), revision: world.revision, narrowed: next });
        items
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
