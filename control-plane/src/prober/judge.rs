//! What one answer to a probe means for the subject that was probed. Pure.
//!
//! The classifier has read the answer as it reads traffic; here it is only asked whether that says something about the
//! subject in question. Evidence about something else (a dead key while a model was probed) proves nothing either way.

use std::time::Duration;

use spareline_core::classify::{Detail, Verdict};
use spareline_core::{Cause, Class, Subject};

use crate::decide::ProbeOutcome;

/// What is probed, and for what.
#[derive(Clone, Debug)]
pub(crate) struct Question<'a> {
    /// The subject.
    pub subject: &'a Subject,
    /// The cause in force, or the one a verdict claims.
    pub cause: Cause,
    /// Whether a key is sent; without one, what would condemn a key condemns the channel.
    pub with_key: bool,
}

/// What one answer brought.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Found {
    /// The question is answered.
    Settled(ProbeOutcome),
    /// The request was at fault: ask in another form.
    OtherForm(String),
    /// The model or the key used was at fault, which is not what was asked: use another one.
    OtherLine(String),
    /// No response at all to a question about soft failures: it counts only if our own network is not to blame.
    NoResponse {
        /// One line for humans.
        reason: String,
        /// Something answered at the other end, if only by refusing: our network works.
        answered: bool,
    },
}

/// What a failed attempt means. What a successful one means is [`super::ask`]'s.
pub(crate) fn failed(question: &Question<'_>, verdict: &Verdict) -> Found {
    let soft = question.cause == Cause::Unhealthy;
    let reason = verdict.reason();
    let bad = |cause| {
        Found::Settled(ProbeOutcome::Bad {
            cause,
            reason: reason.clone(),
            evidence: Some(verdict.evidence("probe")),
        })
    };
    let on_ability = matches!(question.subject, Subject::Ability { .. });
    match verdict.class {
        Class::Disable if matches!(question.subject, Subject::Credential(_)) || !question.with_key => {
            bad(verdict.cause.unwrap_or(Cause::Credential))
        }
        Class::ModelUnavailable if on_ability => bad(Cause::ModelUnavailable),
        Class::Throttle if !soft => Found::Settled(ProbeOutcome::Throttled {
            retry_after: verdict.retry_after.as_ref().map(|hint| hint.wait()),
            reason,
            evidence: Some(verdict.evidence("probe")),
        }),
        // Whoever answers below 500 is up, whatever the answer; a refusal by code is an answer at any status.
        Class::Disable | Class::ModelUnavailable | Class::Throttle if soft => {
            Found::Settled(ProbeOutcome::Good)
        }
        _ if soft && (1..500).contains(&verdict.status) => Found::Settled(ProbeOutcome::Good),
        Class::Disable | Class::ModelUnavailable => Found::OtherLine(reason),
        Class::Transparent | Class::EndpointMissing => Found::OtherForm(reason),
        Class::Retryable if soft && verdict.status >= 500 => bad(Cause::Unhealthy),
        Class::Retryable if soft => {
            let silent = matches!(verdict.detail, Detail::Word("dns" | "refused" | "connect_timeout"));
            Found::NoResponse { reason, answered: !silent }
        }
        Class::Retryable | Class::Throttle | Class::Ok | Class::None => {
            Found::Settled(ProbeOutcome::Inconclusive { reason })
        }
    }
}

/// What the end of all forms and lines without an answer to the question means.
pub(crate) fn exhausted(question: &Question<'_>, last: Option<String>, answered: bool) -> ProbeOutcome {
    if question.cause == Cause::Unhealthy && answered {
        return ProbeOutcome::Good;
    }
    ProbeOutcome::Inconclusive { reason: last.unwrap_or_else(|| "nothing to probe with".into()) }
}

/// The probe took longer than it may.
pub(crate) fn too_slow(question: &Question<'_>, limit: Duration) -> Found {
    let reason = format!("no answer to the probe within {} s", limit.as_secs());
    if question.cause == Cause::Unhealthy {
        return Found::NoResponse { reason, answered: true };
    }
    Found::Settled(ProbeOutcome::Inconclusive { reason })
}

#[cfg(test)]
mod tests;
