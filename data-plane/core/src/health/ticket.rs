//! The account of one attempt.

use std::time::Duration;

use super::gate::{Breaker, Held};
use super::{Crossing, Health, Mark, Soft, State};
use crate::ids::Subject;
use crate::policy::FleetPolicy;

/// One attempt's account. Dropped without a word, it frees the trial it may hold and counts nothing: a cancellation.
#[derive(Debug)]
#[must_use = "dropping it at once frees the trial"]
pub struct Ticket {
    /// What the attempt uses.
    pub mark: Mark,
    health: Health,
    held: Vec<Held>,
}

impl Ticket {
    /// `held` was entered under the lock that chose it.
    pub(crate) fn new(mark: Mark, health: Health, held: Vec<Held>) -> Self {
        Self { mark, health, held }
    }

    /// The attempt worked, or its first content came: counts, closes the breaker, frees the trial.
    pub fn success(&mut self) {
        self.each(|_, cell| cell.success());
        self.settle(true);
    }

    /// A stream's first content came: frees the trial and closes the breaker. Whether it counts as a success shows at
    /// its end, or streams that always break in the middle would look well.
    pub fn committed(&mut self) {
        self.settle(true);
    }

    /// The upstream answered, and the request or nobody is at fault: frees the trial, closes the breaker, counts nothing.
    pub fn answered(&mut self) {
        self.each(|_, cell| cell.calm());
        self.settle(true);
    }

    /// A soft failure. `body_hash`: of the request's body, to count one poisonous request once.
    pub fn failure(&mut self, soft: Soft, body_hash: u64, fleet: &FleetPolicy, now: Duration) -> Crossing {
        let health = self.health.clone();
        let mut state = health.lock();
        let channel = self.mark.channel_subject();
        let subject = match soft {
            Soft::NoAnswer => channel,
            Soft::Answered => {
                // It answered, so the channel is there.
                if let Some(cell) = state.cells.get_mut(&channel) {
                    cell.calm();
                }
                state.breakers.remove(&channel);
                self.mark.ability_subject()
            }
        };
        let crossing = self.count(&mut state, &subject, |cell| cell.failure(body_hash, fleet, now), now);
        self.shut(&mut state, now);
        health.count(&state);
        crossing
    }

    /// The caller left after 30 s without one byte: five in a row count as five failures.
    pub fn silent(&mut self, body_hash: u64, fleet: &FleetPolicy, now: Duration) -> Crossing {
        let health = self.health.clone();
        let mut state = health.lock();
        let subject = self.mark.channel_subject();
        let crossing = self.count(&mut state, &subject, |cell| cell.silent(body_hash, fleet, now), now);
        self.held.drain(..).for_each(|held| state.leave(&held));
        health.count(&state);
        crossing
    }

    /// A hard verdict or a throttle (the overlay is made apart): counts as a failure in the tally only, ends the trial.
    pub fn condemned(&mut self, now: Duration) {
        self.each(|_, cell| cell.note_failure());
        let health = self.health.clone();
        let mut state = health.lock();
        self.shut(&mut state, now);
        health.count(&state);
    }

    fn count(
        &self,
        state: &mut State,
        subject: &Subject,
        count: impl FnOnce(&mut super::Cell) -> Crossing,
        now: Duration,
    ) -> Crossing {
        let cell = state.cells.entry(subject.clone()).or_default();
        let done = cell.enter(subject, &self.mark);
        let mut crossing = count(cell);
        state.done.extend(done);
        if crossing == Crossing::Opened {
            if state.breakers.contains_key(subject) {
                // Failures of attempts that began before it opened do not lengthen it.
                crossing = Crossing::None;
            } else {
                state.breakers.insert(subject.clone(), Breaker::open(now));
            }
        }
        crossing
    }

    /// Counts for the channel and the ability.
    fn each(&self, count: impl Fn(&Subject, &mut super::Cell)) {
        let mut state = self.health.lock();
        for subject in [self.mark.channel_subject(), self.mark.ability_subject()] {
            let state = &mut *state;
            // Mostly it is there, and a look costs less than an entry, which wants a subject of its own.
            let cell = match state.cells.get_mut(&subject) {
                Some(cell) => cell,
                None => state.cells.entry(subject.clone()).or_default(),
            };
            let done = cell.enter(&subject, &self.mark);
            count(&subject, cell);
            state.done.extend(done);
        }
    }

    fn settle(&mut self, passed: bool) {
        if self.held.is_empty() && self.health.is_calm() {
            return;
        }
        let health = self.health.clone();
        let mut state = health.lock();
        for held in self.held.drain(..) {
            if passed { state.pass(&held) } else { state.leave(&held) }
        }
        if passed {
            state.breakers.remove(&self.mark.channel_subject());
            state.breakers.remove(&self.mark.ability_subject());
        }
        health.count(&state);
    }

    fn shut(&mut self, state: &mut State, now: Duration) {
        self.held.drain(..).for_each(|held| state.fail(&held, now));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            self.settle(false);
        }
    }
}
