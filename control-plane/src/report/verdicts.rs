//! The form of a batch of verdicts: what cannot be a verdict is refused with every mistake at once.
//!
//! Text that is only too long is cut, not refused: a batch must never be stuck in a proxy's spool for its looks.

use spareline_core::classify::redacted;
use spareline_core::{Subject, convert};
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::registry::v1 as pb;
use tonic::Status;
use uuid::Uuid;

use crate::refuse::Violations;
use crate::store::MAX_NAME;

/// Most verdicts in one batch.
pub(super) const MAX_VERDICTS: usize = 500;
/// Longest code, rule or request id kept, in bytes.
const MAX_WORD: usize = 128;

/// Checks a batch and cuts what is too long.
///
/// # Errors
/// INVALID_ARGUMENT with all violations.
pub(super) fn check(mut batch: dp::ReportVerdictsRequest) -> Result<dp::ReportVerdictsRequest, Status> {
    let mut violations = Violations::default();
    reporter(&mut violations, &batch.proxy_id, &batch.epoch);
    if !fits(&mut violations, "verdicts", batch.verdicts.len(), MAX_VERDICTS) {
        return violations.done().map(|()| batch);
    }
    for (i, verdict) in batch.verdicts.iter_mut().enumerate() {
        let mut bad = |field: &str, problem: &str| violations.add(format!("verdicts[{i}].{field}"), problem);
        if Uuid::parse_str(&verdict.verdict_id).is_err() {
            bad("verdict_id", "must be a UUID");
        }
        if !names_something(verdict.subject.as_ref()) {
            bad("subject", "must name a channel, a credential or an ability");
        }
        if convert::cause(verdict.cause).is_none() {
            bad("cause", "must be one of the known causes");
        }
        if verdict.observed_revision < 0 {
            bad("observed_revision", "must not be negative");
        }
        for (field, duration) in [("retry_after", &verdict.retry_after), ("age", &verdict.age)] {
            if duration.is_some() && convert::duration(duration.as_ref()).is_none() {
                bad(field, "must be a duration that is not negative");
            }
        }
        if let Some(evidence) = &mut verdict.evidence {
            trim(evidence);
        }
    }
    violations.done()?;
    Ok(batch)
}

/// Who is reporting.
pub(super) fn reporter(violations: &mut Violations, proxy_id: &str, epoch: &str) {
    if epoch.len() > MAX_NAME || epoch.contains('\0') {
        violations.add("epoch", "is not an epoch");
    }
    if proxy_id.contains('\0') {
        violations.add("proxy_id", "must not hold a NUL");
    }
    if proxy_id.is_empty() {
        violations.add("proxy_id", "is required");
    } else if proxy_id.len() > MAX_NAME {
        violations.add("proxy_id", format!("is longer than {MAX_NAME} bytes"));
    }
}

/// Whether a batch holds no more than it may; each entry of one that does is not worth looking at.
pub(super) fn fits(violations: &mut Violations, field: &str, count: usize, most: usize) -> bool {
    if count > most {
        violations.add(field, format!("holds {count}; at most {most} fit"));
    }
    count <= most
}

/// Whether a subject is one, and fits the database.
pub(super) fn names_something(subject: Option<&pb::Subject>) -> bool {
    match subject.and_then(convert::subject) {
        Some(Subject::Ability { model, .. }) => model.len() <= 1024 && !model.contains('\0'),
        subject => subject.is_some(),
    }
}

fn trim(evidence: &mut pb::Evidence) {
    // A proxy has done this; what calls itself one may not have.
    evidence.excerpt = redacted(&evidence.excerpt);
    cut(&mut evidence.provider_code, MAX_WORD);
    cut(&mut evidence.rule_id, MAX_WORD);
    cut(&mut evidence.request_id, MAX_WORD);
    cut(&mut evidence.retry_hint, MAX_WORD);
}

fn cut(text: &mut String, limit: usize) {
    text.truncate(text.floor_char_boundary(limit));
    // Postgres takes no NUL in a text.
    if text.contains('\0') {
        *text = text.replace('\0', "");
    }
}
