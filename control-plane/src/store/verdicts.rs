//! Reports of proxies: verdicts and health tallies, each counted once.

use spareline_core::Subject;
use spareline_proto::dataplane::v1 as dp;

use super::{Result, Store};

/// What became of a batch of verdicts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerdictsResult {
    /// One per verdict, in order.
    pub results: Vec<dp::VerdictResult>,
    /// Something waits for a probe: wake the prober now.
    pub probe_now: bool,
    /// The revision of the change, if any was applied.
    pub revision: Option<i64>,
    /// What was taken out or extended, for the log.
    pub applied: Vec<(Subject, spareline_proto::registry::v1::Status)>,
}

/// What became of a batch of tallies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthResult {
    /// Something crossed the threshold and waits for a probe: wake the prober now.
    pub probe_now: bool,
    /// The batch was counted before.
    pub repeated: bool,
}

impl Store {
    /// Answers a batch of verdicts: reads first, and takes the head lock only for those that may change something. The same
    /// verdict id gets the same answer for ever. Invalid ids and subjects are answered, never an error for the batch.
    ///
    /// # Errors
    /// `Unavailable`: nothing was counted, send it again.
    pub async fn apply_verdicts(&self, batch: &dp::ReportVerdictsRequest) -> Result<VerdictsResult> {
        let _ = batch;
        todo!()
    }

    /// Counts a batch of tallies. Crossing the lower threshold flags a subject, the upper one asks for a probe; neither
    /// takes anything out nor brings anything back.
    ///
    /// # Errors
    /// `Unavailable`: nothing was counted, send it again.
    pub async fn report_health(&self, batch: &dp::ReportHealthRequest) -> Result<HealthResult> {
        let _ = batch;
        todo!()
    }
}
