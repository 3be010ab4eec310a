//! Rows as callers see them.

use spareline_proto::admin::v1::*;

use crate::rollout::gate::Evidence;
use crate::store::{ChangeRow, RolloutRow, RolloutTarget, SpecRecord, timestamp};

/// Most proxies that are named.
const NAMED: usize = 20;

/// Without its progress.
pub(super) fn rollout(row: &RolloutRow) -> Rollout {
    Rollout {
        rollout_id: row.rollout_id.to_string(),
        description: row.description.clone(),
        changes: row.changes.iter().map(change).collect(),
        stages: row.stages.clone(),
        current_stage: i32::try_from(row.current).unwrap_or(i32::MAX),
        state: row.state.into(),
        why: row.why.clone(),
        stage_start_time: Some(timestamp(row.started_at)),
        counts: None,
        etag: row.etag(),
        author: row.author.clone(),
        comment: row.comment.clone(),
        create_time: Some(timestamp(row.created_at)),
        end_time: row.ended_at.map(timestamp),
        waiting_for: Vec::new(),
    }
}

fn change(row: &ChangeRow) -> Change {
    let kind = match &row.target {
        RolloutTarget::Channel { candidate: Some(candidate), .. } => {
            change::Kind::Upsert((**candidate).clone())
        }
        RolloutTarget::Channel { candidate: None, .. } => change::Kind::DeleteChannel(row.name.clone()),
        RolloutTarget::Policy(policy) => change::Kind::UpsertPolicy((**policy).clone()),
    };
    Change { kind: Some(kind), update_mask: None }
}

/// Where the cohort stands.
pub(super) fn counts(evidence: &Evidence) -> CohortCounts {
    let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let some = |ids: &[String]| ids.iter().take(NAMED).cloned().collect();
    CohortCounts {
        connected: number(evidence.connected),
        acked: number(evidence.acked),
        rejected: number(evidence.rejected.len()),
        attempts: evidence.ours.attempts,
        failures: evidence.ours.failures,
        baseline_attempts: evidence.baseline.attempts,
        baseline_failures: evidence.baseline.failures,
        rejected_proxy_ids: some(&evidence.rejected),
        lagging_proxy_ids: some(&evidence.lagging),
    }
}

/// One spec of a channel's history.
pub(super) fn spec(record: SpecRecord) -> ChannelSpec {
    ChannelSpec {
        channel: Some(record.channel),
        author: record.author,
        create_time: Some(timestamp(record.created_at)),
        current: record.current,
        rollout_id: record.rollout_id.map_or_else(String::new, |id| id.to_string()),
    }
}
