//! The watch when there is much of it: large registries, odd items, dead wires, slow readers, twins, a wrong database.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use spareline_proto::{
    admin::v1::{ListProxiesRequest, Proxy as Listed, UpdateChannelRequest},
    registry::v1::Channel,
};
use spareline_tests::{
    chaos::{ChaosProxy, Mode},
    fleet::Fleet,
    http::Call,
    process::{LogLine, memory_kib},
    stack::{Plan, Proxy, SOON, Stack},
};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::support::MODEL;

const ALONE: Plan = Plan { proxies: 0, embedded: false, control: Vec::new(), proxy: Vec::new() };

async fn reweigh(stack: &Stack, name: &str, weight: u32) -> Result<i64> {
    let channel = Some(Channel { name: name.to_owned(), weight: Some(weight), ..Default::default() });
    let update_mask = Some(prost_types::FieldMask { paths: vec!["weight".to_owned()] });
    let request = UpdateChannelRequest { channel, update_mask, validate_only: false };
    let updated = stack.control.channels()?.update_channel(request).await?.into_inner();
    Ok(updated.channel.context("no channel in the answer")?.spec_revision)
}

async fn listed(stack: &Stack) -> Result<Vec<Listed>> {
    Ok(stack.control.fleet()?.list_proxies(ListProxiesRequest::default()).await?.into_inner().proxies)
}

/// Waits until the fleet looks as wanted to an operator.
async fn until(stack: &Stack, wanted: impl Fn(&[Listed]) -> bool) -> Result<Vec<Listed>> {
    let start = std::time::Instant::now();
    loop {
        let proxies = listed(stack).await?;
        if wanted(&proxies) {
            return Ok(proxies);
        }
        ensure!(start.elapsed() < SOON, "the fleet does not become as wanted: {proxies:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Changes the database behind the back of a control plane that does not run.
async fn behind_its_back(stack: &mut Stack, statements: &[&str]) -> Result<()> {
    stack.control.crash().await?;
    let mut database = PgConnection::connect_with(&stack.database()?.options).await?;
    for statement in statements {
        database.execute(sqlx::AssertSqlSafe(*statement)).await.with_context(|| (*statement).to_owned())?;
    }
    stack.control.restart().await
}

#[tokio::test]
async fn watch_scale_a_registry_of_ten_mebibytes_arrives_whole_and_changes_by_the_item() -> Result<()> {
    let stack = Stack::start(ALONE).await?;
    // As heavy as ten thousand ordinary channels, and quicker to write: two and a half messages of the usual limit.
    let labels = (0..64).map(|n| (format!("label-{n}"), "x".repeat(256)));
    let heavy = Channel { labels: labels.collect(), ..stack.channel("heavy", MODEL) };
    for n in 0..640 {
        stack.create(Channel { name: format!("heavy-{n}"), ..heavy.clone() }, &["sk-1"]).await?;
    }
    let proxy = Proxy::start("cold", stack.control.data, &[]).await?;
    let applied = proxy.process.wait_for_log(SOON, |l| l.is("registry_applied")).await?;
    assert_eq!(applied.field("channels"), &json!(640), "a part of a view was put in force: {}", applied.text);
    assert_eq!(applied.field("snapshot"), &json!(true));
    let reply = Call::chat(MODEL).send(proxy.http).await?;
    ensure!(reply.status == 200, "{}", reply.text());

    let mark = proxy.process.mark();
    let revision = reweigh(&stack, "heavy-99", 7).await?;
    let newer = |l: &LogLine| l.is("registry_applied") && l.field("revision").as_i64() >= Some(revision);
    let update = proxy.process.wait_for_log_after(mark, SOON, newer).await?;
    assert_eq!(update.field("snapshot"), &json!(false), "ten mebibytes for one weight: {}", update.text);
    Ok(())
}

#[tokio::test]
async fn watch_scale_an_item_a_proxy_cannot_use_is_refused_alone_and_shown_to_operators() -> Result<()> {
    let mut stack = Stack::start(Plan::default()).await?;
    stack.create(stack.channel("odd", MODEL), &["sk-odd"]).await?;
    stack.create(stack.channel("good", "good-model"), &["sk-good"]).await?;
    stack.settled().await?;
    // What a newer control plane could have written: a provider that this build has never heard of.
    behind_its_back(
        &mut stack,
        &[
            "INSERT INTO channel_specs (channel_id, spec_revision, spec, author) SELECT c.channel_id, h.revision + 1, \
             jsonb_set(s.spec, '{provider}', '\"from_the_future\"'), 'test' FROM registry_head h, channels c \
             JOIN channel_specs s USING (channel_id, spec_revision) WHERE c.name = 'odd'",
            "UPDATE channels SET spec_revision = (SELECT revision + 1 FROM registry_head) WHERE name = 'odd'",
            "UPDATE registry_head SET revision = revision + 1",
        ],
    )
    .await?;
    let proxies = until(&stack, |all| all.iter().any(|p| !p.rejections.is_empty())).await?;
    let rejection = &proxies[0].rejections[0];
    assert!(rejection.message.contains("provider"), "{rejection:?}");
    assert!(0 < rejection.kept_version && rejection.kept_version < rejection.version, "{rejection:?}");
    let text = stack.control.grpcurl().call("FleetService/ListProxies", &json!({})).await?;
    assert_eq!(text["proxies"][0]["rejections"][0]["keptVersion"], rejection.kept_version.to_string());

    for model in [MODEL, "good-model"] {
        let reply = stack.send(&Call::chat(model)).await?;
        ensure!(reply.status == 200, "{model} on what was kept: {}", reply.text());
    }
    // What is changed next arrives, and the odd one is not sent again.
    let revision = reweigh(&stack, "good", 3).await?;
    until(&stack, |all| all[0].applied.as_ref().is_some_and(|p| p.revision >= revision)).await?;
    let log = stack.proxies[0].process.log();
    assert_eq!(log.iter().filter(|l| l.is("item_rejected")).count(), 1, "it was sent again");
    assert_eq!(listed(&stack).await?[0].rejections.len(), 1, "operators see it for as long as it lasts");
    Ok(())
}

#[tokio::test]
async fn watch_scale_a_wire_that_went_dead_is_noticed_by_both_ends_within_40_s() -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(40);
    let stack = Stack::start(ALONE).await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    let wire = ChaosProxy::start(stack.control.data).await?;
    let proxy = Proxy::start("behind-a-dead-wire", wire.addr(), &[]).await?;
    proxy.process.wait_for_log(SOON, |l| l.is("registry_applied") && *l.field("channels") == 1).await?;

    let (ours, theirs) = (proxy.process.mark(), stack.control.process.mark());
    // Nothing arrives and nothing is refused, as behind a firewall that forgot the connection.
    wire.set(Mode::Freeze);
    let (lost, closed) = tokio::join!(
        proxy.process.wait_for_log_after(ours, LIMIT, |l| l.is("watch_lost")),
        stack.control.process.wait_for_log_after(theirs, LIMIT, |l| l.is("watch_closed")),
    );
    lost.context("the proxy")?;
    closed.context("the control plane")?;
    let gone = until(&stack, |all| all.iter().all(|p| !p.connected)).await?;
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert_eq!(Call::chat(MODEL).send(proxy.http).await?.status, 200, "it serves what it has");

    stack.create(stack.channel("two", "other-model"), &["sk-2"]).await?;
    wire.set(Mode::Pass);
    let both = |l: &LogLine| l.is("registry_applied") && *l.field("channels") == 2;
    proxy.process.wait_for_log_after(ours, LIMIT, both).await?;
    Ok(())
}

#[tokio::test]
async fn watch_scale_readers_that_stall_cost_no_memory_and_catch_up_in_one_frame() -> Result<()> {
    const ALL: usize = 60;
    const READING: usize = 40;
    let stack = Stack::start(ALONE).await?;
    for n in 0..10 {
        stack.create(stack.channel(&format!("line-{n}"), MODEL), &["sk-1"]).await?;
    }
    let wire = ChaosProxy::start(stack.control.data).await?;
    let to: Vec<_> = (0..ALL).map(|n| if n < READING { stack.control.data } else { wire.addr() }).collect();
    let fleet = Fleet::through(&to);
    fleet.until(|t| t.connected == ALL && t.snapshots >= ALL).await?;
    wire.set(Mode::Freeze);

    let pid = stack.control.process.pid()?;
    let mut before = 0;
    let mut last = 0;
    for n in 0..600 {
        last = reweigh(&stack, &format!("line-{}", n % 10), n + 2).await?;
        if n == 100 {
            // What the work itself needs is there by now.
            before = memory_kib(pid, "VmRSS")?;
        }
    }
    fleet.reach(0..READING, last).await?;
    let grown = memory_kib(pid, "VmRSS")?.saturating_sub(before);
    assert!(grown < 16 * 1024, "500 changes for {} stalled readers cost {grown} KiB", ALL - READING);

    fleet.board.take_sights();
    wire.set(Mode::Pass);
    fleet.reach(0..ALL, last).await?;
    assert!(fleet.board.agree());
    // The frame that was on its way, and one with all the rest; or a new session, had it taken so long.
    let frames = fleet.board.take_sights().iter().filter(|s| s.watcher >= READING).count();
    assert!(frames <= 3 * (ALL - READING), "{frames} frames for {} readers", ALL - READING);
    Ok(())
}

#[tokio::test]
async fn watch_scale_a_proxy_does_not_believe_an_empty_database() -> Result<()> {
    let mut stack = Stack::start(Plan::default()).await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    stack.settled().await?;
    let mark = stack.proxies[0].process.mark();
    // The address is right, the database is not: another one, where nothing ever was.
    behind_its_back(
        &mut stack,
        &[
            "TRUNCATE channels, credentials, statuses, policies, events, abilities CASCADE",
            "UPDATE registry_head SET epoch = gen_random_uuid(), revision = 0, compacted = 0",
        ],
    )
    .await?;
    let refused = |l: &LogLine| l.is("watch_lost") && l.str("why").contains("without channels");
    let proxy = &stack.proxies[0];
    proxy.process.wait_for_log_after(mark, SOON, refused).await?;
    assert_eq!(Call::chat(MODEL).send(proxy.http).await?.status, 200, "it fell to nothing");
    assert!(proxy.ready().await?);

    // Once somebody writes there, it is a registry like any other.
    let mark = proxy.process.mark();
    stack.create(stack.channel("new", "new-model"), &["sk-2"]).await?;
    let taken = |l: &LogLine| l.is("registry_applied") && *l.field("channels") == 1;
    proxy.process.wait_for_log_after(mark, Duration::from_secs(60), taken).await?;
    assert_eq!(Call::chat("new-model").send(proxy.http).await?.status, 200);
    assert_eq!(Call::chat(MODEL).send(proxy.http).await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn watch_scale_a_restarted_proxy_is_one_and_twins_are_two() -> Result<()> {
    let mut stack = Stack::start(Plan::default()).await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    stack.settled().await?;
    let instance = |p: &Listed| p.node.as_ref().map(|n| n.instance_id.clone()).unwrap_or_default();
    let first = instance(&listed(&stack).await?[0]);

    // A restart leaves no ghost, whether its end was seen or not.
    stack.proxies[0].process.kill().await?;
    let again = Proxy::start("proxy-1", stack.control.data, &[]).await?;
    let only = |all: &[Listed]| all.len() == 1 && all[0].connected && instance(&all[0]) != first;
    until(&stack, only).await?;

    // Two that live are two, each with what it serves.
    let twin = Proxy::start("proxy-1", stack.control.data, &[]).await?;
    let two = |all: &[Listed]| {
        let live: Vec<_> =
            all.iter().filter(|p| p.connected && p.applied == p.wanted).map(instance).collect();
        live.len() == 2 && live[0] != live[1]
    };
    until(&stack, two).await?;
    drop(twin);
    until(&stack, only).await?;
    drop(again);
    let none: Value = stack.control.grpcurl().call("FleetService/GetFleetSummary", &json!({})).await?;
    until(&stack, |all| all.iter().all(|p| !p.connected)).await.with_context(|| none.to_string())?;
    Ok(())
}
