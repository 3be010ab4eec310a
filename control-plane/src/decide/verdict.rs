//! A proxy's verdict, against what the registry knows of its subject.

use std::time::Duration;

use spareline_core::Cause;
use spareline_core::policy::FleetPolicy;
use spareline_proto::registry::v1 as pb;
use time::OffsetDateTime;

use super::throttle::Throttle;
use super::{Pending, State, Status};

/// A verdict older than this when it arrives is confirmed by a probe first.
const OLD: Duration = Duration::from_secs(300);

/// What a proxy says.
#[derive(Clone, Debug)]
pub(crate) struct VerdictInput {
    /// `None`: a cause that verdicts cannot carry.
    pub cause: Option<Cause>,
    /// The revision its attempt was picked from.
    pub observed_revision: i64,
    /// Reached by status alone.
    pub confirm: bool,
    /// For throttles: what is left of the hint; `None`: no hint.
    pub retry_after: Option<Duration>,
    /// How long ago it was reached.
    pub age: Duration,
    /// Who says so: `proxy:ID`.
    pub actor: String,
    /// What was seen.
    pub evidence: Option<pb::Evidence>,
}

/// Whether the subject exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// An id that was never given out.
    Never,
    /// Deleted, retired, or no longer listed.
    Gone,
    /// In the registry.
    Live,
}

/// The budget at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Distinct subjects out by machine within the window, throttles apart.
    pub out: u64,
    /// How many may be.
    pub allowed: u64,
}

/// What the registry knows of a verdict's subject.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    /// The verdict is of our epoch, and not from a revision above our head: where a database was restored, ids given out
    /// since may name something else now.
    pub same_history: bool,
    /// Whether the subject exists.
    pub known: Known,
    /// Its own status; the default where there is no row.
    pub status: &'a Status,
    /// For one key's ability: the status of the ability as a whole.
    pub wider: Option<&'a Status>,
    /// The channel's fence, where the subject lies beneath one channel; else 0.
    pub channel_fence: i64,
    /// What the channels concerned say; `None`: none says anything.
    pub auto_disable: Option<bool>,
    /// How much more the fleet may be believed.
    pub budget: Budget,
}

/// The control plane's answer, in the proto's words.
pub(crate) use spareline_proto::dataplane::v1::Disposition;

/// What to do with a verdict.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// The answer.
    pub disposition: Disposition,
    /// The status to publish under a new revision (its `revision` is the caller's to set).
    pub write: Option<Status>,
    /// The row to keep without a revision: a pending verdict that was not there before.
    pub pend: Option<Status>,
}

impl Decision {
    fn only(disposition: Disposition) -> Decision {
        Decision { disposition, write: None, pend: None }
    }

    /// Whether the decision changes anything, so that it has to be made under the head lock.
    pub(crate) fn changes(&self) -> bool {
        self.write.is_some() || self.pend.is_some()
    }
}

/// Decides on one verdict. `jitter` in 0..1.
///
/// The order of the answers: another history, gone, older than the fence or a throttle that is over (STALE); never known
/// (UNKNOWN_SUBJECT); out for this or a stronger cause (ALREADY); not to be touched by machines (LOCAL); unproven or
/// old (PENDING); beyond the budget (SUPPRESSED); else APPLIED.
pub(crate) fn verdict(
    input: &VerdictInput,
    facts: &Facts<'_>,
    rules: &FleetPolicy,
    now: OffsetDateTime,
    jitter: f64,
) -> Decision {
    let status = facts.status;
    if !facts.same_history || facts.known == Known::Gone {
        return Decision::only(Disposition::Stale);
    }
    if facts.known == Known::Never {
        return Decision::only(Disposition::UnknownSubject);
    }
    // Causes that only a human or a probe may give are nobody's to report.
    let Some(cause) = input.cause.filter(|c| !matches!(c, Cause::Operator | Cause::Unhealthy)) else {
        return Decision::only(Disposition::Stale);
    };
    let fence = status.fence.max(facts.channel_fence).max(facts.wider.map_or(0, |w| w.fence));
    if input.observed_revision < fence {
        return Decision::only(Disposition::Stale);
    }
    let throttle = (cause == Cause::Throttled).then(|| Throttle::of(input, status, rules, now));
    if throttle.as_ref().is_some_and(|t| t.until <= now) {
        return Decision::only(Disposition::Stale);
    }

    let in_force = [Some(status), facts.wider].into_iter().flatten().filter_map(|s| s.cause_in_force(now));
    if let Some(strongest) = in_force.max() {
        let same_throttle = throttle.as_ref().filter(|_| strongest == Cause::Throttled);
        let already = match same_throttle {
            Some(t) => !t.extends([Some(status), facts.wider].into_iter().flatten(), now),
            None => strongest >= cause,
        };
        if already {
            return Decision::only(Disposition::Already);
        }
    }

    if !facts.auto_disable.unwrap_or(rules.auto_disable) {
        return Decision::only(Disposition::Local);
    }
    if input.confirm || input.age > OLD || cause == Cause::ModelUnavailable {
        return pending(input, cause, status, now, false);
    }
    let counted = !matches!(cause, Cause::Throttled);
    let counted_before = status.cause_in_force(now).is_some_and(|c| c != Cause::Throttled);
    if counted && !counted_before && facts.budget.out >= facts.budget.allowed {
        return pending(input, cause, status, now, true);
    }

    applied(input, cause, throttle, status, now, jitter)
}

fn applied(
    input: &VerdictInput,
    cause: Cause,
    throttle: Option<Throttle>,
    status: &Status,
    now: OffsetDateTime,
    jitter: f64,
) -> Decision {
    let mut next = Status {
        state: State::Disabled,
        cause: Some(cause),
        reason: reason_of(input.evidence.as_ref(), cause),
        actor: input.actor.clone(),
        evidence: input.evidence.clone(),
        disabled_at: Some(now),
        failed_probes: 0,
        hinted: false,
        ..status.clone().unclaimed()
    };
    match throttle {
        Some(t) => {
            if status.cause_in_force(now) == Some(Cause::Throttled) {
                next.disabled_at = status.disabled_at; // the same absence, only longer
            }
            next.retry_at = Some(t.until);
            next.throttled_until = Some(t.until);
            next.hinted = t.hinted;
            next.throttles = t.throttles;
            let told = input.evidence.as_ref().is_some_and(|e| !e.retry_hint.is_empty());
            if let Some(wait) = input.retry_after.filter(|_| !told) {
                next.reason = format!("{} (asked to wait {} s)", next.reason, wait.as_secs_f64().ceil());
            }
        }
        None => next.retry_at = Some(now + super::probe::pause(cause, 0, jitter)),
    }
    Decision { disposition: Disposition::Applied, write: Some(next), pend: None }
}

fn pending(
    input: &VerdictInput,
    cause: Cause,
    status: &Status,
    now: OffsetDateTime,
    suppressed: bool,
) -> Decision {
    let disposition = if suppressed { Disposition::Suppressed } else { Disposition::Pending };
    let waiting = status.pending.as_ref().is_some_and(|p| p.cause >= cause);
    if waiting {
        return Decision::only(disposition);
    }
    let pending = Pending {
        cause,
        reason: reason_of(input.evidence.as_ref(), cause),
        actor: input.actor.clone(),
        evidence: input.evidence.clone(),
        since: now,
        suppressed,
    };
    let next = Status { pending: Some(pending), pending_due: Some(now), ..status.clone() };
    Decision { disposition, write: None, pend: Some(next) }
}

/// One line for humans: status code, the provider's code, its words about coming back, the excerpt.
pub(crate) fn reason_of(evidence: Option<&pb::Evidence>, cause: Cause) -> String {
    let Some(e) = evidence else { return cause.as_str().to_owned() };
    let mut parts = Vec::new();
    if e.http_status != 0 {
        parts.push(e.http_status.to_string());
    }
    if !e.provider_code.is_empty() {
        parts.push(e.provider_code.clone());
    }
    if !e.retry_hint.is_empty() {
        parts.push(format!("[{}]", e.retry_hint));
    }
    let head = parts.join(" ");
    match (head.is_empty(), e.excerpt.is_empty()) {
        (true, true) => cause.as_str().to_owned(),
        (true, false) => e.excerpt.clone(),
        (false, true) => head,
        (false, false) => format!("{head}: {}", e.excerpt),
    }
}
