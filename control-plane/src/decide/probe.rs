//! What a probe's answer does to a status.

use std::time::Duration;

use spareline_core::backoff::Series;
use spareline_core::policy::FleetPolicy;
use spareline_core::{Cause, Subject};
use spareline_proto::registry::v1 as pb;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{State, Status, throttle};

/// How long a verdict waits for a conclusive probe before it is forgotten.
const PENDING_LIFE: Duration = Duration::from_secs(900);

/// A claimed row: one prober works on it until the lease ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// What is to be probed.
    pub subject: Subject,
    /// The row when it was claimed, its pending verdict included.
    pub status: Status,
    /// The claim. Nil for a dry run, which claims nothing.
    pub lease: Uuid,
}

/// What a probe found of its subject.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeOutcome {
    /// It serves. For `unhealthy`: any answer below 500.
    Good,
    /// It is out, with proof.
    Bad {
        /// Why: credential, quota, model_unavailable or unhealthy.
        cause: Cause,
        /// One line for humans.
        reason: String,
        /// What was seen.
        evidence: Option<pb::Evidence>,
    },
    /// 429: the key lives.
    Throttled {
        /// The provider's hint.
        retry_after: Option<Duration>,
        /// One line for humans.
        reason: String,
        /// What was seen.
        evidence: Option<pb::Evidence>,
    },
    /// It tells nothing: no response for a hard cause, a complaint about a parameter.
    Inconclusive {
        /// One line for humans.
        reason: String,
    },
}

/// What to do with the row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ProbeChange {
    /// State, cause or fence changed: publish. With `raise_fence` the fence becomes the new revision.
    Publish {
        /// The row; `revision` is the caller's to set.
        status: Status,
        /// The probe was a success: older verdicts are stale.
        raise_fence: bool,
    },
    /// Only the prober's times changed: write them without a revision or an event.
    Times(Status),
}

/// What keeps a probe from taking a subject out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Taking it out would leave some (group, model, endpoint) with nothing: soft evidence never does that.
    pub last_active: bool,
    /// Machines are not to disable it, though they were when the probe was asked for.
    pub by_hand: bool,
}

/// Decides what a probe does. `jitter` in 0..1.
pub(crate) fn probed(
    subject: &Subject,
    status: &Status,
    outcome: &ProbeOutcome,
    held: Held,
    rules: &FleetPolicy,
    now: OffsetDateTime,
    jitter: f64,
) -> ProbeChange {
    let status = Status { last_probed_at: Some(now), ..status.clone() };
    if status.cause_in_force(now) == Some(Cause::Operator) {
        // A human's word: nothing that a machine found is kept beside it.
        return ProbeChange::Times(status.unclaimed());
    }
    let condemns = matches!(outcome, ProbeOutcome::Bad { .. } | ProbeOutcome::Throttled { .. });
    if condemns && held.by_hand && !status.is_out(now) {
        return ProbeChange::Times(status.unclaimed());
    }
    match outcome {
        ProbeOutcome::Good => good(status, rules, now, jitter),
        ProbeOutcome::Throttled { .. }
            if matches!(subject, Subject::Channel(_)) && status.cause == Some(Cause::Unhealthy) =>
        {
            // An answer below 500 is all that an unhealthy channel owes; the limit is one key's.
            good(status, rules, now, jitter)
        }
        ProbeOutcome::Throttled { retry_after, reason, evidence } => {
            let wait = retry_after.map_or(rules.throttle_default, throttle::believed);
            let was_throttled = status.cause_in_force(now) == Some(Cause::Throttled);
            let until = status.retry_at.filter(|_| was_throttled).map_or(now + wait, |at| at.max(now + wait));
            ProbeChange::Publish {
                status: Status {
                    state: State::Disabled,
                    cause: Some(Cause::Throttled),
                    reason: reason.clone(),
                    actor: "prober".into(),
                    evidence: evidence.clone(),
                    disabled_at: status.disabled_at.filter(|_| status.is_out(now)).or(Some(now)),
                    retry_at: Some(until),
                    throttled_until: Some(until),
                    hinted: retry_after.is_some(),
                    failed_probes: 0,
                    ..status.unclaimed()
                },
                raise_fence: false,
            }
        }
        ProbeOutcome::Bad { cause, reason, evidence } => {
            bad(status, (*cause, reason, evidence), held.last_active, now, jitter)
        }
        ProbeOutcome::Inconclusive { .. } => inconclusive(status, now, jitter),
    }
}

fn good(status: Status, rules: &FleetPolicy, now: OffsetDateTime, jitter: f64) -> ProbeChange {
    if status.cause_in_force(now) == Some(Cause::Throttled) {
        // What a verdict claimed beside it is refuted; the throttle itself ends by time and not by a probe.
        return ProbeChange::Publish { status: status.unclaimed(), raise_fence: true };
    }
    if status.is_out(now) && !rules.auto_enable {
        let pause = pause(status.cause.unwrap_or(Cause::Credential), status.failed_probes, jitter);
        // What a verdict claimed meanwhile is refuted; what is in force waits for a human.
        return ProbeChange::Times(Status { retry_at: Some(now + pause), ..status.unclaimed() });
    }
    ProbeChange::Publish {
        status: Status { degraded: false, ..throttle::ended(status.unclaimed()) },
        raise_fence: true,
    }
}

fn bad(
    status: Status,
    (cause, reason, evidence): (Cause, &str, &Option<pb::Evidence>),
    last_active: bool,
    now: OffsetDateTime,
    jitter: f64,
) -> ProbeChange {
    let in_force = status.cause_in_force(now);
    if in_force == Some(cause) {
        let failed_probes = status.failed_probes.saturating_add(1);
        let retry_at = Some(now + pause(cause, failed_probes, jitter));
        return ProbeChange::Times(Status { failed_probes, retry_at, ..status.unclaimed() });
    }
    if cause == Cause::Unhealthy && in_force.is_none() && last_active {
        // It stays, flagged; the local breakers go on protecting each proxy.
        return ProbeChange::Times(status.unclaimed());
    }
    if cause == Cause::Unhealthy && in_force.is_some() {
        // Soft evidence says nothing about a hard cause.
        return inconclusive(status, now, jitter);
    }
    ProbeChange::Publish {
        status: Status {
            state: State::Disabled,
            cause: Some(cause),
            reason: reason.to_owned(),
            actor: "prober".into(),
            evidence: evidence.clone(),
            disabled_at: status.disabled_at.filter(|_| in_force.is_some()).or(Some(now)),
            retry_at: Some(now + pause(cause, 0, jitter)),
            hinted: false,
            failed_probes: 0,
            ..status.unclaimed()
        },
        raise_fence: false,
    }
}

fn inconclusive(status: Status, now: OffsetDateTime, jitter: f64) -> ProbeChange {
    if let Some(pending) = &status.pending {
        if now - pending.since > PENDING_LIFE {
            return ProbeChange::Times(Status { failed_probes: 0, ..status.unclaimed() });
        }
        // Asked again soon: the proxy that reported it protects only itself.
        let failed_probes = status.failed_probes.saturating_add(1);
        let pause = pause(Cause::Unhealthy, failed_probes, jitter);
        return ProbeChange::Times(Status { pending_due: Some(now + pause), failed_probes, ..status });
    }
    let Some(cause) = status.cause_in_force(now) else { return ProbeChange::Times(status) };
    if matches!(cause, Cause::Throttled | Cause::Operator) {
        return ProbeChange::Times(status);
    }
    let retry_at = Some(now + pause(cause, status.failed_probes, jitter));
    ProbeChange::Times(Status { retry_at, ..status })
}

/// The pause before the next probe after `failed` failed ones, +-10 % by `jitter` in 0..1.
pub(super) fn pause(cause: Cause, failed: u32, jitter: f64) -> Duration {
    let series = if cause == Cause::Unhealthy { Series::SOFT } else { Series::HARD };
    series.pause(failed, jitter)
}
