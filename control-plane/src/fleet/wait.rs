//! `WaitForRevision`: no sleeps for scripts and tests.
//!
//! Driven by events for this replica's sessions; those of other replicas are read from the database, where they are
//! written once a second.

use std::time::Duration;

use spareline_core::Revision;
use spareline_proto::admin::v1 as pb;
use tokio::time::Instant;
use tonic::Status;

use super::FleetService;
use super::roster::Entry;

/// The longest wait.
pub(super) const LONGEST: Duration = Duration::from_secs(600);
/// How often the database is read for other replicas' sessions.
const POLL: Duration = Duration::from_millis(250);

/// Waits until every connected proxy serves at least `revision`.
pub(super) async fn for_revision(
    fleet: &FleetService,
    revision: i64,
    limit: Duration,
) -> Result<pb::WaitForRevisionResponse, Status> {
    let deadline = Instant::now() + limit;
    let mut answers = fleet.presence.subscribe();
    // What nobody has committed yet is waited for too: the follower may be a moment behind.
    let here = fleet.worlds.at_least(Revision(revision), limit).await.is_some();
    loop {
        answers.borrow_and_update();
        let roster = fleet.roster().await?;
        let there = |e: &&Entry| e.proxy.connected && !(here && is_there(e, revision));
        let lagging: Vec<_> = roster.entries.iter().filter(there).collect();
        let reached = here && lagging.is_empty();
        if reached || !here || Instant::now() >= deadline {
            let lagging_proxy_ids = lagging.iter().take(20).map(|e| e.proxy_id().to_owned()).collect();
            return Ok(pb::WaitForRevisionResponse { reached, lagging_proxy_ids });
        }
        let only_here = lagging.iter().all(|e| e.local);
        let next = if only_here { deadline } else { deadline.min(Instant::now() + POLL) };
        let _ = tokio::time::timeout_at(next, answers.changed()).await;
    }
}

/// Its acknowledged digest equals that of its view at this revision or later.
fn is_there(entry: &Entry, revision: i64) -> bool {
    // The world may have moved on since it agreed; of other replicas' sessions only the position is known.
    entry.current
        || entry.agrees_at.is_some_and(|at| at >= revision)
        || (!entry.local && entry.proxy.rejections.is_empty() && entry.applied_revision() >= revision)
}
