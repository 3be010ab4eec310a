//! The prober against a provider that answers as it is told, over a real database.

mod provider;

use std::sync::Arc;
use std::time::Duration;

use spareline_core::{ChannelId, CredentialId, Subject, convert};
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::registry::v1 as pb;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Prober;
use crate::testing::{Registry, cause};
use provider::Provider;

const OK: &str = r#"{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#;
const MODELS: &str = r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#;
const DEAD_KEY: &str = r#"{"error":{"message":"Incorrect API key provided: sk-x.","type":"invalid_request_error","code":"invalid_api_key","param":null}}"#;
const NO_MODEL: &str = r#"{"error":{"message":"The model `m` does not exist","type":"invalid_request_error","code":"model_not_found","param":null}}"#;
const LIMITED: &str = r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded","param":null}}"#;
const PICKY: &str = r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model.","type":"invalid_request_error","code":"unsupported_parameter","param":"max_tokens"}}"#;

/// Reports one verdict; what became of it.
async fn report(
    registry: &Registry,
    subject: &Subject,
    cause: pb::Cause,
    confirm: bool,
) -> (dp::Disposition, bool) {
    let world = registry.worlds.current().unwrap();
    let verdict = dp::Verdict {
        verdict_id: Uuid::now_v7().to_string(),
        subject: Some(convert::subject_ref(subject)),
        cause: cause.into(),
        observed_revision: world.revision.0,
        evidence: Some(pb::Evidence { http_status: 401, excerpt: "no".into(), ..Default::default() }),
        confirm,
        ..Default::default()
    };
    let batch = dp::ReportVerdictsRequest {
        proxy_id: "proxy-1".into(),
        verdicts: vec![verdict],
        epoch: world.epoch.to_string(),
    };
    let answer = registry.store.apply_verdicts(&batch).await.unwrap();
    if let Some(revision) = answer.revision {
        registry.reached(revision).await;
    }
    (answer.results[0].disposition(), answer.probe_now)
}

/// Five failures in a row, as a proxy reports them.
async fn five_failures(registry: &Registry, subject: &Subject) -> bool {
    let world = registry.worlds.current().unwrap();
    let tally = dp::HealthTally {
        subject: Some(convert::subject_ref(subject)),
        failures: 5,
        trailing_failures: 5,
        observed_revision: world.revision.0,
        ..Default::default()
    };
    let batch = dp::ReportHealthRequest {
        proxy_id: "proxy-1".into(),
        batch_id: Uuid::now_v7().to_string(),
        tallies: vec![tally],
        epoch: world.epoch.to_string(),
    };
    registry.store.report_health(&batch).await.unwrap().probe_now
}

fn key_of(channel: &pb::Channel) -> Subject {
    Subject::Credential(CredentialId(channel.credential_ids[0]))
}

fn ability_of(channel: &pb::Channel, model: &str) -> Subject {
    Subject::Ability { channel: ChannelId(channel.channel_id), model: model.into(), credential: None }
}

async fn kill(registry: &Registry, channel: &pb::Channel) -> Subject {
    let key = key_of(channel);
    let answered = report(registry, &key, pb::Cause::Credential, false).await;
    assert_eq!(answered, (dp::Disposition::Applied, false));
    key
}

struct Running {
    prober: Arc<Prober>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    /// As a crash: nothing is finished.
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn start(registry: &Registry) -> Running {
    let prober = registry.prober();
    let task = tokio::spawn(prober.clone().run(CancellationToken::new()));
    Running { prober, task }
}

/// Lets a row fall due now, and ends leases: as time would.
async fn time_passes(registry: &Registry) {
    use sqlx::{Connection, Executor, PgConnection};
    let mut conn = PgConnection::connect_with(&registry.database.options).await.unwrap();
    let sql = "UPDATE statuses SET due_at = clock_timestamp(), retry_at = clock_timestamp(), \
               probe_lease_until = clock_timestamp() WHERE due_at IS NOT NULL";
    conn.execute(sql).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_probe_now_brings_back_what_answers_again() {
    let provider = Provider::always(401, DEAD_KEY).await;
    let registry = Registry::new().await;
    let channel = registry.channel("one", &provider.url, &["m"], &["sk-1"]).await;
    let healthy = registry.channel("two", &provider.url, &["m"], &["sk-2"]).await;
    let key = kill(&registry, &channel).await;
    let prober = registry.prober();

    let still = prober.probe_channels(&[], false).await.unwrap();
    assert_eq!((still.scanned, still.recovered.len(), still.still_disabled.len()), (1, 0, 1));
    let entry = &still.still_disabled[0];
    assert_eq!(entry.subject.as_ref().unwrap().channel, "one");
    assert!(entry.reason.starts_with("401"), "{}", entry.reason);
    let asked = &provider.asked()[0];
    assert_eq!((asked.path.as_str(), asked.key.as_str()), ("/v1/chat/completions", "sk-1"));
    assert_eq!((&asked.body["model"], &asked.body["max_tokens"]), (&"m".into(), &1.into()));

    provider.now_answers(200, OK);
    let dry = prober.probe_channels(&[], true).await.unwrap();
    assert_eq!((dry.scanned, dry.recovered), (1, vec!["one".to_owned()]));
    assert!(cause(&registry.worlds.current().unwrap(), &key).is_some(), "a dry run changes nothing");

    let healed = prober.probe_channels(&[ChannelId(channel.channel_id)], false).await.unwrap();
    assert_eq!((healed.scanned, healed.recovered), (1, vec!["one".to_owned()]));
    let world = registry.shows("the key is back", |w| cause(w, &key).is_none()).await;
    // A verdict from before is stale now.
    assert!(world.items.status(&key).unwrap().fence_revision > channel.spec_revision);

    let none = prober.probe_channels(&[ChannelId(healthy.channel_id)], false).await.unwrap();
    assert_eq!((none.scanned, none.recovered.len(), none.still_disabled.len()), (0, 0, 0));
    assert!(provider.asked().iter().all(|asked| asked.key == "sk-1"), "a healthy channel is never probed");
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_probe_now_says_why_a_named_channel_stays_out() {
    let provider = Provider::always(200, OK).await;
    let registry = Registry::new().await;
    let channel = registry.channel("one", &provider.url, &["m"], &["sk-1"]).await;
    let id = ChannelId(channel.channel_id);
    let revision = registry.disable(&Subject::Channel(id)).await;
    registry.reached(revision).await;
    let prober = registry.prober();
    let answer = prober.probe_channels(&[id], false).await.unwrap();
    assert_eq!((answer.scanned, answer.recovered.len()), (0, 0));
    assert!(answer.still_disabled[0].reason.contains("operator"), "{answer:?}");
    assert!(provider.asked().is_empty(), "what a human took out is not probed");
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_an_unproven_verdict_is_settled_by_a_probe_within_a_second() {
    let provider = Provider::new(|asked| match asked.key.as_str() {
        "sk-good" => (200, OK.to_owned()),
        _ => (401, DEAD_KEY.to_owned()),
    })
    .await;
    let registry = Registry::new().await;
    let good = registry.channel("good", &provider.url, &["m"], &["sk-good"]).await;
    let bad = registry.channel("bad", &provider.url, &["m"], &["sk-bad"]).await;
    let running = start(&registry);
    let started = std::time::Instant::now();
    for channel in [&good, &bad] {
        let answered = report(&registry, &key_of(channel), pb::Cause::Credential, true).await;
        assert_eq!(answered, (dp::Disposition::Pending, true));
    }
    running.prober.wake();
    let world = registry.shows("the bad key is out", |w| cause(w, &key_of(&bad)).is_some()).await;
    assert_eq!(cause(&world, &key_of(&bad)), Some(pb::Cause::Credential));
    let world = registry
        .shows("the good key is fenced", |w| {
            w.items.status(&key_of(&good)).is_some_and(|status| status.fence_revision > 0)
        })
        .await;
    assert_eq!(cause(&world, &key_of(&good)), None);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_a_prober_that_dies_leaves_nothing_behind() {
    let provider = Provider::always(200, OK).await;
    let registry = Registry::new().await;
    let channel = registry.channel("one", &provider.url, &["m"], &["sk-1"]).await;
    let key = kill(&registry, &channel).await;
    provider.hold.send(true).unwrap();
    time_passes(&registry).await;
    let first = start(&registry);
    provider.was_asked(1).await;
    drop(first);
    provider.hold.send(false).unwrap();

    // The lease still runs: nobody else asks meanwhile, and the stored state is not `probing`.
    let second = start(&registry);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(provider.asked().len(), 1);
    assert!(cause(&registry.worlds.current().unwrap(), &key).is_some());
    time_passes(&registry).await;
    second.prober.wake();
    registry.shows("the key is back", |w| cause(w, &key).is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_a_humans_word_during_the_probe_survives_it() {
    let provider = Provider::always(200, OK).await;
    let registry = Registry::new().await;
    let channel = registry.channel("one", &provider.url, &["m"], &["sk-1"]).await;
    let key = kill(&registry, &channel).await;
    provider.hold.send(true).unwrap();
    time_passes(&registry).await;
    let _running = start(&registry);
    provider.was_asked(1).await;
    let revision = registry.disable(&key).await;
    provider.hold.send(false).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let world = registry.reached(revision).await;
    assert_eq!(cause(&world, &key), Some(pb::Cause::Operator));
    assert_eq!(registry.worlds.current().unwrap().revision.0, revision, "the probe wrote nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_two_replicas_probe_once() {
    let provider = Provider::always(200, OK).await;
    let one = Registry::new().await;
    let channel = one.channel("one", &provider.url, &["m"], &["sk-1"]).await;
    let key = kill(&one, &channel).await;
    let two = Registry::replica(one.database.clone()).await;
    provider.hold.send(true).unwrap();
    let probers = [&one, &two].map(Registry::prober);
    let calls = probers.map(|p| tokio::spawn(async move { p.probe_channels(&[], false).await.unwrap() }));
    provider.was_asked(1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    provider.hold.send(false).unwrap();
    for call in calls {
        let answer = call.await.unwrap();
        assert_eq!((answer.scanned, answer.recovered), (1, vec!["one".to_owned()]));
    }
    assert_eq!(provider.asked().len(), 1);
    one.shows("the key is back", |w| cause(w, &key).is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_forms_are_tried_until_one_fits() {
    let provider = Provider::new(|asked| match asked.body.get("max_tokens") {
        Some(_) => (400, PICKY.to_owned()),
        None => (200, OK.to_owned()),
    })
    .await;
    let registry = Registry::new().await;
    let channel = registry.channel("one", &provider.url, &["m"], &["sk-1"]).await;
    kill(&registry, &channel).await;
    let prober = registry.prober();
    let answer = prober.probe_channels(&[], false).await.unwrap();
    assert_eq!(answer.recovered, ["one"]);
    let second = &provider.asked()[1];
    assert_eq!(second.body["max_completion_tokens"], 16);

    // A provider that refuses every form still lists its models.
    let stubborn = Provider::new(|asked| match asked.path.as_str() {
        "/v1/models" => (200, MODELS.to_owned()),
        _ => (400, PICKY.to_owned()),
    })
    .await;
    let channel = registry.channel("two", &stubborn.url, &["m"], &["sk-2"]).await;
    kill(&registry, &channel).await;
    let answer = prober.probe_channels(&[ChannelId(channel.channel_id)], false).await.unwrap();
    assert_eq!(answer.recovered, ["two"]);
    let paths: Vec<_> = stubborn.asked().into_iter().map(|asked| asked.path).collect();
    assert_eq!(paths.last().map(String::as_str), Some("/v1/models"));
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_outcomes_of_a_probe() {
    let provider = Provider::always(429, LIMITED).await;
    let registry = Registry::new().await;
    let channel = registry.channel("one", &provider.url, &["m"], &["sk-1"]).await;
    let key = kill(&registry, &channel).await;
    let prober = registry.prober();
    let answer = prober.probe_channels(&[], false).await.unwrap();
    assert_eq!((answer.scanned, answer.recovered.len()), (1, 0));
    registry.shows("429: the key lives", |w| cause(w, &key) == Some(pb::Cause::Throttled)).await;

    // No response for a hard cause changes nothing.
    let gone = registry.channel("gone", "http://127.0.0.1:1/v1", &["m"], &["sk-2"]).await;
    let key = kill(&registry, &gone).await;
    let answer = prober.probe_channels(&[ChannelId(gone.channel_id)], false).await.unwrap();
    assert!(answer.still_disabled[0].reason.starts_with("inconclusive"), "{answer:?}");
    assert_eq!(cause(&registry.worlds.current().unwrap(), &key), Some(pb::Cause::Credential));
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_an_ability_is_probed_on_its_model() {
    let provider = Provider::new(|asked| match asked.body["model"].as_str() {
        Some("m") => (404, NO_MODEL.to_owned()),
        _ => (200, OK.to_owned()),
    })
    .await;
    let registry = Registry::new().await;
    let channel = registry.channel("one", &provider.url, &["m", "n"], &["sk-1"]).await;
    let running = start(&registry);
    let missing = ability_of(&channel, "m");
    assert_eq!(
        report(&registry, &missing, pb::Cause::ModelUnavailable, true).await,
        (dp::Disposition::Pending, true)
    );
    running.prober.wake();
    registry.shows("the model is out", |w| cause(w, &missing) == Some(pb::Cause::ModelUnavailable)).await;

    // A lie about the other model is refuted.
    let there = ability_of(&channel, "n");
    report(&registry, &there, pb::Cause::ModelUnavailable, true).await;
    running.prober.wake();
    let world = registry
        .shows("the lie is fenced out", |w| w.items.status(&there).is_some_and(|s| s.fence_revision > 0))
        .await;
    assert_eq!(cause(&world, &there), None);
    provider.now_answers(200, OK);
    assert_eq!(running.prober.probe_channels(&[], false).await.unwrap().recovered, ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_five_failures_ask_and_only_a_failed_probe_takes_out() {
    let provider = Provider::always(200, OK).await;
    let registry = Registry::new().await;
    let failing = registry.channel("failing", &provider.url, &["m"], &["sk-1"]).await;
    let spare = Provider::always(200, OK).await;
    registry.channel("spare", &spare.url, &["m"], &["sk-2"]).await;
    let subject = ability_of(&failing, "m");
    let running = start(&registry);

    assert!(five_failures(&registry, &subject).await);
    running.prober.wake();
    provider.was_asked(1).await;
    let world = registry
        .shows("the suspicion is over", |w| w.items.status(&subject).is_some_and(|s| s.fence_revision > 0))
        .await;
    assert_eq!(cause(&world, &subject), None, "it answers here: the proxy's network is to blame");

    provider.now_answers(503, r#"{"error":{"message":"down"}}"#);
    time_passes(&registry).await;
    let mut conn =
        <sqlx::PgConnection as sqlx::Connection>::connect_with(&registry.database.options).await.unwrap();
    sqlx::Executor::execute(&mut conn, "UPDATE statuses SET last_probed_at = NULL").await.unwrap();
    assert!(five_failures(&registry, &subject).await);
    running.prober.wake();
    registry.shows("it is unhealthy", |w| cause(w, &subject) == Some(pb::Cause::Unhealthy)).await;

    // Any answer below 500 brings it back.
    provider.now_answers(401, DEAD_KEY);
    let answer = running.prober.probe_channels(&[], false).await.unwrap();
    assert_eq!(answer.recovered, ["failing"]);
    assert!(!spare.asked().iter().any(|asked| asked.path.contains("chat")), "the spare line is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_the_last_active_line_stays() {
    let registry = Registry::new().await;
    let only = registry.channel("only", "http://127.0.0.1:1/v1", &["m"], &["sk-1"]).await;
    let elsewhere = Provider::always(200, OK).await;
    registry.channel("other", &elsewhere.url, &["n"], &["sk-2"]).await;
    let subject = Subject::Channel(ChannelId(only.channel_id));
    let running = start(&registry);
    assert!(five_failures(&registry, &subject).await);
    running.prober.wake();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let world = registry.worlds.current().unwrap();
    assert_eq!(cause(&world, &subject), None);
    assert!(world.items.status(&subject).is_some_and(|status| status.degraded), "but it is flagged");
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_automatic_enabling_off_leaves_it_to_a_human() {
    let provider = Provider::always(200, OK).await;
    let registry = Registry::new().await;
    let fleet = pb::FleetPolicy { auto_enable: Some(false), ..Default::default() };
    let revision = registry.policy(pb::Policy { fleet: Some(fleet), ..Default::default() }).await;
    registry.reached(revision).await;
    let channel = registry.channel("one", &provider.url, &["m"], &["sk-1"]).await;
    let key = kill(&registry, &channel).await;
    let prober = registry.prober();
    let answer = prober.probe_channels(&[], false).await.unwrap();
    assert_eq!((answer.scanned, answer.recovered.len()), (1, 0));
    assert!(answer.still_disabled[0].reason.contains("human"), "{answer:?}");
    assert!(cause(&registry.worlds.current().unwrap(), &key).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_a_channel_of_pictures_is_probed_for_free() {
    let provider = Provider::new(|asked| match asked.path.as_str() {
        "/v1/models" => (200, MODELS.to_owned()),
        _ => (500, String::new()),
    })
    .await;
    let registry = Registry::new().await;
    let endpoints = vec![pb::Endpoint::Images.into()];
    let channel = pb::Channel {
        name: "pictures".into(),
        provider: "openai_compatible".into(),
        base_url: provider.url.clone(),
        models: vec![pb::ModelEntry { model: "dall-e-3".into(), ..Default::default() }],
        endpoints,
        ..Default::default()
    };
    let channel = registry.create(channel, &["sk-1"]).await;
    kill(&registry, &channel).await;
    let prober = registry.prober();
    assert_eq!(prober.probe_channels(&[], false).await.unwrap().recovered, ["pictures"]);
    assert_eq!(provider.asked().iter().map(|a| a.path.as_str()).collect::<Vec<_>>(), ["/v1/models"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_a_key_can_be_asked_about_before_it_is_stored() {
    use crate::admin::{Probing, Verified};
    use spareline_core::secret::Secret;

    let provider = Provider::new(|asked| match asked.key.as_str() {
        "sk-good" => (200, OK.to_owned()),
        _ => (401, DEAD_KEY.to_owned()),
    })
    .await;
    let registry = Registry::new().await;
    let channel = registry.channel("one", &provider.url, &["m"], &["sk-good"]).await;
    let prober = registry.prober();
    assert_eq!(prober.verify(channel.clone(), Secret::new("sk-good")).await, Verified::Good);
    assert!(matches!(prober.verify(channel, Secret::new("sk-bad")).await, Verified::Rejected(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn part8_a_key_whose_models_are_gone_is_asked_for_the_list() {
    let provider = Provider::new(|asked| match asked.path.as_str() {
        "/v1/models" => (200, MODELS.to_owned()),
        _ => (404, NO_MODEL.to_owned()),
    })
    .await;
    let registry = Registry::new().await;
    let channel = registry.channel("one", &provider.url, &["m"], &["sk-1"]).await;
    let key = kill(&registry, &channel).await;
    let prober = registry.prober();
    assert_eq!(prober.probe_channels(&[], false).await.unwrap().recovered, ["one"]);
    registry.shows("the key is back", |w| cause(w, &key).is_none()).await;
    // Of money it says nothing.
    report(&registry, &key, pb::Cause::Quota, false).await;
    assert!(prober.probe_channels(&[], false).await.unwrap().recovered.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_an_unproven_verdict_does_not_wait_behind_upstreams_that_hang() {
    let hanging = Provider::always(200, OK).await;
    hanging.hold.send(true).unwrap();
    let provider = Provider::always(401, DEAD_KEY).await;
    let registry = Registry::new().await;
    let running = start(&registry);
    for i in 0..super::AT_ONCE + 2 {
        let key = format!("sk-{i}");
        let channel = registry.channel(&format!("held-{i}"), &hanging.url, &["m"], &[&key]).await;
        report(&registry, &key_of(&channel), pb::Cause::Credential, true).await;
    }
    running.prober.wake();
    hanging.was_asked(super::AT_ONCE).await;
    let channel = registry.channel("one", &provider.url, &["m"], &["sk-one"]).await;
    report(&registry, &key_of(&channel), pb::Cause::Credential, true).await;
    running.prober.wake();
    let key = key_of(&channel);
    registry.shows("the dead key is out", |w| cause(w, &key) == Some(pb::Cause::Credential)).await;
}
