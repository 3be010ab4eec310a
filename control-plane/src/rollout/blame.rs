//! Whether a candidate's difference from the baseline could have caused what was seen under it. Pure.
//!
//! If so, it counts against the rollout and says nothing about the baseline; if not, it is a verdict like any other. A key that
//! candidate and baseline use in the same way is one key: where it dies, it dies for all.

use spareline_core::{Cause, Subject};
use spareline_proto::registry::v1 as pb;

/// A candidate, the baseline of the same channel, and the baselines of all channels that list the subject's key.
#[derive(Clone, Debug)]
pub(crate) struct Case<'a> {
    /// The spec that was in force.
    pub candidate: &'a pb::Channel,
    /// The channel as the rest of the fleet has it; none: the rollout makes it.
    pub baseline: Option<&'a pb::Channel>,
    /// Live channels that list the subject's key.
    pub sharing: &'a [pb::Channel],
}

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A verdict.
    Verdict(Cause),
    /// Too many failures in a row.
    Failures,
}

/// Whether the difference could have caused it.
pub(crate) fn blames(case: &Case<'_>, subject: &Subject, seen: Seen) -> bool {
    let Case { candidate, baseline, sharing } = case;
    let listed = |spec: &pb::Channel, key: i64| spec.credential_ids.contains(&key);
    match subject {
        Subject::Credential(key) => {
            let same = |spec: &pb::Channel| listed(spec, key.0) && same_upstream(spec, candidate);
            if sharing.iter().any(same) || baseline.is_some_and(same) {
                return false;
            }
            // A key of the candidate's own that is asked to slow down is no fault: its status concerns only the cohort.
            let own = sharing.is_empty() && baseline.is_none_or(|spec| !listed(spec, key.0));
            !(own && seen == Seen::Verdict(Cause::Throttled))
        }
        Subject::Channel(_) => baseline.is_none_or(|spec| {
            !same_upstream(spec, candidate)
                || spec.attempt_policy != candidate.attempt_policy
                || spec.models != candidate.models
                || spec.credential_ids != candidate.credential_ids
        }),
        Subject::Ability { model, credential, .. } => baseline.is_none_or(|spec| {
            let entry = |of: &pb::Channel| of.models.iter().find(|m| m.model == **model).map(sent);
            !same_upstream(spec, candidate)
                || entry(spec) != entry(candidate)
                || credential.is_some_and(|key| !listed(spec, key.0))
                || (seen == Seen::Failures
                    && (spec.attempt_policy != candidate.attempt_policy
                        || spec.credential_ids != candidate.credential_ids))
        }),
    }
}

/// Whether requests go to the same place in the same way.
fn same_upstream(a: &pb::Channel, b: &pb::Channel) -> bool {
    a.provider == b.provider
        && a.base_url == b.base_url
        && a.endpoints == b.endpoints
        && a.options.clone().unwrap_or_default() == b.options.clone().unwrap_or_default()
}

/// The part of a model entry that decides what is sent, and how long an answer may take.
fn sent(entry: &pb::ModelEntry) -> (String, Vec<i32>, Option<pb::AttemptPolicy>) {
    let upstream = if entry.upstream_model.is_empty() { &entry.model } else { &entry.upstream_model };
    (upstream.clone(), entry.endpoints.clone(), entry.attempt_policy)
}
