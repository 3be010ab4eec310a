//! What several scenarios share: the demo's channels, and names for what is asked of them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use spareline_proto::{
    admin::v1::{ChannelView, SubjectName},
    registry::v1::{Cause, Channel, ServingState},
};
use spareline_tests::{
    http::Call,
    provider::script::KeyState,
    replicas::Replicas,
    stack::{Plan, Stack},
    tools::Grpcurl,
};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The model of the demo.
pub(crate) const MODEL: &str = "mock-gpt-4o-mini";

/// The limits of the demo's channels.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);

/// The demo: `mock-primary` works, `mock-bad-key` in the same layer is refused, `mock-network-unreachable` in a
/// lower one is not there.
pub(crate) async fn demo(plan: Plan) -> Result<Stack> {
    let stack = Stack::start(plan).await?;
    stack.provider.key("sk-bad", KeyState::Dead);
    let channel = |name: &str, priority: i32| Channel { priority, ..stack.quick_channel(name, MODEL, LIMIT) };
    stack.create(channel("mock-primary", 10), &["sk-primary"]).await?;
    stack.create(channel("mock-bad-key", 10), &["sk-bad"]).await?;
    let nowhere =
        Channel { base_url: "http://127.0.0.1:9/v1".to_owned(), ..channel("mock-network-unreachable", 0) };
    stack.create(nowhere, &["sk-primary"]).await?;
    stack.settled().await?;
    Ok(stack)
}

/// Out for this cause, with a reason and a time, as an operator sees it.
pub(crate) fn out_for(view: &ChannelView, cause: Cause) -> bool {
    view.state() == ServingState::Disabled
        && view.cause() == cause
        && !view.reason.is_empty()
        && view.since.is_some()
}

/// Serving.
pub(crate) fn active(view: &ChannelView) -> bool {
    view.state() == ServingState::Active
}

/// A channel as a subject.
pub(crate) fn channel(name: &str) -> Option<SubjectName> {
    Some(SubjectName { channel: name.to_owned(), ..Default::default() })
}

/// Waits until a rollout is as wanted.
pub(crate) async fn rollout_becomes(
    admin: Grpcurl,
    id: &Value,
    limit: Duration,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let start = Instant::now();
    loop {
        let got =
            admin.call("RolloutService/GetRollout", &json!({"rolloutId": id})).await?["rollout"].clone();
        if wanted(&got) {
            return Ok(got);
        }
        ensure!(start.elapsed() < limit, "the rollout does not become as wanted: {got}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// From now on candidates of this channel are stored as a control plane of tomorrow would: of a provider that no proxy of today knows.
pub(crate) async fn rejected_from_tomorrow(database: &mut PgConnection, channel: &str) -> Result<()> {
    let sql = format!(
        "CREATE FUNCTION of_tomorrow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           NEW.spec := jsonb_set(NEW.spec, '{{provider}}', '\"provider_of_tomorrow\"'); RETURN NEW; END $$; \
         CREATE TRIGGER of_tomorrow BEFORE INSERT ON channel_specs FOR EACH ROW \
         WHEN (NEW.spec->>'name' = '{channel}' AND (NEW.spec->>'priority')::int = 7) EXECUTE FUNCTION of_tomorrow()"
    );
    database.execute(AssertSqlSafe(sql)).await?;
    Ok(())
}

/// A number that the environment gives, for scenarios that can be made longer.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var_os(name)?.to_str()?.parse().ok()
}

/// Requests through every proxy of a fleet, a few a second, which must all be answered well.
pub(crate) struct Trickle {
    stop: CancellationToken,
    tasks: JoinSet<Asked>,
}

/// What became of the requests through one proxy.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// How many there were.
    pub(crate) requests: usize,
    /// Those that were not answered well.
    pub(crate) failures: Vec<String>,
}

impl Trickle {
    /// Begins.
    pub(crate) fn start(fleet: &Replicas, models: &'static [&'static str]) -> Self {
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for (proxy, _) in &fleet.proxies {
            tasks.spawn(ask(proxy.http, proxy.id.clone(), models, stop.clone()));
        }
        Self { stop, tasks }
    }

    /// Ends.
    pub(crate) async fn ended_well(mut self) -> Result<()> {
        self.stop.cancel();
        while let Some(asked) = self.tasks.join_next().await {
            let Asked { requests, failures } = asked?;
            ensure!(requests > 0 && failures.is_empty(), "{} of {requests}: {failures:#?}", failures.len());
        }
        Ok(())
    }
}

/// Asks one proxy for these models in turn, until told to stop.
pub(crate) async fn ask(
    proxy: std::net::SocketAddr,
    id: String,
    models: &'static [&'static str],
    stop: CancellationToken,
) -> Asked {
    let mut asked = Asked::default();
    while !stop.is_cancelled() {
        let model = models[asked.requests % models.len()];
        match Call::chat(model).send(proxy).await {
            Ok(reply) if reply.status == 200 && reply.broken.is_none() => {}
            Ok(reply) => asked.failures.push(format!(
                "{id}, {model}: {} {} [{}]",
                reply.status,
                reply.text(),
                reply.attempts()
            )),
            Err(why) => asked.failures.push(format!("{id}, {model}: {why:#}")),
        }
        asked.requests += 1;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    asked
}
