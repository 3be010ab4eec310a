//! What this proxy found out by itself and does not use for now, on top of the view's statuses.
//!
//! An overlay is made the moment a verdict is reached, so the very next pick sees it. It ends at the first of: its
//! time (hard causes 60 s doubling to 15 min, jittered; throttles by their hint), a status of the subject that is out
//! or whose fence is above the overlay's revision, disposition STALE or UNKNOWN_SUBJECT, a success on the subject, the
//! subject leaving the view. After its time one request tries first. One report per overlay. Soft failures are not
//! here: they are counted in [`health`](crate::health).

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use spareline_proto::dataplane::v1::Disposition;

use crate::ids::{ChannelId, Revision, Subject};
use crate::view::View;
use crate::words::{Cause, Endpoint};

/// A verdict that takes something out here and now.
#[derive(Clone, Debug)]
pub struct Found {
    /// What.
    pub subject: Subject,
    /// Why; never `unhealthy` or `operator`.
    pub cause: Cause,
    /// How long the upstream asked us to wait, clamped.
    pub hint: Option<Duration>,
    /// The revision of the view the attempt was picked from.
    pub revision: Revision,
    /// The id of the verdict, should it be reported.
    pub verdict_id: Arc<str>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Out until then, by the local monotonic clock; `None`: no overlay was made.
    pub until: Option<Duration>,
    /// Whether the control plane is to be told: not for hints under 10 s, and once per overlay.
    pub report: bool,
}

/// One overlay, for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// What.
    pub subject: Subject,
    /// Why.
    pub cause: Cause,
    /// Until when, by the local monotonic clock.
    pub until: Duration,
    /// Whether the provider said so.
    pub hinted: bool,
}

/// All overlays of this process. Shared; locks are held for moments.
#[derive(Debug, Default)]
pub struct Overlays {}

impl Overlays {
    /// Takes a subject out here and now.
    pub fn add(&self, _found: &Found, _view: &View, _now: Duration, _rng: &mut impl Rng) -> Added {
        todo!()
    }

    /// Remembers for 10 minutes that a channel lacks an endpoint for a model.
    pub fn endpoint_missing(&self, _channel: ChannelId, _model: &Arc<str>, _endpoint: Endpoint, _now: Duration) {
        todo!()
    }

    /// The control plane's answer to a report.
    pub fn answered(&self, _verdict_id: &str, _disposition: Disposition) {
        todo!()
    }

    /// An attempt on this channel, model and credential succeeded: ends what said otherwise. Answers the ids of the
    /// verdicts whose overlays ended, to be withdrawn where they were not sent yet.
    pub fn succeeded(&self, _mark: &crate::health::Mark) -> Vec<Arc<str>> {
        todo!()
    }

    /// A new view is in force: ends what it has overtaken.
    pub fn reconcile(&self, _view: &View, _now: Duration) {
        todo!()
    }

    /// Those in force, for `/debug/registry` and metrics.
    pub fn list(&self, _now: Duration) -> Vec<Shown> {
        todo!()
    }
}
