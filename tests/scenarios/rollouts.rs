//! Staged changes, as an operator with grpcurl sees them, with real proxies.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use spareline_tests::{
    http::Call,
    stack::{Plan, SOON, Stack},
    tools::Grpcurl,
};

use crate::support::MODEL;

/// Waits until a rollout is in a state.
async fn state(admin: Grpcurl, id: &Value, wanted: &str) -> Result<Value> {
    let start = Instant::now();
    loop {
        let got =
            admin.call("RolloutService/GetRollout", &json!({"rolloutId": id})).await?["rollout"].clone();
        if got["state"] == wanted {
            return Ok(got);
        }
        ensure!(start.elapsed() < SOON, "the rollout does not become {wanted}: {got}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The digest that each proxy acknowledged, once all are what they should be.
async fn digests(stack: &Stack, admin: Grpcurl) -> Result<Vec<Value>> {
    stack.settled().await?;
    let list = admin.call("FleetService/ListProxies", &json!({"filter": "connected=true"})).await?;
    let proxies = list["proxies"].as_array().context("no proxies")?;
    Ok(proxies.iter().map(|p| p["applied"]["digest"].clone()).collect())
}

#[tokio::test]
async fn rollouts_spread_by_themselves_and_become_the_registry() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 3, ..Plan::default() }).await?;
    let admin = stack.control.grpcurl();
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    let request = json!({"rollout": {
        "description": "one goes first",
        "comment": "agreed",
        "changes": [{"upsert": {"name": "one", "priority": 7}, "updateMask": {"paths": ["priority"]}}],
        "stages": [{"percent": 10, "bakeTime": "1s"}, {"percent": 100}],
    }});
    let mut dry = request.clone();
    dry["validateOnly"] = true.into();
    let shown = admin.call("RolloutService/CreateRollout", &dry).await?;
    assert_eq!(shown["effects"][0]["fields"], json!(["priority"]), "{shown}");
    let made = admin.call("RolloutService/CreateRollout", &request).await?["rollout"].clone();
    assert_eq!(made["state"], "ROLLOUT_STATE_ACTIVE", "{made}");
    let refused = admin.try_call("ChannelAdminService/DeleteChannel", &json!({"channel": "one"})).await?;
    assert_eq!(refused.code, 64 + tonic::Code::FailedPrecondition as i32, "{refused:?}");
    assert!(refused.err.contains("rollout"), "{refused:?}");

    let watch = json!({"rolloutId": made["rolloutId"]}).to_string();
    let watched = admin
        .run(&["-d", &watch, "-max-time", "30"], &["spareline.admin.v1.RolloutService/WatchRollout"])
        .await?;
    assert!(watched.out.contains("ROLLOUT_STATE_SUCCEEDED"), "{watched:?}");
    assert_eq!(stack.view("one").await?.channel.context("no channel")?.priority, 7);
    let all = digests(&stack, admin).await?;
    assert!(all.len() == 3 && all.windows(2).all(|two| two[0] == two[1]), "{all:?}");
    let events = admin.call("ChannelAdminService/ListEvents", &json!({"channel": "one"})).await?.to_string();
    for kind in ["rollout.created", "rollout.advanced", "rollout.succeeded"] {
        assert!(events.contains(kind), "{kind} is not in {events}");
    }
    Ok(())
}

#[tokio::test]
async fn rollouts_of_a_wrong_base_url_pause_and_an_abort_gives_the_baseline_back() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 2, ..Plan::default() }).await?;
    let admin = stack.control.grpcurl();
    let first = spareline_proto::registry::v1::Channel { priority: 10, ..stack.channel("one", MODEL) };
    stack.create(first, &["sk-1"]).await?;
    stack.create(stack.channel("two", MODEL), &["sk-2"]).await?;
    let before = digests(&stack, admin).await?;
    let request = json!({"rollout": {
        "changes": [{"upsert": {"name": "one", "baseUrl": "http://127.0.0.1:9/v1"}, "updateMask": {"paths": ["base_url"]}}],
        "stages": [{"percent": 100, "bakeTime": "600s"}],
    }});
    let made = admin.call("RolloutService/CreateRollout", &request).await?["rollout"].clone();
    stack.settled().await?;
    for n in 0..8 {
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": format!("{n}")}]});
        let reply = stack.send(&Call::json("/v1/chat/completions", &body)).await?;
        assert_eq!(reply.status, 200, "the other channel serves: {}", reply.text());
    }
    let paused = state(admin, &made["rolloutId"], "ROLLOUT_STATE_PAUSED").await?;
    assert!(paused["why"].as_str().unwrap_or_default().contains("proxy-1"), "{paused}");
    let view = stack.view("one").await?;
    assert!(view.statuses.is_empty(), "a baseline status was touched: {view:?}");

    let abort = json!({"rolloutId": made["rolloutId"], "comment": "wrong place"});
    admin.call("RolloutService/AbortRollout", &abort).await?;
    let aborted = Instant::now();
    assert_eq!(digests(&stack, admin).await?, before);
    assert!(aborted.elapsed() < Duration::from_secs(5), "{:?}", aborted.elapsed());
    let reply = stack.send(&Call::chat(MODEL)).await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Ok(())
}
