//! Staged changes, as an operator with grpcurl sees them, with real proxies.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use spareline_proto::registry::v1::Cause;
use spareline_tests::{
    http::Call,
    provider::script::KeyState,
    stack::{Plan, SOON, Stack},
    tools::Grpcurl,
};
use sqlx::{Connection as _, PgConnection};

use crate::support::{MODEL, out_for, rejected_from_tomorrow, rollout_becomes};

/// Waits until a rollout is in a state.
async fn state(admin: Grpcurl, id: &Value, wanted: &str) -> Result<Value> {
    rollout_becomes(admin, id, SOON, |rollout| rollout["state"] == wanted).await
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
    let before = two_channels(&stack).await?;
    let moved = json!({"name": "one", "baseUrl": "http://127.0.0.1:9/v1"});
    let id = start(admin, moved, "base_url", 100).await?;
    stack.settled().await?;
    served(&stack, 8).await?;
    let paused = state(admin, &id, "ROLLOUT_STATE_PAUSED").await?;
    assert!(paused["why"].as_str().unwrap_or_default().contains("proxy-"), "{paused}");
    undone(&stack, admin, &id, &before).await
}

/// A channel with a key `sk-1`, another one to fall back to, and the digests before anything is staged.
async fn two_channels(stack: &Stack) -> Result<Vec<Value>> {
    let first = spareline_proto::registry::v1::Channel { priority: 10, ..stack.channel("one", MODEL) };
    stack.create(first, &["sk-1"]).await?;
    stack.create(stack.channel("two", MODEL), &["sk-2"]).await?;
    digests(stack, stack.control.grpcurl()).await
}

async fn start(admin: Grpcurl, channel: Value, mask: &str, percent: i32) -> Result<Value> {
    let stages = if percent < 100 { vec![percent, 100] } else { vec![100] };
    let stages: Vec<Value> = stages.iter().map(|p| json!({"percent": p, "bakeTime": "600s"})).collect();
    let change = json!({"upsert": channel, "updateMask": {"paths": [mask]}});
    let request = json!({"rollout": {"changes": [change], "stages": stages}});
    Ok(admin.call("RolloutService/CreateRollout", &request).await?["rollout"]["rolloutId"].clone())
}

/// Callers see nothing of it, whichever proxy they ask.
async fn served(stack: &Stack, times: usize) -> Result<()> {
    for n in 0..times {
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": format!("{n}")}]});
        for proxy in &stack.proxies {
            let reply = Call::json("/v1/chat/completions", &body).send(proxy.http).await?;
            assert_eq!(reply.status, 200, "{}: {}", reply.text(), reply.attempts());
        }
    }
    Ok(())
}

/// Within five seconds of an abort everybody is back, and the registry is as it was.
async fn undone(stack: &Stack, admin: Grpcurl, id: &Value, before: &[Value]) -> Result<()> {
    let view = stack.view("one").await?;
    assert!(view.statuses.is_empty(), "a baseline status was touched: {view:?}");
    admin.call("RolloutService/AbortRollout", &json!({"rolloutId": id})).await?;
    let aborted = Instant::now();
    assert_eq!(digests(stack, admin).await?, before);
    assert!(aborted.elapsed() < Duration::from_secs(5), "{:?}", aborted.elapsed());
    served(stack, 1).await
}

#[tokio::test]
async fn rollouts_of_a_dead_key_of_their_own_pause_and_leave_the_baseline_alone() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 2, ..Plan::default() }).await?;
    let admin = stack.control.grpcurl();
    let before = two_channels(&stack).await?;
    stack.provider.key("sk-own", KeyState::Dead);
    let key = json!({"channel": "one", "secret": "sk-own", "detached": true});
    let key = admin.call("ChannelAdminService/RotateCredential", &key).await?;
    let ids = json!([key["credential"]["credentialId"]]);
    let id = start(admin, json!({"name": "one", "credentialIds": ids}), "credential_ids", 100).await?;
    stack.settled().await?;
    served(&stack, 2).await?;
    let paused = state(admin, &id, "ROLLOUT_STATE_PAUSED").await?;
    assert!(paused["why"].as_str().unwrap_or_default().contains("proxy-"), "{paused}");
    undone(&stack, admin, &id, &before).await
}

#[tokio::test]
async fn rollouts_of_an_item_that_the_proxies_build_rejects_pause_and_name_them() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 2, ..Plan::default() }).await?;
    let admin = stack.control.grpcurl();
    let before = two_channels(&stack).await?;
    let mut database = PgConnection::connect_with(&stack.database()?.options).await?;
    rejected_from_tomorrow(&mut database, "one").await?;
    let id = start(admin, json!({"name": "one", "priority": 7}), "priority", 100).await?;
    let paused = state(admin, &id, "ROLLOUT_STATE_PAUSED").await?;
    let why = paused["why"].as_str().unwrap_or_default();
    assert!(why.contains("proxy-"), "{paused}");
    served(&stack, 2).await?;
    let rejected = rollout_becomes(admin, &id, SOON, |r| r["counts"]["rejected"] == 2).await?;
    assert_eq!(rejected["counts"]["rejectedProxyIds"], json!(["proxy-1", "proxy-2"]));
    undone(&stack, admin, &id, &before).await
}

#[tokio::test]
async fn rollouts_share_the_death_of_a_key_with_everybody() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 2, ..Plan::default() }).await?;
    let admin = stack.control.grpcurl();
    two_channels(&stack).await?;
    let id = start(admin, json!({"name": "one", "priority": 7}), "priority", 50).await?;
    stack.settled().await?;
    stack.provider.key("sk-1", KeyState::Dead);
    served(&stack, 1).await?;
    stack.wait_for_view("one", SOON, |view| out_for(view, Cause::Credential)).await?;
    let got = admin.call("RolloutService/GetRollout", &json!({"rolloutId": id})).await?;
    assert_eq!(got["rollout"]["state"], "ROLLOUT_STATE_ACTIVE", "{got}");
    // Nobody asks it any more, within the cohort or outside.
    stack.settled().await?;
    for proxy in &stack.proxies {
        let reply = Call::chat(MODEL).send(proxy.http).await?;
        assert_eq!(reply.attempts(), "two:ok:200", "{}", proxy.id);
    }
    Ok(())
}
