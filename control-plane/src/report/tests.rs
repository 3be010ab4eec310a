use std::sync::Arc;
use std::time::{Duration, Instant};

use spareline_core::{CredentialId, Subject};
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::dataplane::v1::report_service_server::ReportService as _;
use spareline_proto::registry::v1 as pb;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tonic::{Code, Request};
use tonic_types::StatusExt;
use uuid::Uuid;

use super::{ReportService, verdicts};
use crate::testing::{Registry, cause};

fn verdict() -> dp::Verdict {
    dp::Verdict {
        verdict_id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
        subject: Some(pb::Subject { kind: Some(pb::subject::Kind::CredentialId(1)) }),
        cause: pb::Cause::Credential.into(),
        observed_revision: 1,
        ..Default::default()
    }
}

fn batch(verdicts: Vec<dp::Verdict>) -> dp::ReportVerdictsRequest {
    dp::ReportVerdictsRequest { proxy_id: "proxy-1".into(), verdicts, epoch: String::new() }
}

fn fields(batch: dp::ReportVerdictsRequest) -> Vec<String> {
    let status = verdicts::check(batch).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let bad = status.get_details_bad_request().expect("every refusal names its fields");
    bad.field_violations.into_iter().map(|v| v.field).collect()
}

#[test]
fn part7_every_mistake_of_a_batch_is_named() {
    assert!(verdicts::check(batch(vec![verdict()])).is_ok());
    let wrong = dp::Verdict {
        verdict_id: "one".into(),
        subject: Some(pb::Subject { kind: Some(pb::subject::Kind::CredentialId(-1)) }),
        cause: 99,
        observed_revision: -1,
        age: Some(prost_types::Duration { seconds: -1, nanos: 0 }),
        ..Default::default()
    };
    let mut both = batch(vec![verdict(), wrong]);
    both.proxy_id.clear();
    let found = ["verdict_id", "subject", "cause", "observed_revision", "age"];
    let mut expected = vec!["proxy_id".to_owned()];
    expected.extend(found.map(|field| format!("verdicts[1].{field}")));
    assert_eq!(fields(both), expected);
    assert_eq!(fields(batch(vec![verdict(); verdicts::MAX_VERDICTS + 1])), ["verdicts"]);
}

#[test]
fn part7_long_evidence_is_cut_not_refused() {
    let excerpt = "é".repeat(400) + "\0";
    let long = dp::Verdict {
        evidence: Some(pb::Evidence { excerpt, rule_id: "r\0".into(), ..Default::default() }),
        ..verdict()
    };
    let taken = verdicts::check(batch(vec![long])).unwrap();
    let evidence = taken.verdicts[0].evidence.as_ref().unwrap();
    assert_eq!(evidence.excerpt, "é".repeat(128));
    assert_eq!(evidence.rule_id, "r");
}

#[test]
fn part9_what_a_proxy_left_in_an_excerpt_is_redacted() {
    let excerpt = "Incorrect API key provided: sk-canary-1234.".to_owned();
    let told = dp::Verdict { evidence: Some(pb::Evidence { excerpt, ..Default::default() }), ..verdict() };
    let taken = verdicts::check(batch(vec![told])).unwrap();
    let excerpt = &taken.verdicts[0].evidence.as_ref().unwrap().excerpt;
    assert_eq!(excerpt, "Incorrect API key provided: <redacted>.");
}

/// A batch of one: this key is dead.
fn dead(registry: &Registry, proxy: usize, key: i64) -> dp::ReportVerdictsRequest {
    let world = registry.worlds.current().unwrap();
    let verdict = dp::Verdict {
        verdict_id: Uuid::now_v7().to_string(),
        subject: Some(pb::Subject { kind: Some(pb::subject::Kind::CredentialId(key)) }),
        observed_revision: world.revision.0,
        ..verdict()
    };
    let epoch = world.epoch.to_string();
    dp::ReportVerdictsRequest { proxy_id: format!("proxy-{proxy}"), verdicts: vec![verdict], epoch }
}

fn service(registry: &Registry) -> ReportService {
    let prober = registry.prober();
    ReportService::new(registry.store.clone(), registry.worlds.clone(), prober)
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_a_thousand_proxies_report_one_dead_key_and_one_write_follows() {
    let registry = Registry::new().await;
    let channel = registry.channel("one", "http://127.0.0.1:9/v1", &["m"], &["sk-1"]).await;
    let key = channel.credential_ids[0];
    let reports = Arc::new(service(&registry));
    let started = Instant::now();
    let calls: Vec<_> = (0..1000)
        .map(|proxy| {
            let (reports, batch) = (reports.clone(), dead(&registry, proxy, key));
            tokio::spawn(
                async move { reports.report_verdicts(Request::new(batch)).await.unwrap().into_inner() },
            )
        })
        .collect();
    let mut applied = 0;
    for call in calls {
        match call.await.unwrap().results[0].disposition() {
            dp::Disposition::Applied => applied += 1,
            dp::Disposition::Already => {}
            other => panic!("{other:?}"),
        }
    }
    let answered = started.elapsed();
    assert_eq!(applied, 1);
    // The figure is for a release build on a quiet machine; this bound only catches a stall.
    assert!(answered < Duration::from_secs(20), "{answered:?}");
    let head = registry.store.head().await.unwrap();
    assert_eq!(head.revision, channel.spec_revision + 1, "one write");
    let world = registry.reached(head.revision).await;
    assert_eq!(cause(&world, &Subject::Credential(CredentialId(key))), Some(pb::Cause::Credential));
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_a_repeated_batch_gets_the_same_answer() {
    let registry = Registry::new().await;
    let channel = registry.channel("one", "http://127.0.0.1:9/v1", &["m"], &["sk-1"]).await;
    let batch = dead(&registry, 1, channel.credential_ids[0]);
    let reports = service(&registry);
    let first = reports.report_verdicts(Request::new(batch.clone())).await.unwrap().into_inner();
    assert_eq!(first.results[0].disposition(), dp::Disposition::Applied);
    let other = service(&Registry::replica(registry.database.clone()).await);
    let second = other.report_verdicts(Request::new(batch)).await.unwrap().into_inner();
    assert_eq!(first, second, "at any replica");
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_in_a_storm_too_a_repeated_batch_gets_the_same_answer() {
    let registry = Registry::new().await;
    let channel = registry.channel("one", "http://127.0.0.1:9/v1", &["m"], &["sk-1"]).await;
    let key = channel.credential_ids[0];
    let ours = dead(&registry, 1, key);
    let reports = service(&registry);
    let first = reports.report_verdicts(Request::new(ours.clone())).await.unwrap().into_inner();
    assert_eq!(first.results[0].disposition(), dp::Disposition::Applied);
    let world = registry.reached(first.results[0].status_revision).await;
    let now = &std::time::SystemTime::now().into();
    assert_eq!(super::screen::already(&world, &ours, now), None, "its answer may have been lost");
    let theirs = super::screen::already(&world, &dead(&registry, 2, key), now).expect("is known");
    assert_eq!(theirs[0].disposition(), dp::Disposition::Already);
    let mut weaker = dead(&registry, 2, key);
    weaker.verdicts[0].cause = pb::Cause::Quota.into();
    assert_eq!(super::screen::already(&world, &weaker, now), None, "it may have been applied before");
}

#[tokio::test(flavor = "multi_thread")]
async fn part7_a_lost_database_is_unavailable_and_counts_nothing() {
    let registry = Registry::new().await;
    let channel = registry.channel("one", "http://127.0.0.1:9/v1", &["m"], &["sk-1"]).await;
    let batch = dead(&registry, 1, channel.credential_ids[0]);
    let reports = service(&registry);
    let name = &registry.database.name;
    let admin = registry.database.options.clone().database("postgres");
    let mut admin = PgConnection::connect_with(&admin).await.unwrap();
    for sql in [
        format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"),
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"),
    ] {
        admin.execute(AssertSqlSafe(sql)).await.unwrap();
    }
    let refused = reports.report_verdicts(Request::new(batch.clone())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let sql = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true");
    admin.execute(AssertSqlSafe(sql)).await.unwrap();
    let answer = reports.report_verdicts(Request::new(batch)).await.unwrap().into_inner();
    assert_eq!(answer.results[0].disposition(), dp::Disposition::Applied);
}
