//! Part 7: what becomes of verdicts, whoever reports them, however often.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use spareline_proto::{
    admin::v1::{
        ChannelView, DisableSubjectRequest, EnableSubjectRequest, Event, ListEventsRequest,
        RotateCredentialRequest, SubjectName,
    },
    dataplane::v1::{
        Disposition, HealthTally, ReportHealthRequest, ReportVerdictsRequest, Verdict, VerdictResult,
    },
    registry::v1::{AbilityRef, Cause, Channel, Evidence, ServingState, Subject, subject::Kind},
};
use spareline_tests::{
    http::Call,
    provider::script::{Answer, Failure, KeyState, Rule},
    stack::{Control, Plan, SOON, Stack},
};

use crate::support::{LIMIT, MODEL, active, channel, demo, out_for};

const ALONE: Plan = Plan { proxies: 0, embedded: false, control: Vec::new(), proxy: Vec::new() };

/// The epoch and the newest revision.
async fn head(stack: &Stack) -> Result<(String, i64)> {
    let sql = "SELECT epoch::text, revision FROM registry_head";
    let mut database =
        <sqlx::PgConnection as sqlx::Connection>::connect_with(&stack.database()?.options).await?;
    Ok(sqlx::query_as::<_, (String, i64)>(sql).fetch_one(&mut database).await?)
}

fn of_credential(id: i64) -> Option<Subject> {
    Some(Subject { kind: Some(Kind::CredentialId(id)) })
}

fn verdict(subject: Option<Subject>, cause: Cause, observed: i64) -> Verdict {
    Verdict {
        verdict_id: uuid::Uuid::now_v7().to_string(),
        subject,
        cause: cause.into(),
        observed_revision: observed,
        evidence: Some(Evidence {
            http_status: 401,
            provider_code: "invalid_api_key".into(),
            rule_id: "test".into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

async fn report(control: &Control, epoch: &str, verdicts: &[Verdict]) -> Result<Vec<VerdictResult>> {
    let request =
        ReportVerdictsRequest { proxy_id: "p".into(), verdicts: verdicts.to_vec(), epoch: epoch.to_owned() };
    Ok(control.reports()?.report_verdicts(request).await?.into_inner().results)
}

fn dispositions(results: &[VerdictResult]) -> Vec<Disposition> {
    results.iter().map(VerdictResult::disposition).collect()
}

#[tokio::test]
async fn part07_dispositions_of_one_credential() -> Result<()> {
    let stack = Stack::start(ALONE).await?;
    let one = stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    stack.create(stack.channel("two", MODEL), &["sk-2"]).await?;
    let credential = one.credential_ids[0];
    let (epoch, revision) = head(&stack).await?;
    let dead = verdict(of_credential(credential), Cause::Credential, revision);
    let first = report(&stack.control, &epoch, std::slice::from_ref(&dead)).await?;
    assert_eq!(dispositions(&first), [Disposition::Applied]);
    let again = report(&stack.control, &epoch, std::slice::from_ref(&dead)).await?;
    assert_eq!(dispositions(&again), [Disposition::Applied], "the same id is the same verdict");
    assert_eq!(again[0].status_revision, first[0].status_revision, "a repeated report wrote again");

    let others = [
        verdict(of_credential(credential), Cause::Credential, revision),
        verdict(of_credential(credential), Cause::Quota, revision),
        verdict(of_credential(999_999), Cause::Credential, revision),
    ];
    let results = report(&stack.control, &epoch, &others).await?;
    let wanted = [Disposition::Already, Disposition::Already, Disposition::UnknownSubject];
    assert_eq!(dispositions(&results), wanted, "weaker or equal, and an unknown credential");
    assert!(results.iter().zip(&others).all(|(r, v)| r.verdict_id == v.verdict_id), "results out of order");

    let elsewhere = verdict(of_credential(credential), Cause::Credential, revision);
    let results = report(&stack.control, "00000000-0000-0000-0000-000000000000", &[elsewhere]).await?;
    assert_eq!(dispositions(&results), [Disposition::Stale], "another epoch");

    let enable = EnableSubjectRequest { subject: channel("one"), comment: "mended".into() };
    stack.control.channels()?.enable_subject(enable).await?;
    assert!(active(&stack.view("one").await?));
    let late = verdict(of_credential(credential), Cause::Credential, revision);
    let results = report(&stack.control, &epoch, &[late]).await?;
    assert_eq!(dispositions(&results), [Disposition::Stale], "observed before a human's enable");
    assert!(active(&stack.view("one").await?), "a stale verdict took it out");

    stack
        .control
        .channels()?
        .rotate_credential(RotateCredentialRequest {
            channel: "one".into(),
            secret: "sk-3".into(),
            ..Default::default()
        })
        .await?;
    let (_, revision) = head(&stack).await?;
    let retired = verdict(of_credential(credential), Cause::Credential, revision);
    assert_eq!(
        dispositions(&report(&stack.control, &epoch, &[retired]).await?),
        [Disposition::Stale],
        "a retired credential"
    );
    Ok(())
}

#[tokio::test]
async fn part07_stronger_causes_replace_weaker_ones_and_a_human_beats_all() -> Result<()> {
    let stack = Stack::start(ALONE).await?;
    let one = stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    stack.create(stack.channel("two", MODEL), &["sk-2"]).await?;
    let credential = one.credential_ids[0];
    let (epoch, revision) = head(&stack).await?;
    for cause in [Cause::Throttled, Cause::Quota, Cause::Credential] {
        let results =
            report(&stack.control, &epoch, &[verdict(of_credential(credential), cause, revision)]).await?;
        assert_eq!(dispositions(&results), [Disposition::Applied], "{cause:?}");
        assert_eq!(stack.view("one").await?.cause(), cause);
    }
    let subject =
        Some(SubjectName { channel: "one".into(), credential: Some(credential.to_string()), model: None });
    stack
        .control
        .channels()?
        .disable_subject(DisableSubjectRequest { subject, comment: String::new() })
        .await?;
    assert_eq!(stack.view("one").await?.cause(), Cause::Operator);
    let results =
        report(&stack.control, &epoch, &[verdict(of_credential(credential), Cause::Credential, revision)])
            .await?;
    assert_eq!(dispositions(&results), [Disposition::Already], "a machine against a human");
    Ok(())
}

#[tokio::test]
async fn part07_two_proxies_and_one_dead_key() -> Result<()> {
    let stack = demo(Plan { proxies: 2, ..Plan::default() }).await?;
    let met = stack.until(0, &Call::chat(MODEL), |r| r.attempts().contains("mock-bad-key")).await?;
    assert_eq!(met.attempts(), "mock-bad-key:disable:401, mock-primary:ok:200");
    let view = stack.wait_for_view("mock-bad-key", SOON, |v| out_for(v, Cause::Credential)).await?;
    assert!(view.reason.contains("401") && view.reason.contains("invalid_api_key"), "{}", view.reason);
    let status = view.statuses.first().context("a status")?;
    assert!(status.actor.contains("proxy-1"), "who: {status:?}");
    let heard = |l: &spareline_tests::process::LogLine| {
        l.is("channel_disabled") && l.str("channel") == "mock-bad-key"
    };
    stack.proxies[1].process.wait_for_log(SOON, heard).await?;
    stack.provider.forget();
    for _ in 0..20 {
        let reply = Call::chat(MODEL).send(stack.proxies[1].http).await?;
        assert_eq!(reply.attempts(), "mock-primary:ok:200");
    }
    assert!(stack.provider.requests_of("sk-bad").is_empty(), "proxy 2 tried the dead key");
    Ok(())
}

#[tokio::test]
async fn part07_a_held_back_401_of_a_rotated_key_is_stale() -> Result<()> {
    let stack = demo(Plan::default()).await?;
    stack.provider.key("sk-bad", KeyState::Valid);
    stack.provider.rule(Rule::for_key("sk-bad", Answer::fail(Failure::InvalidApiKey)).held("late").times(1));
    let to = stack.http()?;
    let mut waiting = None;
    for _ in 0..40 {
        let request = tokio::spawn(async move { Call::chat(MODEL).send(to).await });
        let meets = |all: &[spareline_tests::provider::record::Record]| {
            all.last().is_some_and(|r| r.key.as_deref() == Some("sk-bad") || r.answer.end.is_some())
        };
        stack.provider.wait_until(SOON, meets).await?;
        if stack.provider.requests_of("sk-bad").is_empty() {
            request.await??;
            stack.provider.forget();
        } else {
            waiting = Some(request);
            break;
        }
    }
    let waiting = waiting.context("40 draws never met the channel")?;
    let rotate = RotateCredentialRequest {
        channel: "mock-bad-key".into(),
        secret: "sk-new".into(),
        ..Default::default()
    };
    stack.control.channels()?.rotate_credential(rotate).await?;
    stack.settled().await?;
    stack.provider.release("late");
    let reply = waiting.await??;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(reply.attempts().starts_with("mock-bad-key:disable:401"), "{}", reply.attempts());
    let mut database =
        <sqlx::PgConnection as sqlx::Connection>::connect_with(&stack.database()?.options).await?;
    let start = std::time::Instant::now();
    loop {
        let found: Vec<(String,)> =
            sqlx::query_as("SELECT disposition FROM verdicts").fetch_all(&mut database).await?;
        if let Some((disposition,)) = found.first() {
            assert!(disposition.to_lowercase().ends_with("stale"), "{disposition}");
            break;
        }
        ensure!(start.elapsed() < SOON, "the late verdict was never reported");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(active(&stack.view("mock-bad-key").await?), "the late 401 took the new key out");
    stack.until(0, &Call::chat(MODEL), |r| r.attempts() == "mock-bad-key:ok:200").await?;
    Ok(())
}

#[tokio::test]
async fn part07_what_a_caller_could_have_caused_is_confirmed_by_a_probe_first() -> Result<()> {
    let stack = demo(Plan::default()).await?;
    stack.provider.key("sk-bad", KeyState::Valid);
    // A 401 that names no key: the prober asks, and its own answer is good.
    stack.provider.rule(Rule::for_key("sk-bad", Answer::fail(Failure::BareUnauthorized)).times(1));
    stack.until(0, &Call::chat(MODEL), |r| r.attempts().contains("mock-bad-key:disable:401")).await?;
    let probed = |all: &[spareline_tests::provider::record::Record]| {
        all.iter().any(|r| r.key.as_deref() == Some("sk-bad") && r.answer.status == Some(200))
    };
    stack.provider.wait_until(SOON, probed).await?;
    assert!(active(&stack.view("mock-bad-key").await?), "taken out without proof");
    // And now the probe is refused too.
    stack.provider.rule(Rule::for_key("sk-bad", Answer::fail(Failure::BareUnauthorized)));
    stack.until(0, &Call::chat(MODEL), |r| r.attempts().contains("mock-bad-key:disable:401")).await?;
    stack.wait_for_view("mock-bad-key", SOON, |v| out_for(v, Cause::Credential)).await?;
    Ok(())
}

#[tokio::test]
async fn part07_five_soft_failures_ask_for_a_probe_and_only_its_failure_counts() -> Result<()> {
    let stack = Stack::start(ALONE).await?;
    let fine = stack.create(stack.quick_channel("fine", MODEL, LIMIT), &["sk-fine"]).await?;
    let broken = stack.create(stack.quick_channel("broken", MODEL, LIMIT), &["sk-broken"]).await?;
    let (epoch, revision) = head(&stack).await?;
    let send = async |channel: &Channel, failures: u32| -> Result<()> {
        let credential_id = channel.credential_ids.first().copied();
        let ability = AbilityRef { channel_id: channel.channel_id, model: MODEL.into(), credential_id };
        let tally = HealthTally {
            subject: Some(Subject { kind: Some(Kind::Ability(ability)) }),
            failures,
            trailing_failures: failures,
            observed_revision: revision,
            spec_revision: channel.spec_revision,
            ..Default::default()
        };
        let batch_id = uuid::Uuid::now_v7().to_string();
        let request = ReportHealthRequest {
            proxy_id: "p".into(),
            batch_id,
            tallies: vec![tally],
            epoch: epoch.clone(),
        };
        stack.control.reports()?.report_health(request).await?;
        Ok(())
    };
    send(&fine, 3).await?;
    let degraded = |v: &ChannelView| v.statuses.iter().any(|s| s.degraded);
    assert!(active(&stack.wait_for_view("fine", SOON, degraded).await?), "degraded is still routed");
    assert!(stack.provider.requests().is_empty(), "probed at three");
    send(&fine, 2).await?;
    stack.provider.wait_until(SOON, |all| all.iter().any(|r| r.key.as_deref() == Some("sk-fine"))).await?;
    let view = stack.wait_for_view("fine", SOON, |v| !degraded(v)).await?;
    assert!(
        view.statuses.iter().all(|s| s.cause() != Cause::Unhealthy),
        "a good probe condemned it: {view:?}"
    );

    stack.provider.rule(Rule::for_key("sk-broken", Answer::fail(Failure::ServerError)));
    send(&broken, 5).await?;
    let unhealthy = |v: &ChannelView| {
        v.statuses.iter().any(|s| s.cause() == Cause::Unhealthy && s.state() != ServingState::Active)
    };
    stack.wait_for_view("broken", SOON, unhealthy).await?;
    Ok(())
}

/// What the event log says about a subject, replayed: whether it is out, and why.
fn replay(events: &[Event]) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for event in events {
        let subject = format!("{:?}", event.subject);
        let detail: serde_json::Value = serde_json::from_str(&event.detail).unwrap_or_default();
        match event.kind.as_str() {
            "subject.auto_disabled" | "subject.disabled" | "subject.throttled" => {
                out.insert(subject, detail["status"]["cause"].as_str().unwrap_or_default().to_owned());
            }
            "subject.enabled" | "subject.auto_enabled" | "subject.recovered" => {
                out.remove(&subject);
            }
            _ => {}
        }
    }
    out
}

async fn all_events(stack: &Stack) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListEventsRequest { page_size: 1000, page_token, ..Default::default() };
        let page = stack.control.channels()?.list_events(request).await?.into_inner();
        events.extend(page.events);
        if page.next_page_token.is_empty() {
            events.reverse();
            return Ok(events);
        }
        page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn part07_a_thousand_verdicts_enables_and_rotations_at_two_control_planes() -> Result<()> {
    const CHANNELS: usize = 8;
    let stack = Stack::start(ALONE).await?;
    let other =
        Control::start("control-2", ["--database-url".to_owned(), stack.database()?.url.clone()]).await?;
    let replicas = [&stack.control, &other];
    // Out of the budget's way: it is not what is tried here.
    let fleet = spareline_proto::registry::v1::FleetPolicy {
        budget_percent: Some(100),
        budget_min: Some(1000),
        ..Default::default()
    };
    let policy = Some(spareline_proto::registry::v1::Policy { fleet: Some(fleet), ..Default::default() });
    let update_mask = Some(prost_types::FieldMask { paths: vec!["fleet".into()] });
    let update =
        spareline_proto::admin::v1::UpdatePolicyRequest { policy, update_mask, validate_only: false };
    stack.control.policies()?.update_policy(update).await?;
    let mut credentials = Vec::new();
    for n in 0..CHANNELS {
        let created = stack.create(stack.channel(&format!("c{n}"), MODEL), &[&format!("sk-{n}")]).await?;
        credentials.push(created.credential_ids[0]);
    }
    let (epoch, _) = head(&stack).await?;
    let mut rng = StdRng::seed_from_u64(7);
    let mut sent: Vec<Verdict> = Vec::new();
    let mut results: Vec<(Verdict, VerdictResult)> = Vec::new();
    while sent.len() < 1000 {
        let n = rng.random_range(0..CHANNELS);
        match rng.random_range(0..20) {
            0 => {
                let subject = channel(&format!("c{n}"));
                let enable = EnableSubjectRequest { subject, comment: String::new() };
                replicas[rng.random_range(0..2)].channels()?.enable_subject(enable).await?;
            }
            1 => {
                let secret = format!("sk-{}", uuid::Uuid::new_v4());
                let rotate =
                    RotateCredentialRequest { channel: format!("c{n}"), secret, ..Default::default() };
                let rotated = replicas[rng.random_range(0..2)]
                    .channels()?
                    .rotate_credential(rotate)
                    .await?
                    .into_inner();
                credentials.push(rotated.credential.context("a credential")?.credential_id);
            }
            _ => {
                let (_, revision) = head(&stack).await?;
                let mut batch = Vec::new();
                for _ in 0..rng.random_range(5..25) {
                    let repeat = !sent.is_empty() && rng.random_bool(0.3);
                    let fresh = || {
                        let credential = credentials[(n * 7 + sent.len()) % credentials.len()];
                        let cause =
                            if sent.len().is_multiple_of(3) { Cause::Quota } else { Cause::Credential };
                        verdict(
                            of_credential(credential),
                            cause,
                            revision - i64::try_from(sent.len() % 3).unwrap_or(0),
                        )
                    };
                    let verdict =
                        if repeat { sent[rng.random_range(0..sent.len())].clone() } else { fresh() };
                    sent.push(verdict.clone());
                    batch.push(verdict);
                }
                // The same batch at both at once, half of the time.
                let both = rng.random_bool(0.5);
                let (first, second) = tokio::join!(report(replicas[0], &epoch, &batch), async {
                    if both { report(replicas[1], &epoch, &batch).await } else { Ok(Vec::new()) }
                });
                for answers in [first?, second?] {
                    results.extend(batch.iter().cloned().zip(answers));
                }
            }
        }
    }
    let mut by_id = BTreeMap::new();
    for (verdict, result) in &results {
        let earlier = by_id.insert(verdict.verdict_id.clone(), result.disposition());
        assert!(
            earlier.is_none_or(|d| d == result.disposition()),
            "one verdict, two answers: {earlier:?} and {result:?}"
        );
    }
    // At most one APPLIED per (subject, cause, fence): each writes a status revision of its own.
    let mut applied = BTreeMap::<(String, i32, i64), BTreeSet<String>>::new();
    for (verdict, result) in results.iter().filter(|(_, r)| r.disposition() == Disposition::Applied) {
        let key = (format!("{:?}", verdict.subject), verdict.cause, result.status_revision);
        applied.entry(key).or_default().insert(verdict.verdict_id.clone());
    }
    assert!(!applied.is_empty(), "nothing was applied at all");
    for (key, ids) in &applied {
        assert_eq!(ids.len(), 1, "{key:?} was applied by several: {ids:?}");
    }
    let sql = "SELECT count(*) FROM (SELECT 1 FROM verdicts WHERE disposition ILIKE '%applied' \
               GROUP BY subject_kind, subject_id, model, credential_id, cause, fence_revision HAVING count(*) > 1) AS twice";
    let mut database =
        <sqlx::PgConnection as sqlx::Connection>::connect_with(&stack.database()?.options).await?;
    let (twice,): (i64,) = sqlx::query_as(sql).fetch_one(&mut database).await?;
    assert_eq!(twice, 0, "(subject, cause, fence) applied twice");

    let replayed = replay(&all_events(&stack).await?);
    let mut stored = BTreeMap::new();
    for n in 0..CHANNELS {
        for status in stack.view(&format!("c{n}")).await?.statuses {
            if status.state() != ServingState::Active {
                let cause = status.cause().as_str_name().trim_start_matches("CAUSE_").to_lowercase();
                stored.insert(format!("{:?}", status.subject), cause);
            }
        }
    }
    let live: BTreeSet<&String> = stored.keys().collect();
    let replayed: BTreeMap<_, _> = replayed.iter().filter(|(s, _)| live.contains(s)).collect();
    assert_eq!(replayed, stored.iter().collect::<BTreeMap<_, _>>(), "rows and the event log disagree");
    Ok(())
}
