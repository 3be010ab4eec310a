//! What a request about rollouts must say by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use spareline_proto::admin::v1::{Change, Gate, Rollout, RolloutState, Stage, change};
use tonic::Status;

use super::super::{channel_key, check_comment, check_text, check_words, violations_of_policy};
use super::{Violations, invalid_field};

/// Most changes and stages of one rollout.
const MOST: usize = 100;
/// Longest time that a stage waits for by itself.
const LONGEST_BAKE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A rollout's id.
pub(super) fn id(text: &str) -> Result<i64, Status> {
    let id = text.parse().ok().filter(|id| *id > 0);
    id.ok_or_else(|| invalid_field("rollout_id", "must be the number that CreateRollout answered"))
}

/// A rollout's id beside a comment.
pub(super) fn commented(rollout_id: &str, comment: &str) -> Result<i64, Status> {
    let id = id(rollout_id)?;
    let mut violations = Violations::default();
    check_comment(comment, &mut violations);
    violations.done()?;
    Ok(id)
}

/// `active`, `state=active`, `state = "ROLLOUT_STATE_ACTIVE"`; nothing: any.
pub(super) fn state(filter: &str) -> Result<Option<RolloutState>, Status> {
    let word = filter.trim();
    let word =
        word.strip_prefix("state").map_or(word, |rest| rest.trim_start().trim_start_matches(['=', ':']));
    let word = word.trim().trim_matches('"').to_ascii_uppercase();
    if word.is_empty() {
        return Ok(None);
    }
    let name = if word.starts_with("ROLLOUT_STATE_") { word } else { format!("ROLLOUT_STATE_{word}") };
    let state = RolloutState::from_str_name(&name).filter(|s| *s != RolloutState::Unspecified);
    let known = "must be a state: active, paused, succeeded or aborted";
    state.map(Some).ok_or_else(|| invalid_field("filter", known))
}

/// Everything that is wrong with a new rollout, channels apart.
pub(super) fn draft(rollout: &Rollout, violations: &mut Violations) {
    check_words("rollout.description", &rollout.description, violations);
    check_words("rollout.comment", &rollout.comment, violations);
    if rollout.changes.is_empty() || rollout.changes.len() > MOST {
        violations.add("rollout.changes", format!("must hold 1 to {MOST} changes"));
    }
    for (i, change) in rollout.changes.iter().enumerate() {
        changed(&format!("rollout.changes[{i}]"), change, violations);
    }
    if rollout.stages.is_empty() || rollout.stages.len() > MOST {
        violations.add("rollout.stages", format!("must hold 1 to {MOST} stages"));
    }
    let only_policies = rollout.changes.iter().all(|c| matches!(c.kind, Some(change::Kind::UpsertPolicy(_))));
    let mut before: Option<&Stage> = None;
    for (i, stage) in rollout.stages.iter().enumerate() {
        let field = format!("rollout.stages[{i}]");
        if !(0..=100).contains(&stage.percent) {
            violations.add(format!("{field}.percent"), "must lie between 0 and 100");
        }
        if before.is_some_and(|b| b.selector == stage.selector && b.percent > stage.percent) {
            violations.add(format!("{field}.percent"), "is less than the stage before it has");
        }
        if i + 1 == rollout.stages.len() && stage.percent != 100 {
            violations.add(format!("{field}.percent"), "must be 100: it is the last stage");
        }
        labels(&format!("{field}.selector"), &stage.selector, violations);
        let bakes = |d: prost_types::Duration| Duration::try_from(d).is_ok_and(|d| d <= LONGEST_BAKE);
        if stage.bake_time.is_some_and(|d| !bakes(d)) {
            violations.add(format!("{field}.bake_time"), "must lie between 0s and 2592000s (30 days)");
        }
        if let Some(gate) = &stage.gate {
            gated(&format!("{field}.gate"), gate, only_policies, violations);
        }
        before = Some(stage);
    }
}

fn changed(field: &str, change: &Change, violations: &mut Violations) {
    match &change.kind {
        None => violations.add(field, "needs one of upsert, delete_channel and upsert_policy"),
        Some(change::Kind::Upsert(channel)) => {
            let field = format!("{field}.upsert.name");
            if channel.channel_id <= 0 && channel.name.is_empty() {
                violations.add(&*field, "is required: a name, or channel_id");
            }
            check_text(&field, &channel.name, violations);
        }
        Some(change::Kind::DeleteChannel(name)) => {
            channel_key(&format!("{field}.delete_channel"), name, violations);
        }
        Some(change::Kind::UpsertPolicy(policy)) => {
            check_text(&format!("{field}.upsert_policy.group"), &policy.group, violations);
            if change.update_mask.is_none() {
                violations.extend(&format!("{field}.upsert_policy"), violations_of_policy(policy));
            }
        }
    }
}

fn labels(field: &str, selector: &BTreeMap<String, String>, violations: &mut Violations) {
    if selector.len() > 64 {
        violations.add(field, "must be at most 64 labels");
    }
    for (name, value) in selector {
        let fits = |text: &str| text.len() <= 256 && !text.chars().any(char::is_control);
        if name.is_empty() {
            violations.add(field, "has a label without a name");
        } else if !fits(name) || !fits(value) {
            violations.add(field, "has a label of more than 256 bytes, or with control characters");
        }
    }
}

fn gated(field: &str, gate: &Gate, only_policies: bool, violations: &mut Violations) {
    if gate.min_acked_percent.is_some_and(|p| !(0..=100).contains(&p)) {
        violations.add(format!("{field}.min_acked_percent"), "must lie between 0 and 100");
    }
    if gate.min_attempts.is_some_and(|n| n < 0) {
        violations.add(format!("{field}.min_attempts"), "must not be negative");
    }
    if gate.max_failure_delta.is_some_and(|d| !(0.0..=100.0).contains(&d)) {
        violations.add(format!("{field}.max_failure_delta"), "must lie between 0 and 100");
    }
    let counts = gate.min_attempts.is_some_and(|n| n > 0) || gate.max_failure_delta.is_some();
    if only_policies && counts {
        violations.add(field, "counts attempts, which only a channel's change has");
    }
}
