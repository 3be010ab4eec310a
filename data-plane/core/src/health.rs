//! Soft evidence: failures in a row per subject, the local breaker with its one trial, silent attempts, and the tallies
//! that the control plane gets.
//!
//! An HTTP answer counts against the ability, no answer against the channel. Three in a row: degraded, still used.
//! Five: the breaker opens (10 s, x1.5, cap 20 s); then one trial at a time. Failures of one and the same request body
//! count once per subject for 60 s. Nothing here disables for the fleet: crossings are reported, a probe decides.
//!
//! Trials of another kind are kept here too ([`gate`]): the one request that goes first when a throttle, an overlay or,
//! without a control plane, an automatic disable has run out.

mod cell;
pub(crate) mod gate;
#[cfg(test)]
mod tests;
mod ticket;

pub use ticket::Ticket;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::hash::QuickBuild;
use crate::ids::{ChannelId, CredentialId, Revision, Subject};
use crate::overlay::fenced;
use crate::view::View;
use cell::Cell;
use gate::{Breaker, Gate, GateKey};

/// A last resort is tried at most this often per channel.
const RESORT_INTERVAL: Duration = Duration::from_secs(1);

/// The counts of this process. A cheap handle; locks are held for moments.
#[derive(Clone, Debug, Default)]
pub struct Health {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Open breakers, so that picks need no lock while there is none.
    open: AtomicUsize,
    state: Mutex<State>,
}

/// What is behind the lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    cells: HashMap<Subject, Cell, QuickBuild>,
    pub(crate) breakers: HashMap<Subject, Breaker, QuickBuild>,
    pub(crate) gates: HashMap<GateKey, Gate>,
    resorts: HashMap<ChannelId, Duration>,
    done: Vec<Tally>,
}

/// What an attempt used, and what it was picked from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The channel.
    pub channel: ChannelId,
    /// The model, as callers name it.
    pub model: Arc<str>,
    /// The credential, if one was sent.
    pub credential: Option<CredentialId>,
    /// The view's revision: the fence.
    pub revision: Revision,
    /// The channel's spec.
    pub spec_revision: Revision,
}

/// A soft failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Soft {
    /// An HTTP answer that was no good: counts against the ability.
    Answered,
    /// No answer: counts against the channel.
    NoAnswer,
}

/// Whether a count in a row reached a threshold just now: to be reported at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crossing {
    /// It did not.
    None,
    /// Failing, still used.
    Degraded,
    /// The breaker opened.
    Opened,
}

/// What one subject did since the last report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// A channel or an ability.
    pub subject: Subject,
    /// Attempts that succeeded.
    pub successes: u32,
    /// Attempts that failed for an upstream reason.
    pub failures: u32,
    /// Failures since the last success.
    pub trailing_failures: u32,
    /// The newest attempt's view.
    pub revision: Revision,
    /// The spec in force.
    pub spec_revision: Revision,
}

/// A subject with failures in a row, for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Troubled {
    /// Which.
    pub subject: Subject,
    /// Failures in a row.
    pub in_a_row: u32,
    /// The breaker is open until then, and lets one trial through from then on.
    pub open_until: Option<Duration>,
}

// === impl Mark ===

impl Mark {
    /// The channel.
    pub fn channel_subject(&self) -> Subject {
        Subject::Channel(self.channel)
    }

    /// The model on the channel, with any key.
    pub fn ability_subject(&self) -> Subject {
        Subject::Ability { channel: self.channel, model: self.model.clone(), credential: None }
    }
}

// === impl Health ===

impl Health {
    /// What happened since the last call, for the control plane.
    pub fn drain(&self) -> Vec<Tally> {
        let mut state = self.lock();
        let mut tallies = std::mem::take(&mut state.done);
        tallies.extend(state.cells.iter_mut().filter_map(|(subject, cell)| cell.take_tally(subject)));
        tallies
    }

    /// A new view is in force: forgets what left it, and the failures of what was brought back since they were seen.
    pub fn reconcile(&self, view: &View, now: Duration) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.cells.retain(|subject, _| view.knows(subject));
        for (subject, cell) in &mut state.cells {
            if cell.in_a_row > 0 && fenced(subject, cell.revision, view) {
                cell.calm();
                state.breakers.remove(subject);
            }
        }
        state.breakers.retain(|subject, _| view.knows(subject));
        state.resorts.retain(|channel, at| view.line(*channel).is_some() && *at + RESORT_INTERVAL > now);
        state.gates.retain(|key, gate| gate.is_current(key, view, now));
        self.count(state);
    }

    /// Subjects with failures in a row.
    pub fn troubled(&self) -> Vec<Troubled> {
        let state = self.lock();
        let failing = state.cells.iter().filter(|(_, cell)| cell.in_a_row > 0);
        let mut troubled: Vec<_> = failing
            .map(|(subject, cell)| Troubled {
                subject: subject.clone(),
                in_a_row: cell.in_a_row,
                open_until: state.breakers.get(subject).map(|b| b.until),
            })
            .collect();
        troubled.sort_by(|a, b| a.subject.cmp(&b.subject));
        troubled
    }

    /// Whether no breaker is open.
    pub(crate) fn is_calm(&self) -> bool {
        self.shared.open.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, state: &State) {
        self.shared.open.store(state.breakers.len(), Ordering::Relaxed);
    }
}

// === impl State ===

impl State {
    /// Takes the channel's slot for a last resort, if it is free.
    pub(crate) fn claim_resort(&mut self, channel: ChannelId, now: Duration) -> bool {
        let free = self.resort_free(channel, now);
        if free {
            self.resorts.insert(channel, now);
        }
        free
    }

    pub(crate) fn resort_free(&self, channel: ChannelId, now: Duration) -> bool {
        self.resorts.get(&channel).is_none_or(|last| now.saturating_sub(*last) >= RESORT_INTERVAL)
    }
}
