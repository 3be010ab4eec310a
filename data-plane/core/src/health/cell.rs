//! The count of one subject.

use std::time::Duration;

use super::{Crossing, Mark, Tally};
use crate::ids::{Revision, Subject};
use crate::policy::FleetPolicy;

/// How long one and the same request body counts once.
const SAME_BODY: Duration = Duration::from_secs(60);
/// How many bodies are remembered per subject: more than any threshold needs would only cost memory.
const BODIES: usize = 32;
/// Silent attempts in a row that count as as many failures.
const SILENT: u32 = 5;

#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) in_a_row: u32,
    silent: u32,
    bodies: Vec<(u64, Duration)>,
    successes: u32,
    failures: u32,
    trailing: u32,
    pub(super) revision: Revision,
    spec_revision: Revision,
}

impl Cell {
    /// Notes which spec the next count belongs to; answers the tally of the one before.
    pub(super) fn enter(&mut self, subject: &Subject, mark: &Mark) -> Option<Tally> {
        let before = if self.spec_revision == mark.spec_revision { None } else { self.take_tally(subject) };
        self.spec_revision = mark.spec_revision;
        self.revision = self.revision.max(mark.revision);
        before
    }

    pub(super) fn success(&mut self) {
        self.successes += 1;
        self.trailing = 0;
        self.calm();
    }

    /// The row of failures ended, whatever ended it.
    pub(super) fn calm(&mut self) {
        self.in_a_row = 0;
        self.silent = 0;
        self.bodies.clear();
    }

    /// Something else failed: it counts in the tally, but is no soft failure.
    pub(super) fn note_failure(&mut self) {
        self.failures += 1;
        self.trailing += 1;
    }

    /// A soft failure; none where the same body failed here within the minute.
    pub(super) fn failure(&mut self, body: u64, fleet: &FleetPolicy, now: Duration) -> Crossing {
        self.silent = 0;
        if self.known(body, now) { Crossing::None } else { self.add(1, fleet) }
    }

    pub(super) fn silent(&mut self, body: u64, fleet: &FleetPolicy, now: Duration) -> Crossing {
        if self.known(body, now) {
            return Crossing::None;
        }
        self.silent += 1;
        if self.silent < SILENT {
            return Crossing::None;
        }
        self.silent = 0;
        self.add(SILENT, fleet)
    }

    pub(super) fn take_tally(&mut self, subject: &Subject) -> Option<Tally> {
        if self.successes == 0 && self.failures == 0 {
            return None;
        }
        let tally = Tally {
            subject: subject.clone(),
            successes: std::mem::take(&mut self.successes),
            failures: std::mem::take(&mut self.failures),
            trailing_failures: std::mem::take(&mut self.trailing),
            revision: self.revision,
            spec_revision: self.spec_revision,
        };
        Some(tally)
    }

    fn add(&mut self, failures: u32, fleet: &FleetPolicy) -> Crossing {
        let before = self.in_a_row;
        self.in_a_row = before.saturating_add(failures);
        self.failures += failures;
        self.trailing += failures;
        let crossed = |threshold: u32| before < threshold && self.in_a_row >= threshold;
        if self.in_a_row >= fleet.unhealthy_after {
            Crossing::Opened
        } else if crossed(fleet.degraded_after) {
            Crossing::Degraded
        } else {
            Crossing::None
        }
    }

    fn known(&mut self, body: u64, now: Duration) -> bool {
        self.bodies.retain(|(_, at)| now.saturating_sub(*at) < SAME_BODY);
        if self.bodies.iter().any(|(b, _)| *b == body) {
            return true;
        }
        if self.bodies.len() == BODIES {
            self.bodies.remove(0);
        }
        self.bodies.push((body, now));
        false
    }
}
