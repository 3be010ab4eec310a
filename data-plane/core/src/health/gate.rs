//! Doors that let one request through at a time: breakers, and what goes first when a time has run out.

use std::time::Duration;

use super::State;
use crate::backoff::Series;
use crate::ids::{Revision, Subject};
use crate::view::View;

/// After so long without a verdict the first request after a throttle has been let in: refusals come at once.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// How long what happened at an overlay's gate is remembered.
const OVERLAY_MEMORY: Duration = Duration::from_secs(30 * 60);

/// An open breaker.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    /// Closed to all until then; then one trial.
    pub(crate) until: Duration,
    pub(crate) trial: bool,
    windows: u32,
}

/// Names a gate: one status or one overlay, so that a later one starts afresh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GateKey {
    pub(crate) subject: Subject,
    pub(crate) of: Generation,
}

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Generation {
    Status(Revision),
    Overlay(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct Gate {
    trial: Option<Duration>,
    passed: bool,
    fails: u32,
    not_before: Duration,
    touched: Duration,
}

/// One trial that an attempt holds.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Breaker(Subject),
    /// With the pauses between fruitless trials, if there are any.
    Gate(GateKey, Option<Series>),
}

/// How a gate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Open to all.
    Open,
    /// Open to one.
    One,
    /// Somebody is in it.
    Busy,
    /// Shut until then.
    Shut(Duration),
}

// === impl Breaker ===

impl Breaker {
    pub(super) fn open(now: Duration) -> Self {
        Self { until: now + Series::SOFT.nominal(0), trial: false, windows: 1 }
    }

    fn reopen(&mut self, now: Duration) {
        self.until = now + Series::SOFT.nominal(self.windows);
        self.windows = self.windows.saturating_add(1);
        self.trial = false;
    }

    pub(crate) fn door(&self, now: Duration) -> Door {
        match (now < self.until, self.trial) {
            (true, _) => Door::Shut(self.until),
            (false, true) => Door::Busy,
            (false, false) => Door::One,
        }
    }
}

// === impl Gate ===

impl Gate {
    fn new(now: Duration) -> Self {
        Self { trial: None, passed: false, fails: 0, not_before: Duration::ZERO, touched: now }
    }

    fn door(&self, now: Duration, paced: bool) -> Door {
        let looked = |since: Duration| !paced && now.saturating_sub(since) >= FIRST_LOOK;
        match self.trial {
            _ if self.passed => Door::Open,
            Some(since) if looked(since) => Door::Open,
            Some(_) => Door::Busy,
            None if now < self.not_before => Door::Shut(self.not_before),
            None => Door::One,
        }
    }

    /// Whether what it guards is still there.
    pub(super) fn is_current(&self, key: &GateKey, view: &View, now: Duration) -> bool {
        match key.of {
            Generation::Status(revision) => {
                view.items().status(&key.subject).is_some_and(|s| s.revision == revision.0)
            }
            Generation::Overlay(_) => now.saturating_sub(self.touched) < OVERLAY_MEMORY,
        }
    }
}

// === impl State ===

impl State {
    /// How a gate stands; one that nobody came to is open to one. `paced`: fruitless trials are spaced.
    pub(crate) fn door(&self, key: &GateKey, now: Duration, paced: bool) -> Door {
        self.gates.get(key).map_or(Door::One, |gate| gate.door(now, paced))
    }

    /// Enters. Only what stood at [`Door::One`] under the same lock may be entered.
    pub(crate) fn enter(&mut self, held: &Held, now: Duration) {
        match held {
            Held::Breaker(subject) => {
                if let Some(breaker) = self.breakers.get_mut(subject) {
                    breaker.trial = true;
                }
            }
            Held::Gate(key, _) => {
                let gate = self.gates.entry(key.clone()).or_insert_with(|| Gate::new(now));
                gate.trial = Some(now);
                gate.touched = now;
            }
        }
    }

    /// Leaves without a result: the next may try.
    pub(super) fn leave(&mut self, held: &Held) {
        match held {
            Held::Breaker(subject) => {
                if let Some(breaker) = self.breakers.get_mut(subject) {
                    breaker.trial = false;
                }
            }
            Held::Gate(key, _) => {
                if let Some(gate) = self.gates.get_mut(key) {
                    gate.trial = None;
                }
            }
        }
    }

    /// It worked: open to all.
    pub(super) fn pass(&mut self, held: &Held) {
        match held {
            Held::Breaker(subject) => {
                self.breakers.remove(subject);
            }
            Held::Gate(key, _) => {
                if let Some(gate) = self.gates.get_mut(key) {
                    gate.passed = true;
                    gate.trial = None;
                }
            }
        }
    }

    /// It did not: shut again, for longer.
    pub(super) fn fail(&mut self, held: &Held, now: Duration) {
        match held {
            Held::Breaker(subject) => {
                if let Some(breaker) = self.breakers.get_mut(subject) {
                    breaker.reopen(now);
                }
            }
            Held::Gate(key, series) => {
                if let Some(gate) = self.gates.get_mut(key) {
                    gate.trial = None;
                    gate.not_before = series.map_or(now, |s| now + s.nominal(gate.fails));
                    gate.fails = gate.fails.saturating_add(1);
                }
            }
        }
    }
}
