//! Part 5: what operators do, with the real grpcurl and with `apply`.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use spareline_tests::{
    http::Call,
    stack::{Plan, Stack},
    tools::{Answer, Grpcurl},
};

use crate::support::MODEL;

const ALONE: Plan = Plan { proxies: 0, embedded: false, control: Vec::new(), proxy: Vec::new() };

fn channel(name: &str) -> Value {
    json!({"name": name, "provider": "openai", "baseUrl": "http://127.0.0.1:9/v1", "models": [{"model": MODEL}]})
}

async fn create(admin: Grpcurl, name: &str, secret: &str) -> Result<Value> {
    let request = json!({"channel": channel(name), "secrets": [secret]});
    Ok(admin.call("ChannelAdminService/CreateChannel", &request).await?["channel"].clone())
}

/// grpcurl exits with 64 and the gRPC code.
fn assert_code(answer: &Answer, code: tonic::Code, what: &str) {
    assert_eq!(answer.code, 64 + code as i32, "{what}: {answer:?}");
}

#[tokio::test]
async fn part05_create_get_list_update_delete() -> Result<()> {
    let stack = Stack::start(ALONE).await?;
    let admin = stack.control.grpcurl();
    let created = create(admin, "one", "sk-1").await?;
    create(admin, "two", "sk-2").await?;
    let got = admin.call("ChannelAdminService/GetChannel", &json!({"channel": "one"})).await?;
    assert_eq!(got["channel"]["channel"], created);
    assert_eq!(got["channel"]["state"], "SERVING_STATE_ACTIVE");
    let by_id =
        admin.call("ChannelAdminService/GetChannel", &json!({"channel": created["channelId"]})).await?;
    assert_eq!(by_id["channel"]["channel"], created, "by id");

    let page = admin.call("ChannelAdminService/ListChannels", &json!({"pageSize": 1})).await?;
    assert_eq!(page["channels"].as_array().map(Vec::len), Some(1), "{page}");
    let next = json!({"pageSize": 1, "pageToken": page["nextPageToken"]});
    let rest = admin.call("ChannelAdminService/ListChannels", &next).await?;
    let name = |page: &Value| page["channels"][0]["channel"]["name"].as_str().map(str::to_owned);
    assert_ne!(name(&page), name(&rest), "both pages have the same");
    assert!(rest["nextPageToken"].as_str().unwrap_or_default().is_empty(), "{rest}");
    let none = admin.call("ChannelAdminService/ListChannels", &json!({"model": "other"})).await?;
    assert_eq!(none["channels"].as_array().map_or(0, Vec::len), 0, "{none}");

    let update = json!({"channel": {"name": "one", "priority": 7, "etag": created["etag"]}, "updateMask": {"paths": ["priority"]}});
    let updated = admin.call("ChannelAdminService/UpdateChannel", &update).await?;
    assert_eq!(updated["channel"]["priority"], 7);
    assert_eq!(
        updated["channel"]["baseUrl"], created["baseUrl"],
        "an update changed more than its mask says"
    );
    let lost = admin.try_call("ChannelAdminService/UpdateChannel", &update).await?;
    assert_code(&lost, tonic::Code::Aborted, "an old etag");
    let unmasked = json!({"channel": {"name": "one", "priority": 8}});
    let refused = admin.try_call("ChannelAdminService/UpdateChannel", &unmasked).await?;
    assert_code(&refused, tonic::Code::InvalidArgument, "an absent mask");

    admin.call("ChannelAdminService/DeleteChannel", &json!({"channel": "one"})).await?;
    let gone = admin.try_call("ChannelAdminService/GetChannel", &json!({"channel": "one"})).await?;
    assert_code(&gone, tonic::Code::NotFound, "a deleted channel");
    let again = admin.try_call("ChannelAdminService/UpdateChannel", &update).await?;
    assert_code(&again, tonic::Code::NotFound, "an update of a deleted channel");
    admin.call("ChannelAdminService/DeleteChannel", &json!({"channel": "one", "allowMissing": true})).await?;
    Ok(())
}

#[tokio::test]
async fn part05_every_violation_is_told_at_once_and_nothing_is_written() -> Result<()> {
    let stack = Stack::start(ALONE).await?;
    let admin = stack.control.grpcurl();
    let before = admin.call("ChannelAdminService/ListChannels", &json!({})).await?["revision"].clone();
    let bad = json!({"name": "42", "provider": "acme", "baseUrl": "ftp://x", "models": [{"model": ""}]});
    let refused = admin
        .try_call("ChannelAdminService/CreateChannel", &json!({"channel": bad, "secrets": ["s"]}))
        .await?;
    assert_code(&refused, tonic::Code::InvalidArgument, "four mistakes");
    for field in ["channel.name", "channel.provider", "channel.base_url", "channel.models[0].model"] {
        assert!(refused.err.contains(field), "{field} is not named: {refused:?}");
    }
    assert!(refused.err.contains("google.rpc.BadRequest"), "no readable details: {refused:?}");
    let after = admin.call("ChannelAdminService/ListChannels", &json!({})).await?;
    assert_eq!((&after["revision"], after["channels"].as_array().map_or(0, Vec::len)), (&before, 0));
    Ok(())
}

#[tokio::test]
async fn part05_refused_values_each_name_their_field() -> Result<()> {
    let stack = Stack::start(ALONE).await?;
    let admin = stack.control.grpcurl();
    let cases = [
        ("name", json!({"name": "42"})),
        ("name", json!({"name": "Upper"})),
        ("base_url", json!({"baseUrl": "ftp://x"})),
        ("base_url", json!({"baseUrl": "http://user:secret@127.0.0.1/v1"})),
        ("base_url", json!({"baseUrl": "not a url"})),
        ("provider", json!({"provider": "acme"})),
        ("options", json!({"options": {"apiVersion": "2024-10-21"}})),
        ("models", json!({"models": []})),
        ("models", json!({"models": [{"model": "a"}, {"model": "a"}]})),
        ("multiplier", json!({"multiplier": -1})),
    ];
    for (field, change) in cases {
        let mut wrong = channel("fine");
        for (key, value) in change.as_object().context("an object")? {
            wrong[key] = value.clone();
        }
        let request = json!({"channel": wrong, "secrets": ["sk-1"]});
        let refused = admin.try_call("ChannelAdminService/CreateChannel", &request).await?;
        assert_code(&refused, tonic::Code::InvalidArgument, &change.to_string());
        assert!(refused.err.contains(&format!("channel.{field}")), "{change}: {refused:?}");
        assert!(!refused.err.contains("secret@"), "a password was repeated: {refused:?}");
    }
    Ok(())
}

#[tokio::test]
async fn part05_a_name_is_taken_once_and_a_request_id_is_done_once() -> Result<()> {
    let stack = Stack::start(ALONE).await?;
    let admin = stack.control.grpcurl();
    let id = uuid::Uuid::new_v4().to_string();
    let request = json!({"channel": channel("one"), "secrets": ["sk-1"], "requestId": id});
    let first = admin.call("ChannelAdminService/CreateChannel", &request).await?;
    let second = admin.call("ChannelAdminService/CreateChannel", &request).await?;
    assert_eq!(first, second, "the same request, another answer");
    let taken = json!({"channel": channel("one"), "secrets": ["sk-1"]});
    let taken = admin.try_call("ChannelAdminService/CreateChannel", &taken).await?;
    assert_code(&taken, tonic::Code::AlreadyExists, "a name that is taken");
    let other = json!({"channel": channel("two"), "secrets": ["sk-1"], "requestId": id});
    let other = admin.try_call("ChannelAdminService/CreateChannel", &other).await?;
    assert_code(&other, tonic::Code::InvalidArgument, "one request id for two requests");
    let checked = json!({"channel": channel("three"), "secrets": ["sk-1", "sk-9"], "validateOnly": true});
    let checked = admin.call("ChannelAdminService/CreateChannel", &checked).await?;
    let equal = &checked["equalCredentialIds"];
    assert!(equal[0] != "0" && equal[1] == "0", "which of two secrets is stored: {checked}");
    let gone = admin.try_call("ChannelAdminService/GetChannel", &json!({"channel": "three"})).await?;
    assert_code(&gone, tonic::Code::NotFound, "what was only validated");
    Ok(())
}

#[tokio::test]
async fn part05_credentials_are_added_rotated_and_retired_and_never_come_out() -> Result<()> {
    let stack = Stack::small().await?;
    let admin = stack.control.grpcurl();
    let mut fields = channel("one");
    fields["baseUrl"] = json!(stack.provider.base_url());
    let mut told = admin
        .call("ChannelAdminService/CreateChannel", &json!({"channel": fields, "secrets": ["sk-canary-1"]}))
        .await?
        .to_string();
    let rotated = admin
        .call("ChannelAdminService/RotateCredential", &json!({"channel": "one", "secret": "sk-canary-2"}))
        .await?;
    stack.settled().await?;
    stack.send(&Call::chat(MODEL)).await?;
    assert_eq!(stack.provider.requests().last().and_then(|r| r.key.clone()).as_deref(), Some("sk-canary-2"));
    let added = admin
        .call(
            "ChannelAdminService/AddCredential",
            &json!({"channel": "one", "secret": "sk-canary-a-key-of-usual-length-0003"}),
        )
        .await?;
    let several = admin
        .try_call("ChannelAdminService/RotateCredential", &json!({"channel": "one", "secret": "sk-canary-4"}))
        .await?;
    assert_code(&several, tonic::Code::FailedPrecondition, "a rotation that does not say which of two");
    let fingerprint = added["credential"]["fingerprint"].as_str().context("a fingerprint")?;
    assert!(fingerprint.contains("0003"), "its last four characters: {fingerprint}");
    let retire = json!({"subject": {"channel": "one", "credential": rotated["credential"]["credentialId"]}});
    admin.call("ChannelAdminService/RetireCredential", &retire).await?;
    stack.settled().await?;
    stack.send(&Call::chat(MODEL)).await?;
    assert_eq!(
        stack.provider.requests().last().and_then(|r| r.key.clone()).as_deref(),
        Some("sk-canary-a-key-of-usual-length-0003")
    );
    let view = admin.call("ChannelAdminService/GetChannel", &json!({"channel": "one"})).await?;
    assert_eq!(view["channel"]["credentialsTotal"], 1, "{view}");
    let events = admin.call("ChannelAdminService/ListEvents", &json!({"channel": "one"})).await?;
    for answer in [&rotated, &added, &view, &events] {
        told.push_str(&answer.to_string());
    }
    assert!(!told.contains("sk-canary"), "a secret came out: {told}");
    assert!(!stack.all_logs().contains("sk-canary"), "a secret in a log");
    Ok(())
}

#[tokio::test]
async fn part05_disable_and_enable_of_channel_credential_and_ability() -> Result<()> {
    let stack = Stack::small().await?;
    let admin = stack.control.grpcurl();
    let created = stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    stack.settled().await?;
    let credential = created.credential_ids.first().context("a credential")?.to_string();
    for subject in [
        json!({"channel": "one"}),
        json!({"channel": "one", "credential": credential}),
        json!({"channel": "one", "model": MODEL}),
    ] {
        let request = json!({"subject": subject, "comment": "maintenance"});
        let status = admin.call("ChannelAdminService/DisableSubject", &request).await?;
        assert_eq!(
            (&status["status"]["state"], &status["status"]["cause"]),
            (&json!("SERVING_STATE_DISABLED"), &json!("CAUSE_OPERATOR"))
        );
        stack.settled().await?;
        let out = stack.send(&Call::chat(MODEL)).await?;
        assert_eq!(out.status, 502, "{subject} is out: {}", out.text());
        admin.call("ChannelAdminService/EnableSubject", &request).await?;
        stack.settled().await?;
        assert_eq!(stack.send(&Call::chat(MODEL)).await?.status, 200, "{subject} is back");
    }
    let events = admin.call("ChannelAdminService/ListEvents", &json!({"channel": "one"})).await?;
    let kinds: Vec<_> =
        events["events"].as_array().into_iter().flatten().filter_map(|e| e["kind"].as_str()).collect();
    assert!(kinds.len() >= 7 && kinds.contains(&"channel.created"), "{events}");
    let unknown = json!({"subject": {"channel": "one", "model": "other"}});
    let unknown = admin.try_call("ChannelAdminService/DisableSubject", &unknown).await?;
    assert_code(&unknown, tonic::Code::NotFound, "a model the channel does not have");
    Ok(())
}

#[tokio::test]
async fn part05_policies_change_behaviour_without_a_restart() -> Result<()> {
    let stack = Stack::small().await?;
    let admin = stack.control.grpcurl();
    let effective = admin.call("PolicyAdminService/GetPolicy", &json!({})).await?;
    assert_eq!(effective["effective"]["preset"], "availability", "{effective}");
    assert_eq!(effective["effective"]["maxAttempts"], 3, "{effective}");
    for name in ["one", "two", "three"] {
        let nowhere = spareline_proto::registry::v1::Channel {
            base_url: "http://127.0.0.1:9/v1".into(),
            ..stack.channel(name, MODEL)
        };
        stack.create(nowhere, &[]).await?;
    }
    let change =
        json!({"policy": {"group": "default", "maxAttempts": 2}, "updateMask": {"paths": ["max_attempts"]}});
    admin.call("PolicyAdminService/UpdatePolicy", &change).await?;
    stack.settled().await?;
    let reply = stack.send(&Call::chat(MODEL)).await?;
    assert_eq!(reply.attempts().split(", ").count(), 2, "{}", reply.attempts());
    let foreign = json!({"policy": {"group": "default", "fleet": {"autoDisable": false}}, "updateMask": {"paths": ["fleet"]}});
    let refused = admin.try_call("PolicyAdminService/UpdatePolicy", &foreign).await?;
    assert_code(&refused, tonic::Code::InvalidArgument, "what the fleet believes, in a group's policy");
    let listed = admin.call("PolicyAdminService/ListPolicies", &json!({})).await?;
    assert!(listed.to_string().contains("\"default\""), "{listed}");
    admin.call("PolicyAdminService/DeletePolicy", &json!({"group": "default"})).await?;
    stack.settled().await?;
    let reply = stack.send(&Call::chat(MODEL)).await?;
    assert_eq!(reply.attempts().split(", ").count(), 3, "{}", reply.attempts());
    Ok(())
}

#[tokio::test]
async fn part05_apply_makes_the_registry_match_a_file() -> Result<()> {
    let stack = Stack::small().await?;
    let file = stack.directory().join("registry.yaml");
    let yaml = |priority: i32, second: &str| {
        format!(
            "credentials:\n  main: {{secret_env: MAIN_KEY}}\nchannels:\n  - name: one\n    provider: openai\n    base_url: {url}\n    \
             models: [{{model: {MODEL}}}]\n    credentials: [main]\n    priority: {priority}\n{second}",
            url = stack.provider.base_url()
        )
    };
    let second = "  - name: two\n    provider: openai\n    base_url: http://127.0.0.1:9/v1\n    models: [{model: other}]\n    credentials: [main]\n";
    let secrets = [("MAIN_KEY", "sk-canary-main")];
    std::fs::write(&file, yaml(1, second))?;
    let (ok, dry) = stack.control.apply(&file, &["--dry-run"], &secrets).await?;
    assert!(ok && dry.contains("one") && dry.contains("two"), "{dry}");
    assert_eq!(stack.send(&Call::chat(MODEL)).await?.status, 404, "a dry run wrote something");
    let (ok, text) = stack.control.apply(&file, &[], &secrets).await?;
    assert!(ok, "{text}");
    stack.settled().await?;
    assert_eq!(stack.send(&Call::chat(MODEL)).await?.status, 200);
    assert_eq!(
        stack.provider.requests().last().and_then(|r| r.key.clone()).as_deref(),
        Some("sk-canary-main")
    );

    let before = stack.settled().await?;
    let (ok, text) = stack.control.apply(&file, &[], &secrets).await?;
    assert!(ok, "{text}");
    assert_eq!(stack.settled().await?, before, "applying the same file again wrote something: {text}");

    std::fs::write(&file, yaml(5, ""))?;
    let (ok, diff) = stack.control.apply(&file, &[], &secrets).await?;
    assert!(ok && diff.contains("priority"), "{diff}");
    assert_eq!(stack.view("one").await?.channel.context("a channel")?.priority, 5);
    assert!(stack.view("two").await.is_ok(), "it pruned without being told to");
    let (ok, text) = stack.control.apply(&file, &["--prune"], &secrets).await?;
    assert!(ok, "{text}");
    assert!(stack.view("two").await.is_err(), "--prune left it");
    assert!(!format!("{dry}{diff}{text}{}", stack.all_logs()).contains("sk-canary"), "a secret came out");
    Ok(())
}

#[tokio::test]
async fn part05_apply_names_the_line_of_every_mistake() -> Result<()> {
    let stack = Stack::start(ALONE).await?;
    let file = stack.directory().join("registry.yaml");
    std::fs::write(
        &file,
        "channels:\n  - name: one\n    provider: openai\n    base_url: http://127.0.0.1:9/v1\n    modells: []\n    weight: -1\n    models: [{model: m}]\n",
    )?;
    let (ok, text) = stack.control.apply(&file, &[], &[]).await?;
    assert!(!ok, "it was taken: {text}");
    assert!(text.contains("line 5") && text.contains("modells"), "{text}");
    assert!(text.contains("line 6") && text.contains("weight"), "{text}");
    let none = stack.control.grpcurl().call("ChannelAdminService/ListChannels", &json!({})).await?;
    assert_eq!(none["channels"].as_array().map_or(0, Vec::len), 0, "half of a wrong file was written");
    Ok(())
}

#[tokio::test]
async fn part05_fleet_list_summary_and_wait() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 2, ..Plan::default() }).await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    let admin = stack.control.grpcurl();
    let summary = admin.call("FleetService/GetFleetSummary", &json!({})).await?;
    assert_eq!(summary["connected"], 2, "{summary}");
    let wait = json!({"revision": summary["headRevision"], "timeout": "10s"});
    let wait = admin.call("FleetService/WaitForRevision", &wait).await?;
    assert_eq!(wait, json!({"reached": true}));
    let list = admin.call("FleetService/ListProxies", &json!({})).await?;
    let ids: Vec<_> =
        list["proxies"].as_array().into_iter().flatten().map(|p| p["node"]["proxyId"].clone()).collect();
    assert!(ids.len() == 2 && ids.contains(&json!("proxy-1")) && ids.contains(&json!("proxy-2")), "{list}");
    let future = json!({"revision": "1000000", "timeout": "0.2s"});
    let future = admin.call("FleetService/WaitForRevision", &future).await?;
    assert_ne!(future["reached"], true, "a revision that does not exist was reached: {future}");
    Ok(())
}
