//! Several control planes over one database: changes reach everybody in time, work is done once, and builds may differ.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use spareline_proto::{
    admin::v1::{
        CreateRolloutRequest, ListChannelsRequest, ListProxiesRequest, ListRolloutsRequest, ProbeNowRequest,
        Rollout, Stage, UpdateChannelRequest, change, rollout_service_client::RolloutServiceClient,
    },
    dataplane::v1::{Disposition, ReportVerdictsRequest, Verdict},
    registry::v1::{Cause, Channel, Subject, subject},
};
use spareline_tests::{
    provider::script::KeyState,
    replicas::{Replica, Replicas},
    stack::SOON,
    watcher::Watcher,
};
use tokio::time::{Instant, sleep};

/// How soon a change is to be on every watcher.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Without a notification: the poll of 5 s, and a connection that has to be given up first.
const BY_POLL: Duration = Duration::from_secs(15);

/// Changes a channel through one replica; answers the revision.
async fn reweigh(fleet: &Replicas, replica: usize, name: &str, weight: u32) -> Result<i64> {
    let channel = Some(Channel { name: name.to_owned(), weight: Some(weight), ..Default::default() });
    let update_mask = Some(prost_types::FieldMask { paths: vec!["weight".to_owned()] });
    let request = UpdateChannelRequest { channel, update_mask, validate_only: false };
    let updated = fleet.admin(replica)?.update_channel(request).await?.into_inner();
    Ok(updated.channel.context("no channel in the answer")?.spec_revision)
}

/// Counts answers of the database.
async fn counts(fleet: &Replicas, query: &str) -> Result<BTreeMap<String, i64>> {
    let query = sqlx::query_as(sqlx::AssertSqlSafe(query.to_owned()));
    let rows: Vec<(String, i64)> = query.fetch_all(&mut fleet.database.connect().await?).await?;
    Ok(rows.into_iter().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_tell_their_watchers_within_a_second_and_again_after_notifications_were_lost() -> Result<()>
{
    let fleet = Replicas::start(3).await?;
    fleet.create(0, fleet.channel("one", "m"), &["sk-1"]).await?;
    let watchers = [1, 2].map(|n| Watcher::start(&format!("w{n}"), fleet.all[n].control.data));
    for watcher in &watchers {
        watcher.until(SOON, |seen| seen.frames > 0).await?;
    }
    let mut times = Vec::new();
    for weight in 1..=20 {
        let begun = Instant::now();
        let revision = reweigh(&fleet, 0, "one", weight).await?;
        for watcher in &watchers {
            watcher.reaches(revision, SOON).await?;
        }
        times.push(begun.elapsed());
    }
    times.sort();
    println!("a change was on every watcher after {times:?}");
    // All but two, for a machine that does something else meanwhile.
    assert!(times[17] < AT_ONCE, "{times:?}");

    // What listens is connected still, and hears nothing any more.
    fleet.all[1].database.forget();
    let revision = reweigh(&fleet, 0, "one", 100).await?;
    watchers[1].reaches(revision, SOON).await.context("the replica that is well")?;
    let begun = Instant::now();
    watchers[0].reaches(revision, BY_POLL).await.context("by the poll")?;
    println!("without its notification after {:?}", begun.elapsed());
    let sessions = watchers[0].seen().sessions;
    // It listens anew, so that the poll is no part of the next one.
    let begun = Instant::now();
    loop {
        let revision = reweigh(&fleet, 2, "one", 200).await?;
        if watchers[0].reaches(revision, AT_ONCE).await.is_ok() {
            break;
        }
        ensure!(begun.elapsed() < BY_POLL, "it stays deaf");
    }

    // Nobody is notified at all.
    fleet.database.sql("ALTER TABLE registry_head DISABLE TRIGGER registry_head_notify").await?;
    let revision = reweigh(&fleet, 0, "one", 300).await?;
    for watcher in &watchers {
        watcher.reaches(revision, BY_POLL).await.context("by the poll alone")?;
    }
    assert_eq!(watchers[0].seen().sessions, sessions, "a watcher had to dial again");
    assert_eq!(watchers.iter().flat_map(|w| w.seen().faults).collect::<Vec<_>>(), [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_do_probes_reports_and_rollout_steps_once() -> Result<()> {
    let mut fleet = Replicas::start(3).await?;
    fleet.add_proxies(3, &[]).await?;
    let mut verdicts = Vec::new();
    for n in 0..8 {
        let key = format!("sk-dead-{n}");
        fleet.provider.key(&key, KeyState::Dead);
        let channel = fleet.create(n % 3, fleet.channel(&format!("dead-{n}"), "m"), &[&key]).await?;
        let credential = *channel.credential_ids.first().context("a key")?;
        verdicts.push(Verdict {
            verdict_id: uuid::Uuid::now_v7().to_string(),
            subject: Some(Subject { kind: Some(subject::Kind::CredentialId(credential)) }),
            cause: Cause::Credential.into(),
            spec_revision: channel.spec_revision,
            ..Default::default()
        });
    }
    fleet.create(0, fleet.channel("steady", "m"), &["sk-steady"]).await?;
    let (revision, items) = fleet.agree(SOON).await?;
    verdicts.iter_mut().for_each(|verdict| verdict.observed_revision = revision);

    // The same batch at every replica at once.
    let epoch = fleet.database.registry("default").await?.0.epoch.to_string();
    let batch = ReportVerdictsRequest { proxy_id: "reporter".to_owned(), epoch, verdicts };
    let mut answers = Vec::new();
    for replica in &fleet.all {
        let (mut client, batch) = (replica.control.reports()?, batch.clone());
        answers.push(tokio::spawn(async move { client.report_verdicts(batch).await }));
    }
    let mut results = Vec::new();
    for answer in answers {
        results.push(answer.await??.into_inner().results);
    }
    assert!(results.windows(2).all(|two| two[0] == two[1]), "three answers to one report: {results:#?}");
    assert!(results[0].iter().any(|r| r.disposition() == Disposition::Applied), "{results:?}");
    assert_eq!(fleet.database.number("SELECT count(*) FROM verdicts").await?, 8);

    // What the budget held back is probed at once; then all are out, each by one event.
    let out = "SELECT 'out', count(*) FROM statuses WHERE state = 'disabled'";
    let begun = Instant::now();
    while counts(&fleet, out).await?["out"] < 8 {
        ensure!(begun.elapsed() < SOON, "not all are out: {:?}", fleet.database.registry("default").await?);
        sleep(Duration::from_millis(100)).await;
    }
    let events =
        "SELECT subject_id::text, count(*) FROM events WHERE kind = 'subject.auto_disabled' GROUP BY 1";
    let events = counts(&fleet, events).await?;
    assert!(events.len() == 8 && events.values().all(|count| *count == 1), "{events:?}");

    // All due at once, at three probers.
    fleet.provider.forget();
    fleet.database.sql("UPDATE statuses SET due_at = clock_timestamp() WHERE state = 'disabled'").await?;
    fleet.provider.wait_until(SOON, |all| all.len() >= 8).await?;
    sleep(Duration::from_secs(5)).await;
    for n in 0..8 {
        let probes = fleet.provider.requests_of(&format!("sk-dead-{n}")).len();
        assert_eq!(probes, 1, "probes of dead-{n}");
    }

    let mut rollouts = RolloutServiceClient::connect(format!("http://{}", fleet.all[0].admin())).await?;
    let upsert = Channel { name: "steady".to_owned(), priority: 7, ..Default::default() };
    let changed = spareline_proto::admin::v1::Change {
        kind: Some(change::Kind::Upsert(upsert)),
        update_mask: Some(prost_types::FieldMask { paths: vec!["priority".to_owned()] }),
    };
    let stage = |percent| Stage {
        percent,
        bake_time: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..Default::default()
    };
    let rollout = Rollout {
        description: "once".to_owned(),
        changes: vec![changed],
        stages: [10, 50, 100].map(stage).to_vec(),
        ..Default::default()
    };
    let request = CreateRolloutRequest { rollout: Some(rollout), ..Default::default() };
    rollouts.create_rollout(request).await?;
    let kinds = "SELECT kind, count(*) FROM events WHERE kind LIKE 'rollout.%' GROUP BY 1";
    let begun = Instant::now();
    while !counts(&fleet, kinds).await?.contains_key("rollout.succeeded") {
        let list = rollouts.list_rollouts(ListRolloutsRequest::default()).await?;
        ensure!(begun.elapsed() < 2 * SOON, "the rollout does not end: {list:?}");
        sleep(Duration::from_millis(200)).await;
    }
    let kinds = counts(&fleet, kinds).await?;
    let once = |kind: &str| kinds.get(kind) == Some(&1);
    assert!(once("rollout.created") && once("rollout.succeeded"), "{kinds:?}");
    assert_eq!(kinds.get("rollout.advanced"), Some(&2), "{kinds:?}");
    let (_, after) = fleet.agree(SOON).await?;
    assert_ne!(after.digest(), items.digest());
    Ok(())
}

/// What a later build's migration may do, to every table there is: columns that may be left out, tables, indexes.
const ADDITIVE: &str = "
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> '_sqlx_migrations' LOOP
    EXECUTE format('ALTER TABLE %I ADD COLUMN added_later text, ADD COLUMN counted_later bigint NOT NULL DEFAULT 0', name);
  END LOOP;
END $$;
CREATE TABLE new_things (id bigint PRIMARY KEY, epoch uuid, revision bigint);
CREATE INDEX statuses_later ON statuses (counted_later);
INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
  VALUES (9000, 'additive', true, ''::bytea, 0);
";

/// Every kind of call once.
async fn calls(fleet: &Replicas, replica: usize, weight: u32) -> Result<()> {
    let name = format!("made-{replica}-{weight}");
    fleet.create(replica, fleet.channel(&name, "m"), &[&format!("sk-{name}")]).await?;
    reweigh(fleet, replica, "one", weight).await?;
    let mut admin = fleet.admin(replica)?;
    admin.list_channels(ListChannelsRequest::default()).await?;
    admin.probe_now(ProbeNowRequest::default()).await?;
    let control = &fleet.all[replica].control;
    control.fleet()?.list_proxies(ListProxiesRequest::default()).await?;
    let mut rollouts = RolloutServiceClient::connect(format!("http://{}", control.admin)).await?;
    rollouts.list_rollouts(ListRolloutsRequest::default()).await?;
    let subject = Some(Subject { kind: Some(subject::Kind::ChannelId(1)) });
    let verdict = Verdict {
        verdict_id: uuid::Uuid::now_v7().to_string(),
        subject,
        cause: Cause::Throttled.into(),
        ..Default::default()
    };
    let batch = ReportVerdictsRequest {
        proxy_id: "r".to_owned(),
        epoch: "other".to_owned(),
        verdicts: vec![verdict],
    };
    control.reports()?.report_verdicts(batch).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_of_two_builds_work_over_an_additive_migration() -> Result<()> {
    let mut fleet = Replicas::start(2).await?;
    fleet.create(0, fleet.channel("one", "m"), &["sk-1"]).await?;
    fleet.add_proxies(2, &[]).await?;
    fleet.add_watchers(4).await?;
    // Every statement is prepared, on most connections, before the schema changes beneath it.
    for round in 1..=10 {
        calls(&fleet, 0, round).await?;
        calls(&fleet, 1, round).await?;
    }
    fleet.database.sql(ADDITIVE).await?;
    // The old build goes on, beside one that starts on the new schema and finds it newer than itself.
    fleet.all.push(Replica::start("control-late", &fleet.database).await?);
    for round in 11..=20 {
        for replica in 0..3 {
            calls(&fleet, replica, round).await.with_context(|| format!("replica {replica}"))?;
        }
    }
    fleet.all[1].control.crash().await?;
    fleet.all[1].control.restart().await.context("an old build that starts on the new schema")?;
    calls(&fleet, 1, 21).await?;
    fleet.agree(SOON).await?;
    assert_eq!(fleet.faults(), [""; 0]);
    let unwell = |line: &&spareline_tests::process::LogLine| {
        ["database_lost", "database_error", "failed"].contains(&line.str("event"))
            || line.text.contains("cached plan")
    };
    let logs: Vec<_> = fleet.all.iter().flat_map(|r| r.control.process.log()).collect();
    let lines: Vec<_> = logs.iter().filter(unwell).map(|l| &l.text).collect();
    assert!(lines.is_empty(), "{lines:#?}");
    Ok(())
}
