//! Part 8: probes, also when the prober dies in the middle of one.

use std::time::Duration;

use anyhow::Result;
use spareline_proto::{
    admin::v1::{DisableSubjectRequest, ProbeNowRequest, ProbeNowResponse},
    registry::v1::{Cause, ServingState},
};
use spareline_tests::{
    http::Call,
    provider::script::{Answer, Failure, KeyState, Rule},
    stack::{Plan, SOON, Stack},
};
use tokio::task::JoinHandle;
use tonic::{Response, Status};

use crate::support::{MODEL, active, channel, out_for};

/// A lease lasts 30 s, and a dead prober's probe is due again within 5 s after it.
const LEASE_AND_A_BIT: Duration = Duration::from_secs(40);

/// A channel whose only key is dead, and known to be.
async fn dead(plan: Plan) -> Result<Stack> {
    let stack = Stack::start(plan).await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    stack.settled().await?;
    stack.provider.key("sk-1", KeyState::Dead);
    assert_eq!(stack.send(&Call::chat(MODEL)).await?.status, 502);
    stack.wait_for_view("one", SOON, |v| out_for(v, Cause::Credential)).await?;
    Ok(stack)
}

#[tokio::test]
async fn part08_probe_now_tells_what_is_back_and_what_is_not() -> Result<()> {
    let stack = dead(Plan::default()).await?;
    let round = stack.control.channels()?.probe_now(ProbeNowRequest::default()).await?.into_inner();
    assert_eq!((round.scanned, round.recovered.len(), round.still_disabled.len()), (1, 0, 1), "{round:?}");
    assert!(round.still_disabled[0].reason.contains("401"), "{round:?}");
    stack.provider.key("sk-1", KeyState::Valid);
    let dry = ProbeNowRequest { dry_run: true, ..Default::default() };
    let round = stack.control.channels()?.probe_now(dry).await?.into_inner();
    assert_eq!(round.recovered, ["one"]);
    assert!(!active(&stack.view("one").await?), "a dry run changed something");
    let round = stack.control.channels()?.probe_now(ProbeNowRequest::default()).await?.into_inner();
    assert_eq!((round.scanned, round.recovered), (1, vec!["one".to_owned()]));
    stack.settled().await?;
    assert_eq!(stack.send(&Call::chat(MODEL)).await?.status, 200);
    Ok(())
}

/// A probe that finds the key alive, held at the provider before its answer.
async fn held_probe(stack: &Stack) -> Result<JoinHandle<Result<Response<ProbeNowResponse>, Status>>> {
    stack.provider.key("sk-1", KeyState::Valid);
    stack.provider.rule(Rule::for_key("sk-1", Answer::Good).held("probe").times(1));
    stack.provider.forget();
    let mut admin = stack.control.channels()?;
    let probing = tokio::spawn(async move { admin.probe_now(ProbeNowRequest::default()).await });
    stack.provider.wait_until(SOON, |all| !all.is_empty()).await?;
    Ok(probing)
}

#[tokio::test]
async fn part08_kill_9_between_a_probe_and_its_answer_leaves_nothing_behind() -> Result<()> {
    let mut stack = dead(Plan::default()).await?;
    let probing = held_probe(&stack).await?;
    let seen = stack.view("one").await?;
    assert_eq!(seen.state(), ServingState::Probing, "while a lease runs: {seen:?}");

    stack.control.crash().await?;
    assert!(probing.await?.is_err(), "a dead control plane answered");
    stack.control.restart().await?;
    // Nobody asks again: the prober finds it by itself, once the dead one's lease is over.
    let view = stack.wait_for_view("one", LEASE_AND_A_BIT, active).await?;
    assert_eq!(view.cause(), Cause::Unspecified, "{view:?}");
    Ok(())
}

#[tokio::test]
async fn part08_a_humans_disable_during_a_probe_survives_its_answer() -> Result<()> {
    let stack = dead(Plan::default()).await?;
    let probing = held_probe(&stack).await?;
    let human = DisableSubjectRequest { subject: channel("one"), comment: "maintenance".into() };
    stack.control.channels()?.disable_subject(human).await?;
    stack.provider.release("probe");
    let _ = probing.await?;
    let view = stack.view("one").await?;
    assert_eq!((view.state(), view.cause()), (ServingState::Disabled, Cause::Operator), "{view:?}");
    let round = stack.control.channels()?.probe_now(ProbeNowRequest::default()).await?.into_inner();
    assert!(round.recovered.is_empty(), "a machine brought back what a human took out: {round:?}");
    assert_eq!(stack.view("one").await?.cause(), Cause::Operator);
    Ok(())
}

#[tokio::test]
async fn part08_probes_ask_little_with_the_same_request_as_traffic_and_leave_healthy_channels_alone()
-> Result<()> {
    let stack = dead(Plan::default()).await?;
    stack.create(stack.channel("healthy", MODEL), &["sk-2"]).await?;
    stack.provider.forget();
    stack.control.channels()?.probe_now(ProbeNowRequest::default()).await?;
    let seen = stack.provider.requests();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!((seen[0].key.as_deref(), seen[0].path.as_str()), (Some("sk-1"), "/v1/chat/completions"));
    let body: serde_json::Value = serde_json::from_str(&seen[0].body)?;
    assert_eq!((body["model"].as_str(), body["max_tokens"].as_i64()), (Some(MODEL), Some(1)), "{body}");
    Ok(())
}

#[tokio::test]
async fn part08_a_429_means_the_key_lives() -> Result<()> {
    let stack = dead(Plan::default()).await?;
    stack.provider.rule(Rule::for_key("sk-1", Answer::fail(Failure::RateLimit)));
    stack.control.channels()?.probe_now(ProbeNowRequest::default()).await?;
    let view = stack.view("one").await?;
    assert_eq!(view.cause(), Cause::Throttled, "{view:?}");
    Ok(())
}
