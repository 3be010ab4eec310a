use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use spareline_core::{Cause, CredentialId, Revision, Subject};

use super::*;
use crate::metrics::Metrics;

fn report(id: &str, epoch: &str) -> Report {
    Report {
        verdict_id: id.into(),
        subject: Subject::Credential(CredentialId(7)),
        cause: Cause::Throttled,
        revision: Revision(3),
        spec_revision: Revision(2),
        evidence: Default::default(),
        confirm: false,
        epoch: epoch.into(),
        back_at: Some(Duration::from_secs(40)),
        reached: Duration::from_secs(10),
        observed: SystemTime::UNIX_EPOCH,
    }
}

#[test]
fn part7_a_verdict_says_what_is_left_at_the_moment_of_sending() {
    let wire = report("a", "e").to_wire(Duration::from_secs(25));
    assert_eq!(wire.retry_after.unwrap().seconds, 15);
    assert_eq!(wire.age.unwrap().seconds, 15);
    assert_eq!(wire.observed_revision, 3);
    let late = report("a", "e").to_wire(Duration::from_secs(100));
    assert_eq!(late.retry_after.unwrap().seconds, 0, "never negative");
    assert_eq!(late.verdict_id, "a", "the id stays");
}

#[test]
fn part7_the_spool_is_bounded_withdraws_and_never_mixes_epochs() {
    let spool = Spool::new(Arc::new(Metrics::default()));
    for n in 0..10_050 {
        spool.push(report(&format!("v{n}"), "one"));
    }
    assert_eq!(spool.len(), 10_000);
    assert_eq!(&*spool.batch(1)[0].verdict_id, "v50", "the oldest are lost first");
    spool.withdraw(&["v50".into(), "v51".into()]);
    assert_eq!(&*spool.batch(1)[0].verdict_id, "v52");
    let batch = spool.batch(usize::MAX);
    spool.push(report("x", "one"));
    spool.push(report("y", "two"));
    spool.done(&batch);
    assert_eq!(spool.len(), 2, "what came meanwhile stays");
    assert_eq!(spool.batch(10).len(), 1, "a batch has one epoch");
}
