//! Leases of the prober: any replica may probe, one at a time does.

use spareline_core::ChannelId;
use spareline_proto::registry::v1 as pb;

use super::{Result, Store};
use crate::decide::{Lease, ProbeOutcome};

/// Which rows to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Those due, the most overdue first, at most so many.
    Due(u32),
    /// Everything out by machine, due or not.
    All,
    /// What is out by machine of these channels: themselves, their credentials, their abilities.
    Channels(Vec<ChannelId>),
}

/// What became of a probe.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeResult {
    /// The row changed since it was claimed, or the lease ended: the outcome was not written.
    Lost,
    /// Only times were written: state and cause are what they were.
    Unchanged(pb::Status),
    /// State, cause or fence changed.
    Changed(pb::Status),
}

impl Store {
    /// Claims rows for 30 s by the database's clock. `dry_run` claims nothing and answers the same rows.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn claim_probes(&self, claim: &Claim, dry_run: bool) -> Result<Vec<Lease>> {
        let _ = (claim, dry_run);
        todo!()
    }

    /// How long until the next row falls due, leases counted in. `None`: nothing is.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn next_probe_in(&self) -> Result<Option<std::time::Duration>> {
        todo!()
    }

    /// Writes what a probe found, by compare-and-set on (lease, revision).
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn finish_probe(&self, lease: &Lease, outcome: &ProbeOutcome) -> Result<ProbeResult> {
        let _ = (lease, outcome);
        todo!()
    }

    /// Makes throttles whose time is over active, and drops `degraded` where no proxy says so any more. Answers how many
    /// rows changed.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn tidy(&self) -> Result<usize> {
        todo!()
    }
}
