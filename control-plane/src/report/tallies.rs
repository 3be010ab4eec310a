//! The form of a batch of health tallies. What follows from the counts is the store's, by the pure functions of
//! [`crate::decide`]: three failures in a row flag a subject, five ask for a probe, and only a failed probe takes out.

use spareline_proto::dataplane::v1 as dp;
use tonic::Status;
use uuid::Uuid;

use super::verdicts::{fits, names_something, reporter};
use crate::refuse::Violations;

/// Most tallies in one batch.
const MAX_TALLIES: usize = 5_000;

/// Checks a batch.
///
/// # Errors
/// INVALID_ARGUMENT with all violations.
pub(super) fn check(batch: dp::ReportHealthRequest) -> Result<dp::ReportHealthRequest, Status> {
    let mut violations = Violations::default();
    reporter(&mut violations, &batch.proxy_id, &batch.epoch);
    if Uuid::parse_str(&batch.batch_id).is_err() {
        violations.add("batch_id", "must be a UUID");
    }
    if !fits(&mut violations, "tallies", batch.tallies.len(), MAX_TALLIES) {
        return violations.done().map(|()| batch);
    }
    for (i, tally) in batch.tallies.iter().enumerate() {
        let mut bad = |field: &str, problem: &str| violations.add(format!("tallies[{i}].{field}"), problem);
        if !names_something(tally.subject.as_ref()) {
            bad("subject", "must name a channel, a credential or an ability");
        }
        if tally.trailing_failures > tally.failures {
            bad("trailing_failures", "must not exceed failures");
        }
        if tally.observed_revision < 0 {
            bad("observed_revision", "must not be negative");
        }
    }
    violations.done()?;
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use spareline_proto::registry::v1 as pb;

    use super::*;

    fn batch(failures: u32, trailing_failures: u32) -> dp::ReportHealthRequest {
        let subject = Some(pb::Subject { kind: Some(pb::subject::Kind::ChannelId(1)) });
        let tally = dp::HealthTally { subject, failures, trailing_failures, ..Default::default() };
        dp::ReportHealthRequest {
            proxy_id: "proxy-1".into(),
            batch_id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
            tallies: vec![tally],
            epoch: String::new(),
        }
    }

    #[test]
    fn part7_tallies_must_add_up() {
        assert!(check(batch(3, 3)).is_ok());
        assert!(check(batch(2, 3)).is_err());
        let mut nobody = batch(1, 1);
        nobody.batch_id = "x".into();
        nobody.tallies[0].subject = None;
        let message = check(nobody).unwrap_err().message().to_owned();
        assert!(message.contains("batch_id") && message.contains("tallies[0].subject"), "{message}");
    }
}
