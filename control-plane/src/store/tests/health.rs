//! Part 7: soft evidence is counted, flags at three in a row, and at five asks for a probe.

use super::*;

async fn tally(
    store: &Store,
    proxy: &str,
    subject: &Subject,
    successes: u32,
    trailing: u32,
    observed: i64,
) -> super::super::HealthResult {
    let tally = dp::HealthTally {
        subject: Some(spareline_core::convert::subject_ref(subject)),
        successes,
        failures: trailing,
        trailing_failures: trailing,
        observed_revision: observed,
        spec_revision: 1,
    };
    let batch = dp::ReportHealthRequest {
        proxy_id: proxy.into(),
        batch_id: uuid::Uuid::now_v7().to_string(),
        tallies: vec![tally],
        epoch: store.head().await.unwrap().epoch.to_string(),
    };
    let answer = store.report_health(&batch).await.unwrap();
    assert!(store.report_health(&batch).await.unwrap().repeated, "a batch counts once");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_three_in_a_row_flag_five_ask_for_a_probe_and_nothing_is_taken_out() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let subject = ability(one.channel_id, "gpt-4o-mini", None);
    tally(&store, "p1", &subject, 0, 2, 1).await;
    assert_eq!(head(&store).await, 1);
    tally(&store, "p1", &subject, 0, 1, 1).await;
    let flagged = status(&store, &subject).await;
    assert_eq!((flagged.state(), flagged.degraded), (pb::ServingState::Active, true));
    // A success elsewhere does not lift the flag, one here does.
    tally(&store, "p2", &subject, 5, 0, 1).await;
    assert!(status(&store, &subject).await.degraded);
    tally(&store, "p1", &subject, 1, 0, 1).await;
    assert!(!status(&store, &subject).await.degraded);

    tally(&store, "p1", &subject, 0, 4, 1).await;
    let asked = tally(&store, "p1", &subject, 0, 1, 1).await;
    assert!(asked.probe_now);
    assert_eq!(status(&store, &subject).await.state(), pb::ServingState::Active);
    let leases = store.claim_probes(&super::super::Claim::Due(10), false).await.unwrap();
    assert_eq!(leases[0].status.pending.as_ref().unwrap().cause, spareline_core::Cause::Unhealthy);
    assert!(!tally(&store, "p1", &subject, 0, 1, 1).await.probe_now, "asked already");
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_tallies_from_before_the_fence_count_for_nothing() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let subject = ability(one.channel_id, "gpt-4o-mini", None);
    tally(&store, "p1", &subject, 0, 4, 1).await;
    let fence = enable(&store, subject.clone()).await.status.fence_revision;
    assert!(!tally(&store, "p1", &subject, 0, 9, fence - 1).await.probe_now);
    assert!(!tally(&store, "p1", &subject, 0, 2, fence).await.probe_now, "the count starts anew");
    assert!(!status(&store, &subject).await.degraded);
    // What is out is not touched.
    disable(&store, subject.clone()).await;
    let before = head(&store).await;
    tally(&store, "p1", &subject, 0, 50, before).await;
    tally(&store, "p1", &subject, 50, 0, before).await;
    assert_eq!(head(&store).await, before);
}
