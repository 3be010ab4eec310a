//! Bad input, tried: from callers, operators, configurations, proxies and providers.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use spareline_proto::registry::v1::{Channel, ModelEntry};
use spareline_tests::{
    chaos::{ChaosProxy, Mode},
    http::{Call, raw},
    process::Launch,
    provider::script::{Answer, Ending, Rule},
    stack::{Plan, Proxy, SOON, Stack},
};

use crate::support::{LIMIT, MODEL};

async fn one() -> Result<Stack> {
    let stack = Stack::small().await?;
    stack.create(stack.quick_channel("one", MODEL, LIMIT), &["sk-1"]).await?;
    stack.settled().await?;
    Ok(stack)
}

#[tokio::test]
async fn bad_input_bodies_are_refused_in_the_callers_dialect_and_nothing_is_sent() -> Result<()> {
    let stack = one().await?;
    let model = format!("{{\"model\":\"{MODEL}\"");
    let cases = [
        (400, "invalid_request", "not json".to_owned()),
        (400, "invalid_request", String::new()),
        (400, "invalid_request", "[1, 2]".to_owned()),
        (400, "invalid_request", "{}".to_owned()),
        (400, "invalid_request", "{\"model\": 42}".to_owned()),
        (400, "invalid_request", "{\"model\": null}".to_owned()),
        (400, "invalid_request", "{\"model\": \"\"}".to_owned()),
        (400, "invalid_request", format!("{model},\"model\":\"other\"}}")),
        (400, "invalid_request", format!("{model},\"messages\":[")),
        (400, "invalid_request", format!("{model}}} trailing")),
        (400, "invalid_request", "\u{feff}{".to_owned()),
        (404, "model_not_found", "{\"model\":\"unknown\"}".to_owned()),
    ];
    for (status, code, body) in cases {
        let reply = stack.send(&Call::post("/v1/chat/completions", body.clone())).await?;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (status, code),
            "{body}: {}",
            reply.text()
        );
        let error = &reply.json()["error"];
        assert!(
            error["message"].is_string() && error["type"].is_string() && error.get("param").is_some(),
            "{}",
            reply.text()
        );
        let reply = stack.send(&Call::post("/v1/messages", body.clone())).await?;
        assert_eq!(
            (reply.status.as_u16(), &reply.json()["type"]),
            (status, &json!("error")),
            "{body}: {}",
            reply.text()
        );
    }
    assert!(
        stack.provider.requests().is_empty(),
        "something was sent upstream: {:?}",
        stack.provider.requests()
    );
    Ok(())
}

#[tokio::test]
async fn bad_input_a_body_of_33_mib_is_refused_while_reading() -> Result<()> {
    let stack = one().await?;
    let mut body = format!("{{\"model\":\"{MODEL}\",\"x\":\"").into_bytes();
    body.resize(33 << 20, b'x');
    body.extend_from_slice(b"\"}");
    // The answer may come, and the connection close, before all is sent.
    match stack.send(&Call::post("/v1/chat/completions", body.clone())).await {
        Ok(reply) => assert_eq!((reply.status.as_u16(), reply.code().as_str()), (413, "body_too_large")),
        Err(error) => assert!(format!("{error:#}").contains("onnection"), "{error:#}"),
    }
    let mut said =
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len())
            .into_bytes();
    said.extend_from_slice(&body[..100]);
    let answer =
        String::from_utf8_lossy(&raw(stack.http()?, &said, Duration::from_secs(8)).await?).into_owned();
    assert!(answer.starts_with("HTTP/1.1 413"), "a length that says it all: {answer}");
    assert!(stack.provider.requests().is_empty());
    assert_eq!(stack.send(&Call::chat(MODEL)).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn bad_input_models_endpoints_and_groups_that_are_not_there() -> Result<()> {
    let headers = ["--groups".to_owned(), "default,empty".to_owned()].to_vec();
    let mut stack = Stack::start(Plan { proxy: headers, ..Plan::default() }).await?;
    stack
        .create(Channel { provider: "openai_compatible".into(), ..stack.channel("one", MODEL) }, &["sk-1"])
        .await?;
    stack.settled().await?;
    let unknown = stack.send(&Call::chat("no-such-model")).await?;
    assert_eq!((unknown.status.as_u16(), unknown.code().as_str()), (404, "model_not_found"));
    let responses = stack.send(&Call::json("/v1/responses", &json!({"model": MODEL, "input": "x"}))).await?;
    assert_eq!((responses.status.as_u16(), responses.code().as_str()), (404, "endpoint_not_available"));
    // A group header counts only where it is configured, and only for groups of the proxy.
    let ignored = stack.send(&Call::chat(MODEL).header("x-spareline-group", "vip")).await?;
    assert_eq!(ignored.status, 200, "{}", ignored.text());
    let file = stack.directory().join("proxy.toml");
    std::fs::write(&file, "group_header = \"x-spareline-group\"\ngroups = [\"default\", \"empty\"]\n")?;
    let config = ["--config".to_owned(), file.to_string_lossy().into_owned()];
    let proxy = Proxy::start("with-groups", stack.control.data, &config).await?;
    stack.proxies.push(proxy);
    stack.settled().await?;
    let to = stack.proxies[1].http;
    assert_eq!(Call::chat(MODEL).send(to).await?.status, 200);
    let foreign = Call::chat(MODEL).header("x-spareline-group", "vip").send(to).await?;
    assert_eq!((foreign.status.as_u16(), foreign.code().as_str()), (403, "group_not_allowed"));
    let empty = Call::chat(MODEL).header("x-spareline-group", "empty").send(to).await?;
    assert_eq!((empty.status.as_u16(), empty.code().as_str()), (404, "model_not_found"));
    Ok(())
}

#[tokio::test]
async fn bad_input_weights_all_zero_are_even_shares() -> Result<()> {
    let stack = Stack::small().await?;
    for name in ["one", "two"] {
        stack
            .create(Channel { weight: Some(0), ..stack.channel(name, MODEL) }, &[&format!("sk-{name}")])
            .await?;
    }
    stack.settled().await?;
    stack.until(0, &Call::chat(MODEL), |r| r.attempts() == "one:ok:200").await?;
    stack.until(0, &Call::chat(MODEL), |r| r.attempts() == "two:ok:200").await?;
    Ok(())
}

#[tokio::test]
async fn bad_input_a_proxy_with_a_wrong_control_plane_keeps_trying_says_so_and_is_not_ready() -> Result<()> {
    // An address at which nobody answers, until the test lets somebody.
    let stack = Stack::start(Plan { proxies: 0, ..Plan::default() }).await?;
    let wire = ChaosProxy::start(stack.control.data).await?;
    wire.set(Mode::Refuse);
    let mut proxy = Proxy::start("lost", wire.addr(), &[]).await?;
    let said = proxy.process.wait_for_log(SOON, |l| l.is("watch_lost")).await?;
    assert!(said.text.contains(&wire.addr().to_string()), "it does not say where it looked: {}", said.text);
    assert!(!proxy.ready().await?, "ready without a registry");
    let reply = Call::chat(MODEL).send(proxy.http).await?;
    assert_eq!(
        (reply.status.as_u16(), reply.code().as_str()),
        (503, "registry_not_ready"),
        "{}",
        reply.text()
    );
    assert!(!reply.header("retry-after").is_empty());
    assert!(proxy.process.running());
    wire.set(Mode::Pass);
    proxy.process.wait_for_log(SOON, |l| l.is("registry_applied")).await?;
    assert!(proxy.ready().await?, "it stopped trying");
    Ok(())
}

#[tokio::test]
async fn bad_input_an_unreachable_database_is_retried_and_said() -> Result<()> {
    let url = "postgres://nobody@127.0.0.1:9/none";
    let launch = Launch::product("control", "spareline-control")?;
    let listen = ["--admin-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0", "--log-format", "json"];
    let mut process = launch.arguments(listen).arguments(["--database-url", url]).spawn()?;
    let said = |l: &spareline_tests::process::LogLine| l.text.to_lowercase().contains("database");
    let first = process.wait_for_log(SOON, said).await?;
    let mark = process.mark();
    process.wait_for_log_after(mark, SOON, said).await.context(first.text)?;
    assert!(process.running(), "it gave up");
    process.signal("TERM").await?;
    process.ended(Duration::from_secs(15)).await?;
    Ok(())
}

#[tokio::test]
async fn bad_input_garbage_to_the_watch_hurts_nobody() -> Result<()> {
    let stack = one().await?;
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 4096],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff",
    ] {
        raw(stack.control.data, garbage, Duration::from_secs(1)).await?;
    }
    use spareline_proto::dataplane::v1::{Ack, WatchRequest, watch_request::Message};
    let ack = WatchRequest { message: Some(Message::Ack(Ack::default())) };
    for first in [ack, WatchRequest::default()] {
        let mut watch = stack.control.watch()?;
        let code = match watch.watch(tokio_stream::once(first)).await {
            Err(status) => status.code(),
            Ok(mut answers) => match answers.get_mut().message().await {
                Err(status) => status.code(),
                Ok(message) => anyhow::bail!("answered {message:?}"),
            },
        };
        assert_eq!(code, tonic::Code::InvalidArgument, "a first message that is no hello");
    }
    assert!(stack.settled().await? > 0);
    assert_eq!(stack.send(&Call::chat(MODEL)).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn bad_input_a_provider_answering_html_nothing_or_half_a_json_and_no_other_channel() -> Result<()> {
    let stack = one().await?;
    for answer in [
        Answer::text(200, "text/html", "<html>welcome</html>"),
        Answer::text(200, "application/json", ""),
        Answer::text(200, "application/json", "{\"id\":\"chatcmpl-1\",\"choices\":["),
        Answer::Part { events: 1, then: Ending::Cut },
    ] {
        let stack_rule = Rule::for_key("sk-1", answer.clone());
        stack.provider.rule(stack_rule);
        let reply = stack.send(&Call::chat(MODEL)).await?;
        stack.provider.behave();
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (502, "all_channels_failed"),
            "{answer:?}: {}",
            reply.text()
        );
        assert!(reply.attempts().starts_with("one:retryable"), "{answer:?}: {}", reply.attempts());
        // Different requests, so that they count; but never five in a row.
        assert_eq!(stack.send(&Call::chat(MODEL)).await?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn bad_input_garbage_to_the_proxy_hurts_nobody() -> Result<()> {
    let stack = one().await?;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: nonsense\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        raw(stack.http()?, garbage, Duration::from_secs(1)).await?;
    }
    for (path, status) in [("/", 404), ("/v1", 404), ("/v2/chat/completions", 404)] {
        let reply = stack.send(&Call::json(path, &json!({"model": MODEL}))).await?;
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
    }
    let encoding = Call::chat(MODEL).header("content-encoding", "rot13");
    assert_eq!(stack.send(&encoding).await?.status, 415);
    let broken = Call::chat(MODEL).header("content-encoding", "gzip");
    assert_eq!(stack.send(&broken).await?.status, 400);
    assert_eq!(stack.send(&Call::get("/v1/embeddings")).await?.status, 405);
    let slash =
        stack.send(&Call::json("/v1/chat/completions/", &json!({"model": MODEL, "messages": []}))).await?;
    assert_eq!(slash.status, 200, "a trailing slash: {}", slash.text());
    Ok(())
}

#[tokio::test]
async fn bad_input_odd_paths_of_callers_take_nothing_from_others() -> Result<()> {
    let stack = Stack::small().await?;
    let models = vec![ModelEntry { model: MODEL.into(), ..Default::default() }];
    stack.create(Channel { models, ..stack.channel("one", MODEL) }, &["sk-1"]).await?;
    stack.settled().await?;
    for n in 0..10 {
        let path = format!("/v1/odd/{n}");
        let reply = stack.send(&Call::json(&path, &json!({"model": MODEL}))).await?;
        assert!(reply.status.is_client_error() || reply.status.is_server_error(), "{path}: {}", reply.status);
    }
    let reply = stack.send(&Call::chat(MODEL)).await?;
    assert_eq!((reply.status.as_u16(), reply.attempts()), (200, "one:ok:200"));
    assert!(crate::support::active(&stack.view("one").await?), "a caller's odd path took the channel out");
    Ok(())
}
