//! Soft evidence: failures in a row per subject, the local breaker with its one trial, silent attempts, and the tallies
//! that the control plane gets.
//!
//! An HTTP answer counts against the ability, no answer against the channel. Three in a row: degraded, still used.
//! Five: the breaker opens (10 s, x1.5, cap 20 s); then one trial at a time. Failures of one and the same request body
//! count once per subject for 60 s. Nothing here disables for the fleet: crossings are reported, a probe decides.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{ChannelId, CredentialId, Revision, Subject};
use crate::policy::FleetPolicy;
use crate::view::View;

/// The counts of this process. A cheap handle; locks are held for moments.
#[derive(Clone, Debug, Default)]
pub struct Health {}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// One attempt's account. Dropped without a word, it frees the trial it may hold and counts nothing: a cancellation.
#[derive(Debug)]
#[must_use = "dropping it at once frees the trial"]
pub struct Ticket {
    /// What the attempt uses.
    pub mark: Mark,
}

impl Ticket {
    /// The attempt worked, or its first content came: counts, closes the breaker, frees the trial.
    pub fn success(&mut self, _now: Duration) {
        todo!()
    }

    /// The upstream answered, and the request or nobody is at fault: frees the trial, closes the breaker, counts nothing.
    pub fn answered(&mut self, _now: Duration) {
        todo!()
    }

    /// A soft failure. `body_hash`: of the request's body, to count one poisonous request once.
    pub fn failure(&mut self, _soft: Soft, _body_hash: u64, _fleet: &FleetPolicy, _now: Duration) -> Crossing {
        todo!()
    }

    /// The caller left after 30 s without one byte.
    pub fn silent(&mut self, _body_hash: u64, _fleet: &FleetPolicy, _now: Duration) -> Crossing {
        todo!()
    }

    /// A hard verdict or a throttle (the overlay is made apart): counts as a failure in the tally, frees the trial.
    pub fn condemned(&mut self, _now: Duration) {
        todo!()
    }
}

impl Health {
    /// What happened since the last call, for the control plane.
    pub fn drain(&self) -> Vec<Tally> {
        todo!()
    }

    /// A new view is in force: forgets what left it.
    pub fn reconcile(&self, _view: &View) {
        todo!()
    }

    /// Subjects with failures in a row: count, and until when the breaker is open. For readers.
    pub fn troubled(&self, _now: Duration) -> Vec<(Subject, u32, Option<Duration>)> {
        todo!()
    }
}
