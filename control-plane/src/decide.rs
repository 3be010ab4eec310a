//! What becomes of a status: pure functions over rows, evidence, policy and time.
//!
//! Every change of a serving state in the fleet goes through one of these, called by the store under the head lock.
//! They read no clock, draw no random numbers (`jitter` is a parameter) and do no I/O.
//! What they do not do: find the rows, number revisions, record events.

mod human;
mod probe;
mod status;
mod throttle;
mod verdict;
mod view;

pub(crate) use human::{disabled, enabled, is_automatic};
pub(crate) use probe::{Held, Lease, ProbeChange, ProbeOutcome, probed};
pub(crate) use status::{Pending, State, Status};
pub(crate) use throttle::ended;
pub(crate) use verdict::{Budget, Decision, Disposition, Facts, Known, VerdictInput, reason_of, verdict};
pub(crate) use view::{Channel, channel_view};

#[cfg(test)]
mod tests;
