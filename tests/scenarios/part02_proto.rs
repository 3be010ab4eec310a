//! Part 2: what the listeners offer, and to whom.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use spareline_proto::{
    admin::v1::{GetChannelRequest, channel_admin_service_client::ChannelAdminServiceClient},
    dataplane::v1::{ReportHealthRequest, report_service_client::ReportServiceClient},
    registry::v1::Cause,
};
use spareline_tests::{
    http::Call,
    provider::script::KeyState,
    stack::{Plan, SOON, Stack},
};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::support::{MODEL, active, out_for};

#[tokio::test]
async fn part02_grpcurl_finds_services_comments_and_health_by_reflection_v1alpha() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 0, ..Plan::default() }).await?;
    let grpcurl = stack.control.grpcurl();
    let list = grpcurl.run(&[], &["list"]).await?;
    for service in ["ChannelAdminService", "PolicyAdminService", "FleetService", "RolloutService"] {
        assert!(list.out.contains(&format!("spareline.admin.v1.{service}")), "{list:?}");
    }
    assert!(
        !list.out.contains("RegistryWatchService"),
        "the data plane's services on the admin listener: {list:?}"
    );
    let describe =
        grpcurl.run(&[], &["describe", "spareline.admin.v1.ChannelAdminService.CreateChannel"]).await?;
    assert!(describe.out.contains("Creates a channel."), "no comments: {describe:?}");
    let health = grpcurl.run(&["-d", "{}"], &["grpc.health.v1.Health/Check"]).await?.json()?;
    assert_eq!(health, json!({"status": "SERVING"}));
    Ok(())
}

#[tokio::test]
async fn part02_reflection_v1_answers_too() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 0, ..Plan::default() }).await?;
    let link =
        tonic::transport::Endpoint::from_shared(format!("http://{}", stack.control.admin))?.connect().await?;
    let mut client = ServerReflectionClient::new(link);
    let host = String::new();
    let ask =
        ServerReflectionRequest { host, message_request: Some(MessageRequest::ListServices(String::new())) };
    let mut answers = client.server_reflection_info(tokio_stream::once(ask)).await?.into_inner();
    let answer = answers.message().await?.context("no answer")?.message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { anyhow::bail!("{answer:?}") };
    assert!(list.service.iter().any(|s| s.name == "spareline.admin.v1.FleetService"), "{list:?}");
    Ok(())
}

#[tokio::test]
async fn part02_each_listener_serves_only_its_own() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 0, ..Plan::default() }).await?;
    let mut admin = ChannelAdminServiceClient::connect(format!("http://{}", stack.control.data)).await?;
    let refused = admin.get_channel(GetChannelRequest { channel: "x".into() }).await;
    assert_eq!(
        refused.err().map(|s| s.code()),
        Some(tonic::Code::Unimplemented),
        "an operator's call on the data listener"
    );
    let mut reports = ReportServiceClient::connect(format!("http://{}", stack.control.admin)).await?;
    let refused = reports.report_health(ReportHealthRequest::default()).await;
    assert_eq!(
        refused.err().map(|s| s.code()),
        Some(tonic::Code::Unimplemented),
        "a proxy's call on the admin listener"
    );
    Ok(())
}

#[tokio::test]
async fn part02_the_shortest_channel_serves_and_can_be_disabled_automatically() -> Result<()> {
    let stack = Stack::small().await?;
    let channel = json!({"name": "shortest", "provider": "openai", "baseUrl": stack.provider.base_url(), "models": [{"model": MODEL}]});
    let created = stack
        .control
        .grpcurl()
        .call(
            "ChannelAdminService/CreateChannel",
            &json!({"channel": channel, "secrets": ["sk-canary-7f3a"]}),
        )
        .await?;
    assert!(!created.to_string().contains("sk-canary-7f3a"), "a secret came out: {created}");
    stack.settled().await?;
    let reply = stack.send(&Call::chat(MODEL)).await?;
    assert_eq!((reply.status.as_u16(), reply.attempts()), (200, "shortest:ok:200"));
    assert_eq!(reply.content(), "Hello from the provider");

    stack.provider.key("sk-canary-7f3a", KeyState::Dead);
    let reply = stack.send(&Call::chat(MODEL)).await?;
    assert_eq!(
        (reply.status.as_u16(), reply.code().as_str()),
        (502, "all_channels_failed"),
        "{}",
        reply.text()
    );
    let view = stack.wait_for_view("shortest", SOON, |v| out_for(v, Cause::Credential)).await?;
    assert_eq!((view.credentials_usable, view.credentials_total), (0, 1));
    stack.provider.key("sk-canary-7f3a", KeyState::Valid);
    let round = stack.control.grpcurl().call("ChannelAdminService/ProbeNow", &json!({})).await?;
    assert_eq!(round, json!({"scanned": 1, "recovered": ["shortest"]}));
    stack.wait_for_view("shortest", Duration::from_secs(2), active).await?;
    stack.settled().await?;
    assert_eq!(stack.send(&Call::chat(MODEL)).await?.status, 200);
    Ok(())
}
