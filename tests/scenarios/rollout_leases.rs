//! The replica that moves rollouts, stopped or killed in the middle of its moves: another one goes on, nothing is done twice, and what a
//! stopped one wakes up with is refused by its token. Real processes over one Postgres.
//!
//! The proxies are stopped while rollouts are started, so that nothing moves before the blow, however slow the machine is.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use spareline_tests::{
    stack::{Control, Plan, Proxy, Stack},
    tools::Grpcurl,
};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::support::{MODEL, rejected_from_tomorrow, rollout_becomes};

/// A lease has to run out, and a writer's idle transaction to be ended by the database.
const LONG: Duration = Duration::from_secs(60);

/// What the holder is in the middle of.
#[derive(Clone, Copy)]
enum Amid {
    /// It has the lease and has read the rollouts, and looks at the evidence.
    Deciding,
    /// It has the head's lock, and its token was found good.
    Writing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Blow {
    Stop,
    Kill,
}

/// Two control planes; the first, `stack.control`, has the lease. The proxies are the second one's.
struct Duel {
    stack: Stack,
    heir: Control,
    database: PgConnection,
}

impl Duel {
    async fn start() -> Result<Self> {
        let named = |name: &str| ["--replica-id".to_owned(), name.to_owned()];
        let plan = Plan { proxies: 0, control: named("first").to_vec(), ..Plan::default() };
        let mut stack = Stack::start(plan).await?;
        let mut database = PgConnection::connect_with(&stack.database()?.options).await?;
        stack.create(stack.channel("waiting", MODEL), &["sk-1"]).await?;
        // As long as one lasts, somebody has the lease; this one moves for nobody.
        start(stack.control.grpcurl(), "waiting", json!([{"percent": 0}, {"percent": 100}])).await?;
        until(&mut database, "SELECT holder LIKE 'first/%' FROM leases").await?;
        let url = ["--database-url".to_owned(), stack.database()?.url.clone()];
        let heir = Control::start("control-2", url.into_iter().chain(named("second"))).await?;
        for n in 1..=2 {
            stack.proxies.push(Proxy::start(&format!("proxy-{n}"), heir.data, &[]).await?);
        }
        stack.settled().await?;
        Ok(Self { stack, heir, database })
    }

    async fn signal_proxies(&self, name: &str) -> Result<()> {
        for proxy in &self.stack.proxies {
            proxy.process.signal(name).await?;
        }
        Ok(())
    }

    /// Takes the holder out in the middle of a move.
    async fn strike(
        &mut self,
        blow: Blow,
        amid: Amid,
        meanwhile: impl AsyncFnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let (lock, waiting) = match amid {
            Amid::Deciding => {
                ("LOCK TABLE proxies IN ACCESS EXCLUSIVE MODE", "SELECT%FROM proxies ORDER BY%")
            }
            Amid::Writing => ("SELECT 1 FROM rollouts FOR SHARE", "UPDATE rollouts%"),
        };
        let mut blocker = PgConnection::connect_with(&self.stack.database()?.options).await?;
        let mut blocking = blocker.begin().await?;
        blocking.execute(AssertSqlSafe(lock)).await?;
        meanwhile(self).await?;
        let stuck = format!(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
             AND query LIKE '{waiting}'"
        );
        until(&mut self.database, &stuck).await?;
        match blow {
            Blow::Stop => self.stack.control.process.signal("STOP").await?,
            Blow::Kill => self.stack.control.crash().await?,
        }
        blocking.rollback().await?;
        Ok(())
    }

    /// Everything about rollouts that anybody could have done twice: revision, rollouts, events.
    async fn all(&mut self) -> Result<Value> {
        let text: String = sqlx::query_scalar(
            "SELECT jsonb_build_object('head', (SELECT revision FROM registry_head), \
             'rollouts', (SELECT jsonb_agg(to_jsonb(r) ORDER BY rollout_id) FROM rollouts r), \
             'changes', (SELECT jsonb_agg(to_jsonb(c) ORDER BY rollout_id, ordinal) FROM rollout_changes c), \
             'events', (SELECT jsonb_agg(to_jsonb(e) ORDER BY revision) FROM events e))::text",
        )
        .fetch_one(&mut self.database)
        .await?;
        Ok(serde_json::from_str(&text)?)
    }

    async fn events(&mut self, kind: &str, rollout: &Value) -> Result<i64> {
        let id = rollout.as_str().context("an id")?;
        let sql = "SELECT count(*) FROM events WHERE kind = $1 AND detail->>'rollout_id' = $2";
        Ok(sqlx::query_scalar(sql).bind(kind).bind(id).fetch_one(&mut self.database).await?)
    }

    /// Whether the first replica was refused a move of this rollout by its token.
    fn refused(&self, rollout: &Value) -> bool {
        let refused = |l: &spareline_tests::process::LogLine| {
            l.is("rollout_not_moved")
                && l.str("reason").contains("the lease")
                && Some(l.field("rollout_id").to_string().as_str()) == rollout.as_str()
        };
        self.stack.control.process.log().iter().any(refused)
    }
}

/// Waits until a query says true.
async fn until(database: &mut PgConnection, sql: &str) -> Result<()> {
    let start = Instant::now();
    loop {
        let found: Option<bool> =
            sqlx::query_scalar(AssertSqlSafe(sql)).fetch_optional(&mut *database).await?;
        if found == Some(true) {
            return Ok(());
        }
        ensure!(start.elapsed() < LONG, "never: {sql}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Starts a rollout of another priority; its id.
async fn start(admin: Grpcurl, channel: &str, stages: Value) -> Result<Value> {
    let change = json!({"upsert": {"name": channel, "priority": 7}, "updateMask": {"paths": ["priority"]}});
    let request = json!({"rollout": {"changes": [change], "stages": stages}});
    Ok(admin.call("RolloutService/CreateRollout", &request).await?["rollout"]["rolloutId"].clone())
}

/// One rollout for every move there is, all due at once: the holder had decided on none of them when it was struck.
async fn all_moves(blow: Blow) -> Result<()> {
    let mut duel = Duel::start().await?;
    let admin = duel.heir.grpcurl();
    rejected_from_tomorrow(&mut duel.database, "refused").await?;
    for name in ["moves", "ends", "refused", "widens", "held", "gone", "pushed"] {
        duel.stack.create(duel.stack.channel(name, MODEL), &["sk-1"]).await?;
    }
    duel.stack.settled().await?;
    duel.signal_proxies("STOP").await?;
    let long = json!({"percent": 100, "bakeTime": "600s"});
    let moves = start(admin, "moves", json!([{"percent": 50}, long])).await?;
    let ends = start(admin, "ends", json!([{"percent": 100}])).await?;
    let refused = start(admin, "refused", json!([long])).await?;
    let widens = start(
        admin,
        "widens",
        json!([{"percent": 1, "selector": {"tier": "canary"}, "bakeTime": "600s"}, long]),
    )
    .await?;
    let held = start(admin, "held", json!([{"percent": 100}])).await?;
    let gone = start(admin, "gone", json!([{"percent": 100}])).await?;
    let pushed = start(admin, "pushed", json!([{"percent": 50}, long])).await?;
    duel.strike(blow, Amid::Deciding, async |_| Ok(())).await?;

    admin.call("RolloutService/PauseRollout", &json!({"rolloutId": held, "comment": "wait"})).await?;
    admin.call("RolloutService/AbortRollout", &json!({"rolloutId": gone})).await?;
    let got = admin.call("RolloutService/GetRollout", &json!({"rolloutId": pushed})).await?;
    let etag = &got["rollout"]["etag"];
    admin.call("RolloutService/AdvanceRollout", &json!({"rolloutId": pushed, "etag": etag})).await?;
    duel.signal_proxies("CONT").await?;
    let labels = duel.stack.directory().join("canary.toml");
    std::fs::write(&labels, "labels = { tier = \"canary\" }")?;
    let config = ["--config".to_owned(), labels.to_string_lossy().into_owned()];
    let canary = Proxy::start("proxy-3", duel.heir.data, &config).await?;
    duel.stack.proxies.push(canary);

    rollout_becomes(admin, &ends, LONG, |r| r["state"] == "ROLLOUT_STATE_SUCCEEDED").await?;
    rollout_becomes(admin, &moves, LONG, |r| r["currentStage"] == 1).await?;
    let paused = rollout_becomes(admin, &refused, LONG, |r| r["state"] == "ROLLOUT_STATE_PAUSED").await?;
    let why = paused["why"].as_str().unwrap_or_default();
    assert!(why.contains("proxy-1") || why.contains("proxy-2"), "{paused}");
    rollout_becomes(admin, &widens, LONG, |r| r["counts"]["connected"] == 1).await?;
    until(&mut duel.database, "SELECT holder LIKE 'second/%' AND token = 2 FROM leases").await?;

    let before = duel.all().await?;
    match blow {
        Blow::Stop => {
            duel.stack.control.process.signal("CONT").await?;
            let start = Instant::now();
            // It goes on from where it was struck to the last; on a busy machine that was not always the first of them.
            while !duel.refused(&pushed) {
                ensure!(start.elapsed() < LONG, "the last move was not refused");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Blow::Kill => duel.stack.control.restart().await?,
    }
    // Two rounds more.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(duel.all().await?, before, "something was done twice");
    for (rollout, kind, times) in [
        (&moves, "rollout.advanced", 1),
        (&pushed, "rollout.advanced", 1),
        (&ends, "rollout.succeeded", 1),
        (&refused, "rollout.paused", 1),
        (&widens, "rollout.widened", 1),
        (&held, "rollout.paused", 1),
        (&gone, "rollout.aborted", 1),
        (&gone, "rollout.succeeded", 0),
        (&held, "rollout.succeeded", 0),
    ] {
        assert_eq!(duel.events(kind, rollout).await?, times, "{kind} of rollout {rollout}");
    }
    Ok(())
}

#[tokio::test]
async fn rollouts_of_a_stopped_holder_go_on_and_all_it_wakes_up_with_is_refused_by_its_token() -> Result<()> {
    all_moves(Blow::Stop).await
}

#[tokio::test]
async fn rollouts_of_a_killed_holder_go_on_and_nothing_is_done_twice() -> Result<()> {
    all_moves(Blow::Kill).await
}

/// The holder had all but committed.
async fn amid_its_write(blow: Blow) -> Result<()> {
    let mut duel = Duel::start().await?;
    let admin = duel.heir.grpcurl();
    duel.stack.create(duel.stack.channel("moves", MODEL), &["sk-1"]).await?;
    duel.stack.settled().await?;
    duel.signal_proxies("STOP").await?;
    let moves = start(admin, "moves", json!([{"percent": 50}, {"percent": 100, "bakeTime": "600s"}])).await?;
    duel.strike(blow, Amid::Writing, async |duel| duel.signal_proxies("CONT").await).await?;
    // What the holder had locked is free again, be it that the database has to end its transaction.
    let got = rollout_becomes(admin, &moves, LONG, |r| r["currentStage"] == 1).await?;
    assert_eq!(got["state"], "ROLLOUT_STATE_ACTIVE", "{got}");
    until(&mut duel.database, "SELECT holder LIKE 'second/%' AND token = 2 FROM leases").await?;
    let before = duel.all().await?;
    match blow {
        Blow::Stop => duel.stack.control.process.signal("CONT").await?,
        Blow::Kill => duel.stack.control.restart().await?,
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(duel.all().await?, before, "something was done twice");
    assert_eq!(duel.events("rollout.advanced", &moves).await?, 1);
    // And the first replica serves on as one of two.
    duel.stack.create(duel.stack.channel("later", MODEL), &["sk-1"]).await?;
    duel.stack.settled().await?;
    Ok(())
}

#[tokio::test]
async fn rollouts_whose_holder_is_stopped_amid_its_write_are_moved_once() -> Result<()> {
    amid_its_write(Blow::Stop).await
}

#[tokio::test]
async fn rollouts_whose_holder_is_killed_amid_its_write_are_moved_once() -> Result<()> {
    amid_its_write(Blow::Kill).await
}
