//! What an attempt teaches: counts, overlays, reports. In force before the next pick.

use std::{sync::Arc, time::Duration};

use spareline_core::{
    Cause, Class, Scope, Subject,
    classify::{Hint, Verdict},
    health::{Crossing, Soft},
    overlay::Found,
    pick::Picked,
    view::View,
};
use spareline_upstream::Failed;
use xxhash_rust::xxh3::xxh3_64;

use super::Account;
use crate::{metrics::WordLabel, plan::Plan, record::Record, report::Report, state::Shared};

/// What else the loop has to know.
#[derive(Debug, Default)]
pub(super) struct Taught {
    /// The upstream said how long to wait: out until then.
    pub(super) throttled_for: Option<Duration>,
}

/// The answer is committed: whatever said that this line does not work is wrong.
pub(super) fn committed(shared: &Shared, plan: &Plan, mut picked: Picked, stream: bool) -> Account {
    if stream {
        picked.ticket.committed();
    } else {
        picked.ticket.success();
    }
    let mark = &picked.ticket.mark;
    let ended = shared.overlays.succeeded(mark, plan.endpoint);
    if !ended.is_empty() {
        shared.spool.withdraw(&ended);
    }
    // A stream may still break, and then the body is gone.
    let body_hash = if stream { body_hash(plan) } else { 0 };
    Account { ticket: picked.ticket, body_hash }
}

/// Of the request's body: one poisonous request must not condemn many lines.
pub(super) fn body_hash(plan: &Plan) -> u64 {
    xxh3_64(&plan.outgoing.body)
}

/// Whether a verdict condemns a key, so that its siblings on the same channel may be next.
pub(super) fn about_key_only(verdict: &Verdict) -> bool {
    match verdict.class {
        Class::Disable => verdict.scope == Scope::Credential,
        Class::Throttle => matches!(verdict.scope, Scope::Credential | Scope::Ability),
        _ => false,
    }
}

/// An attempt failed.
pub(super) fn failed(
    shared: &Shared,
    view: &View,
    plan: &Plan,
    picked: &mut Picked,
    failed: &Failed,
    penalise: bool,
    record: &Record,
) -> Taught {
    let verdict = &failed.verdict;
    let now = shared.now();
    let hint =
        (verdict.class == Class::Throttle).then_some(verdict.retry_after.as_ref()).flatten().map(Hint::wait);
    let mut taught = Taught { throttled_for: hint };
    if !penalise {
        return taught;
    }
    match verdict.class {
        Class::Retryable => match soft(verdict) {
            Some(soft) => {
                let crossing = picked.ticket.failure(soft, body_hash(plan), view.fleet(), now);
                crossed(shared, crossing, picked);
            }
            None => tracing::warn!(
                event = "egress_refused",
                channel = %picked.channel.name,
                rule = %verdict.rule,
                "our own way out refused the attempt; nobody is blamed"
            ),
        },
        Class::Throttle | Class::Disable | Class::ModelUnavailable => {
            picked.ticket.condemned(now);
            let out = condemn(shared, picked, verdict, hint, record);
            if let (Some(_), Some(until)) = (hint, out) {
                taught.throttled_for = Some(until.saturating_sub(now));
            }
        }
        Class::EndpointMissing => {
            picked.ticket.answered();
            if let Some(endpoint) = plan.endpoint {
                shared.overlays.endpoint_missing(picked.channel.id, &picked.model.name, endpoint, now);
            }
        }
        Class::Transparent => picked.ticket.answered(),
        Class::None | Class::Ok => {}
    }
    taught
}

/// Against whom a passing fault counts; `None`: nobody.
fn soft(verdict: &Verdict) -> Option<Soft> {
    match verdict.scope {
        Scope::None | Scope::Request => None,
        Scope::Channel => Some(Soft::NoAnswer),
        Scope::Endpoint | Scope::Ability | Scope::Credential => Some(Soft::Answered),
    }
}

/// What a hard verdict is about.
fn subject(picked: &Picked, verdict: &Verdict) -> Subject {
    let key = picked.credential.as_ref().map(|c| c.id);
    match (verdict.scope, key) {
        (Scope::Credential, Some(key)) => Subject::Credential(key),
        (Scope::Ability | Scope::Endpoint, credential) => {
            Subject::Ability { channel: picked.channel.id, model: picked.model.name.clone(), credential }
        }
        // Without a key, what would condemn it condemns the channel.
        _ => Subject::Channel(picked.channel.id),
    }
}

/// A hard verdict: out here at once, and the control plane is told. Answers until when it is out.
fn condemn(
    shared: &Shared,
    picked: &Picked,
    verdict: &Verdict,
    hint: Option<Duration>,
    record: &Record,
) -> Option<Duration> {
    let cause = verdict.cause.unwrap_or(match verdict.class {
        Class::Throttle => Cause::Throttled,
        Class::ModelUnavailable => Cause::ModelUnavailable,
        _ => Cause::Credential,
    });
    let mark = &picked.ticket.mark;
    let found = Found {
        subject: subject(picked, verdict),
        cause,
        hint,
        revision: mark.revision,
        verdict_id: Arc::from(uuid::Uuid::now_v7().to_string()),
    };
    let now = shared.now();
    let added = shared.overlays.add(&found, &shared.view(), now, &mut rand::rng());
    shared.metrics.verdicts.get_or_create(&WordLabel { kind: cause.as_str() }).inc();
    tracing::info!(
        event = "verdict_reached",
        verdict_id = %found.verdict_id,
        subject = %crate::words::subject(&found.subject, &shared.view()),
        channel = %picked.channel.name,
        cause = cause.as_str(),
        class = verdict.class.as_str(),
        reason = %verdict.reason(),
        rule = %verdict.rule,
        confirm = verdict.confirm,
        out_for_s = added.until.map(|u| u.saturating_sub(now).as_secs_f64()),
        reported = added.report,
        request_id = %record.request_id,
        "out here: {} of {}", cause.as_str(), picked.channel.name
    );
    if added.report {
        shared.spool.push(Report {
            verdict_id: found.verdict_id,
            subject: found.subject,
            cause,
            revision: found.revision,
            spec_revision: mark.spec_revision,
            evidence: verdict.evidence(&record.request_id),
            confirm: verdict.confirm,
            epoch: shared.view().epoch().clone(),
            back_at: hint.map(|hint| now + hint),
            reached: now,
            observed: std::time::SystemTime::now(),
        });
    }
    added.until
}

/// A count in a row reached a threshold: the control plane is told at once.
pub(super) fn crossed(shared: &Shared, crossing: Crossing, picked: &Picked) {
    let opened = match crossing {
        Crossing::None => return,
        Crossing::Degraded => false,
        Crossing::Opened => true,
    };
    shared.spool.tell_health();
    let event = if opened { "breaker_opened" } else { "degraded" };
    tracing::warn!(
        event,
        channel = %picked.channel.name,
        model = %picked.model.name,
        "{} failures in a row", if opened { "too many" } else { "several" }
    );
}
