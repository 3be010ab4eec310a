//! Part 8: leases, compare-and-set, back-off, and the last one that stays.

use std::time::Duration;

use spareline_core::Cause;

use super::super::{Claim, ProbeResult};
use super::*;
use crate::decide::{Lease, ProbeOutcome};

async fn claim(store: &Store) -> Vec<Lease> {
    store.claim_probes(&Claim::Due(100), false).await.unwrap()
}

/// Makes rows due now, as time would.
async fn make_due(store: &Store) {
    sqlx::query("UPDATE statuses SET due_at = clock_timestamp() - interval '1 s' WHERE due_at IS NOT NULL")
        .execute(&store.registry)
        .await
        .unwrap();
}

fn bad(cause: Cause) -> ProbeOutcome {
    ProbeOutcome::Bad { cause, reason: "still dead".into(), evidence: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_a_row_is_claimed_once_when_due_and_comes_back_by_a_good_probe() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let subject = key(one.credential_ids[0]);
    report_one(&store, verdict(&subject, pb::Cause::Credential, 1)).await;
    assert!(claim(&store).await.is_empty(), "not before 60 s");
    let wait = store.next_probe_in().await.unwrap().unwrap();
    assert!(wait > Duration::from_secs(50) && wait < Duration::from_secs(67), "{wait:?}");
    make_due(&store).await;
    let before = head(&store).await;
    let (a, b) = tokio::join!(claim(&store), claim(&store));
    assert_eq!(a.len() + b.len(), 1, "one prober has it");
    let lease = a.into_iter().chain(b).next().unwrap();
    assert_eq!(head(&store).await, before, "taking a lease is no change");
    let seen = store.channel(&"one".into()).await.unwrap();
    let view = crate::decide::channel_view(&seen, store.ping().await.unwrap());
    assert_eq!(view.state(), pb::ServingState::Probing);
    assert_eq!(status(&store, &subject).await.state(), pb::ServingState::Disabled, "never said to proxies");

    // Bad again: later, without a revision.
    let result = store.finish_probe(&lease, &bad(Cause::Credential)).await.unwrap();
    assert!(matches!(result, ProbeResult::Unchanged(_)));
    assert_eq!(head(&store).await, before);
    let wait = store.next_probe_in().await.unwrap().unwrap();
    assert!(wait > Duration::from_secs(105) && wait < Duration::from_secs(133), "doubled: {wait:?}");
    make_due(&store).await;
    let lease = claim(&store).await.pop().unwrap();
    let result = store.finish_probe(&lease, &ProbeOutcome::Good).await.unwrap();
    let ProbeResult::Changed(back) = result else { panic!("{result:?}") };
    assert_eq!((back.state(), back.fence_revision), (pb::ServingState::Active, before + 1));
    assert_eq!(
        report_one(&store, verdict(&subject, pb::Cause::Credential, before)).await,
        dp::Disposition::Stale
    );
    assert_eq!(store.finish_probe(&lease, &ProbeOutcome::Good).await.unwrap(), ProbeResult::Lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_a_humans_word_during_the_probe_survives_its_answer() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let subject = key(one.credential_ids[0]);
    report_one(&store, verdict(&subject, pb::Cause::Credential, 1)).await;
    make_due(&store).await;
    let lease = claim(&store).await.pop().unwrap();
    disable(&store, subject.clone()).await;
    assert_eq!(store.finish_probe(&lease, &ProbeOutcome::Good).await.unwrap(), ProbeResult::Lost);
    assert_eq!(store.finish_probe(&lease, &bad(Cause::Quota)).await.unwrap(), ProbeResult::Lost);
    assert_eq!(status(&store, &subject).await.cause(), pb::Cause::Operator);
    make_due(&store).await;
    assert!(claim(&store).await.is_empty(), "operators' rows are never probed");
    assert!(store.claim_probes(&Claim::All, false).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_a_dead_prober_leaves_a_lease_that_runs_out() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    report_one(&store, verdict(&key(one.credential_ids[0]), pb::Cause::Credential, 1)).await;
    make_due(&store).await;
    let dead = claim(&store).await.pop().unwrap();
    let wait = store.next_probe_in().await.unwrap().unwrap();
    assert!(wait > Duration::from_secs(28) && wait <= Duration::from_secs(30), "{wait:?}");
    sqlx::query("UPDATE statuses SET probe_lease_until = clock_timestamp() - interval '1 s'")
        .execute(&store.registry)
        .await
        .unwrap();
    let seen = store.channel(&"one".into()).await.unwrap();
    let view = crate::decide::channel_view(&seen, store.ping().await.unwrap());
    assert_eq!(view.state(), pb::ServingState::Disabled, "never left probing");
    let next = claim(&store).await.pop().unwrap();
    assert_eq!(store.finish_probe(&dead, &ProbeOutcome::Good).await.unwrap(), ProbeResult::Lost);
    assert!(matches!(store.finish_probe(&next, &ProbeOutcome::Good).await.unwrap(), ProbeResult::Changed(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_verdict_is_settled_by_the_probe_either_way() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1", "sk-0123456789abcde2"]).await;
    let (good, dead) = (key(one.credential_ids[0]), key(one.credential_ids[1]));
    for subject in [&good, &dead] {
        let unproven = dp::Verdict { confirm: true, ..verdict(subject, pb::Cause::Credential, 1) };
        assert_eq!(report_one(&store, unproven).await, dp::Disposition::Pending);
    }
    for lease in claim(&store).await {
        let outcome = if lease.subject == good { ProbeOutcome::Good } else { bad(Cause::Credential) };
        assert!(matches!(store.finish_probe(&lease, &outcome).await.unwrap(), ProbeResult::Changed(_)));
    }
    let (a, b) = (status(&store, &good).await, status(&store, &dead).await);
    assert_eq!(a.state(), pb::ServingState::Active);
    assert!(a.fence_revision > 1, "the good answer raises the fence, which ends the overlay");
    assert_eq!(
        (b.state(), b.cause(), b.actor.as_str()),
        (pb::ServingState::Disabled, pb::Cause::Credential, "prober")
    );
    assert!(claim(&store).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_active_channel_is_never_taken_for_soft_evidence() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let subject = channel(one.channel_id);
    let pend = || async {
        sqlx::query(
            "INSERT INTO statuses (subject_kind, subject_id, state, revision, pending_cause, pending_since, due_at) \
             VALUES ('channel', $1, 'active', 0, 'unhealthy', clock_timestamp(), clock_timestamp()) \
             ON CONFLICT (subject_kind, subject_id, model, credential_id) DO UPDATE SET pending_cause = 'unhealthy', \
             pending_since = clock_timestamp(), due_at = clock_timestamp()",
        )
        .bind(one.channel_id)
        .execute(&store.registry)
        .await
        .unwrap();
        claim(&store).await.pop().unwrap()
    };
    let lease = pend().await;
    let result = store.finish_probe(&lease, &bad(Cause::Unhealthy)).await.unwrap();
    assert!(matches!(result, ProbeResult::Unchanged(_)), "{result:?}");
    assert!(enabled_models(&store, one.channel_id).await[0].1);
    // Another channel without that endpoint is no replacement.
    let mut other = spec("embeds");
    other.endpoints = vec![pb::Endpoint::Embeddings.into()];
    create(&store, other, &[]).await;
    let lease = pend().await;
    assert!(matches!(
        store.finish_probe(&lease, &bad(Cause::Unhealthy)).await.unwrap(),
        ProbeResult::Unchanged(_)
    ));
    // Nor is a drained one.
    let drained = pb::Channel { weight: Some(0), ..spec("two") };
    let mut two = create(&store, drained, &[]).await;
    let lease = pend().await;
    assert!(matches!(
        store.finish_probe(&lease, &bad(Cause::Unhealthy)).await.unwrap(),
        ProbeResult::Unchanged(_)
    ));
    two.weight = Some(1);
    update(&store, two.clone()).await.unwrap();
    let lease = pend().await;
    assert!(matches!(
        store.finish_probe(&lease, &bad(Cause::Unhealthy)).await.unwrap(),
        ProbeResult::Changed(_)
    ));
    assert_eq!(status(&store, &subject).await.cause(), pb::Cause::Unhealthy);
    // A hard cause takes the last one all the same.
    let hard = verdict(&channel(two.channel_id), pb::Cause::Quota, head(&store).await);
    assert_eq!(report_one(&store, hard).await, dp::Disposition::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_named_channels_are_claimed_with_what_lies_beneath_them() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let two = create(&store, spec("two"), &["sk-0123456789abcde2"]).await;
    for c in [&one, &two] {
        report_one(&store, verdict(&key(c.credential_ids[0]), pb::Cause::Credential, 2)).await;
    }
    let named = Claim::Channels(vec![ChannelId(two.channel_id)]);
    let dry = store.claim_probes(&named, true).await.unwrap();
    assert_eq!((dry.len(), dry[0].lease), (1, uuid::Uuid::nil()));
    let leases = store.claim_probes(&named, false).await.unwrap();
    assert_eq!(leases[0].subject, key(two.credential_ids[0]));
    let rest = store.claim_probes(&Claim::All, false).await.unwrap();
    assert_eq!(rest.len(), 1, "what is leased is not claimed twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_automatic_disabling_switched_off_during_the_probe_is_heeded() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let subject = key(one.credential_ids[0]);
    let unproven = dp::Verdict { confirm: true, ..verdict(&subject, pb::Cause::Credential, 1) };
    assert_eq!(report_one(&store, unproven).await, dp::Disposition::Pending);
    let lease = claim(&store).await.pop().unwrap();
    let mut by_hand = one.clone();
    by_hand.auto_disable = Some(false);
    update(&store, by_hand).await.unwrap();
    let result = store.finish_probe(&lease, &bad(Cause::Credential)).await.unwrap();
    assert!(matches!(result, ProbeResult::Unchanged(_)), "{result:?}");
    assert_ne!(status(&store, &subject).await.state(), pb::ServingState::Disabled);
    make_due(&store).await;
    assert!(claim(&store).await.is_empty(), "the claim is forgotten");
}
