//! Part 7: dispositions, fences, idempotency, budget, at the store.

use std::time::Duration;

use super::*;

fn seconds(s: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds: s, nanos: 0 })
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_each_disposition_has_its_reason() {
    let (_db, store) = fresh().await;
    let mut careful = spec("careful");
    careful.auto_disable = Some(false);
    let one =
        create(&store, spec("one"), &["sk-0123456789abcde1", "sk-0123456789abcde2", "sk-0123456789abcde3"])
            .await;
    let careful = create(&store, careful, &["sk-0123456789abcde4"]).await;
    let now = head(&store).await;
    let k = |i: usize| key(one.credential_ids[i]);

    let dead = verdict(&k(0), pb::Cause::Credential, now);
    assert_eq!(report_one(&store, dead.clone()).await, dp::Disposition::Applied);
    let after = head(&store).await;
    assert_eq!(report_one(&store, dead).await, dp::Disposition::Applied, "the same id, the same answer");
    assert_eq!(head(&store).await, after, "and nothing happens");
    assert_eq!(
        report_one(&store, verdict(&k(0), pb::Cause::Credential, now)).await,
        dp::Disposition::Already
    );
    assert_eq!(report_one(&store, verdict(&k(0), pb::Cause::Quota, now)).await, dp::Disposition::Already);
    assert_eq!(
        report_one(&store, verdict(&key(9999), pb::Cause::Quota, now)).await,
        dp::Disposition::UnknownSubject
    );
    let gone = ability(one.channel_id, "never-offered", None);
    assert_eq!(report_one(&store, verdict(&gone, pb::Cause::Throttled, now)).await, dp::Disposition::Stale);
    let local = verdict(&key(careful.credential_ids[0]), pb::Cause::Credential, now);
    assert_eq!(report_one(&store, local).await, dp::Disposition::Local);

    let unproven = dp::Verdict { confirm: true, ..verdict(&k(1), pb::Cause::Credential, now) };
    assert_eq!(report_one(&store, unproven).await, dp::Disposition::Pending);
    let old = dp::Verdict { age: seconds(301), ..verdict(&k(2), pb::Cause::Quota, now) };
    assert_eq!(report_one(&store, old).await, dp::Disposition::Pending);
    let model = verdict(&ability(one.channel_id, "gpt-4o-mini", None), pb::Cause::ModelUnavailable, now);
    assert_eq!(report_one(&store, model).await, dp::Disposition::Pending);
    assert_eq!(head(&store).await, after, "what waits for a probe is no change of the registry");
    assert_eq!(status(&store, &k(1)).await.state(), pb::ServingState::Unspecified);

    let foreign = dp::ReportVerdictsRequest {
        proxy_id: "proxy-1".into(),
        verdicts: vec![verdict(&k(1), pb::Cause::Credential, now)],
        epoch: uuid::Uuid::new_v4().to_string(),
    };
    assert_eq!(
        store.apply_verdicts(&foreign).await.unwrap().results[0].disposition(),
        dp::Disposition::Stale
    );
    let future = verdict(&k(1), pb::Cause::Credential, head(&store).await + 1);
    assert_eq!(report_one(&store, future).await, dp::Disposition::Stale, "of a history that is not ours");
    let human = verdict(&k(1), pb::Cause::Operator, now);
    assert_eq!(report_one(&store, human).await, dp::Disposition::Stale, "no proxy speaks for an operator");

    let out = status(&store, &k(0)).await;
    assert_eq!(out.actor, "proxy:proxy-1");
    assert_eq!(out.reason, "401 invalid_api_key");
    assert_eq!(out.evidence.unwrap().rule_id, "openai.invalid_api_key");
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_throttles_extend_never_shorten_and_small_extensions_are_not_written() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let subject = key(one.credential_ids[0]);
    let throttle =
        |wait| dp::Verdict { retry_after: seconds(wait), ..verdict(&subject, pb::Cause::Throttled, 1) };
    let until = || async {
        let retry_at = status(&store, &subject).await.retry_at.unwrap();
        let now = store.ping().await.unwrap().unix_timestamp();
        retry_at.seconds - now
    };
    assert_eq!(report_one(&store, throttle(100)).await, dp::Disposition::Applied);
    assert!(status(&store, &subject).await.hinted);
    assert_eq!(report_one(&store, throttle(30)).await, dp::Disposition::Already);
    assert_eq!(report_one(&store, throttle(105)).await, dp::Disposition::Already, "under a tenth");
    assert!((98..=100).contains(&until().await));
    assert_eq!(report_one(&store, throttle(200)).await, dp::Disposition::Applied);
    assert!((198..=200).contains(&until().await));
    assert_eq!(report_one(&store, throttle(86_400)).await, dp::Disposition::Applied);
    assert!((898..=900).contains(&until().await), "a hint of a day is not believed");
    assert_eq!(report_one(&store, throttle(0)).await, dp::Disposition::Stale, "its time is over");
    // A stronger cause replaces it; the weaker one no longer counts.
    assert_eq!(report_one(&store, verdict(&subject, pb::Cause::Quota, 1)).await, dp::Disposition::Applied);
    assert_eq!(report_one(&store, throttle(500)).await, dp::Disposition::Already);
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_a_throttle_that_is_over_is_tidied_and_the_ability_is_back() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let subject = key(one.credential_ids[0]);
    let hint = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let short = dp::Verdict { retry_after: hint, ..verdict(&subject, pb::Cause::Throttled, 1) };
    assert_eq!(report_one(&store, short).await, dp::Disposition::Applied);
    assert!(!enabled_models(&store, one.channel_id).await[0].1);
    assert_eq!(store.tidy().await.unwrap(), 0);
    assert_eq!(store.next_probe_in().await.unwrap(), None, "time brings it back, not a probe");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let view = crate::decide::channel_view(
        &store.channel(&"one".into()).await.unwrap(),
        store.ping().await.unwrap(),
    );
    assert_eq!(view.state(), pb::ServingState::Active, "readers compare with the time");
    assert_eq!(store.tidy().await.unwrap(), 1);
    assert!(enabled_models(&store, one.channel_id).await[0].1);
    assert_eq!(status(&store, &subject).await.state(), pb::ServingState::Active);
    assert_eq!(store.tidy().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_a_batch_is_one_transaction_and_one_revision() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1", "sk-0123456789abcde2"]).await;
    let before = head(&store).await;
    let twice = verdict(&key(one.credential_ids[0]), pb::Cause::Credential, before);
    let results = report(
        &store,
        vec![
            twice.clone(),
            verdict(&key(one.credential_ids[1]), pb::Cause::Quota, before),
            verdict(&key(one.credential_ids[0]), pb::Cause::Credential, before),
            twice,
        ],
    )
    .await;
    use dp::Disposition::{Already, Applied};
    let dispositions: Vec<_> = results.iter().map(dp::VerdictResult::disposition).collect();
    assert_eq!(dispositions, [Applied, Applied, Already, Applied]);
    assert_eq!(results[0].status_revision, before + 1);
    assert_eq!(head(&store).await, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_suppresses_what_is_too_much_at_once() {
    let (_db, store) = fresh().await;
    let secrets: Vec<String> = (0..6).map(|i| format!("sk-0123456789abcde{i}")).collect();
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let one = create(&store, spec("one"), &secrets).await;
    let dead = one.credential_ids.iter().map(|id| verdict(&key(*id), pb::Cause::Credential, 1)).collect();
    let epoch = store.head().await.unwrap().epoch.to_string();
    let batch = dp::ReportVerdictsRequest { proxy_id: "proxy-1".into(), verdicts: dead, epoch };
    let answer = store.apply_verdicts(&batch).await.unwrap();
    let count = |d| answer.results.iter().filter(|r| r.disposition() == d).count();
    assert_eq!((count(dp::Disposition::Applied), count(dp::Disposition::Suppressed)), (3, 3));
    assert!(answer.probe_now, "the prober looks at once");
    let alerts = events(&store).await.into_iter().filter(|e| e.kind == "verdict.suppressed").count();
    assert_eq!(alerts, 3);
    let due = store.claim_probes(&super::super::Claim::Due(10), false).await.unwrap();
    assert_eq!(due.len(), 3);
    // Throttles are no part of it.
    let throttled = verdict(&key(one.credential_ids[5]), pb::Cause::Throttled, 1);
    assert_eq!(report_one(&store, throttled).await, dp::Disposition::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_what_the_database_cannot_hold_does_not_keep_a_batch_from_being_counted() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let subject = key(one.credential_ids[0]);
    let mut odd = verdict(&subject, pb::Cause::Credential, 1);
    odd.evidence.as_mut().unwrap().excerpt = "no\0 such key".into();
    let nowhere = verdict(&ability(one.channel_id, "gp\0t", None), pb::Cause::Throttled, 1);
    let mut nameless = verdict(&subject, pb::Cause::Quota, 1);
    nameless.verdict_id = "not a uuid".into();
    let answers: Vec<_> = report(&store, vec![odd, nowhere, nameless])
        .await
        .iter()
        .map(dp::VerdictResult::disposition)
        .collect();
    use dp::Disposition::{Applied, UnknownSubject};
    assert_eq!(answers, [Applied, UnknownSubject, UnknownSubject]);
    assert_eq!(status(&store, &subject).await.reason, "401 invalid_api_key: no such key");
    let mut named = spec("nul");
    named.display_name = "a\0b".into();
    named.models[0].model = "a\0b".into();
    let refused = write(&store, |tx| Box::pin(async move { tx.create_channel(named, &[]).await })).await;
    assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
}
