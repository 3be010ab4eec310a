//! What the world in memory already answers: a thousand proxies that learn of one dead key at once need one write.
//!
//! Asked only while the database is busy, and only of batches whose every verdict is about something that another reporter
//! took out for the same cause. What this proxy took out itself, or a probe did that it asked for, may be a batch whose answer
//! was lost, and gets the answer it got before; that, and whatever else it might be (stale, unknown, another cause, a longer throttle), is the store's to
//! say. The answer is not kept: repeated when the subject is back, the batch is STALE, which ends the proxy's overlay just
//! the same.

use prost_types::Timestamp;
use spareline_core::{Cause, Subject, convert, derive};
use spareline_proto::dataplane::v1 as dp;

use crate::world::World;

/// The answers, where all are ALREADY.
pub(super) fn already(
    world: &World,
    batch: &dp::ReportVerdictsRequest,
    now: &Timestamp,
) -> Option<Vec<dp::VerdictResult>> {
    if batch.epoch != *world.epoch {
        return None;
    }
    let own = format!("proxy:{}", batch.proxy_id);
    let answer = |verdict: &dp::Verdict| {
        let subject = convert::subject(verdict.subject.as_ref()?)?;
        let claimed = convert::cause(verdict.cause)?;
        let status = derive::out(&world.items, &subject, now)?;
        let in_force = convert::cause(status.cause)?;
        let fence = status.fence_revision.max(fence_above(world, &subject));
        // A throttle may last longer than the one in force.
        let same = in_force == claimed && in_force != Cause::Throttled;
        let others = status.actor.starts_with("proxy:") && status.actor != own;
        (same && others && verdict.observed_revision >= fence).then(|| dp::VerdictResult {
            verdict_id: verdict.verdict_id.clone(),
            disposition: dp::Disposition::Already.into(),
            status_revision: 0,
        })
    };
    batch.verdicts.iter().map(answer).collect()
}

/// The fences of what an ability lies beneath.
fn fence_above(world: &World, subject: &Subject) -> i64 {
    let fence = |subject: &Subject| world.items.status(subject).map_or(0, |status| status.fence_revision);
    match subject {
        Subject::Ability { channel, model, credential } => {
            let own = fence(&Subject::Channel(*channel));
            let wider = Subject::Ability { channel: *channel, model: model.clone(), credential: None };
            own.max(credential.map_or(0, |_| fence(&wider)))
        }
        Subject::Channel(_) | Subject::Credential(_) => 0,
    }
}
