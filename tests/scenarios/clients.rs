//! Part 12: the clients people really use, against the provider through the proxy: plain, stream, tools, embeddings,
//! errors, early close, time-outs.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use spareline_proto::registry::v1::{Channel, ModelEntry};
use spareline_tests::{
    http::Call,
    provider::{
        record::End,
        script::{Answer, Ending, KeyState, Rule},
    },
    stack::{SOON, Stack},
    tools,
};

const MODEL: &str = "mock-gpt-4o-mini";
const EMBED: &str = "mock-embed";
const SILENT: &str = "mock-silent";
const HELLO: &str = "Hello from the provider";

/// One good and one dead channel for every model, so that each client lives through failovers too.
async fn stack(provider: &str) -> Result<Stack> {
    let stack = Stack::small().await?;
    let models = [MODEL, EMBED, SILENT].map(|m| ModelEntry { model: m.to_owned(), ..Default::default() });
    let channel = |name: &str| Channel {
        provider: provider.to_owned(),
        models: models.to_vec(),
        ..stack.channel(name, MODEL)
    };
    stack.provider.key("sk-dead", KeyState::Dead);
    stack.provider.rule(Rule::for_key("sk-good", Answer::Hang).model(SILENT));
    stack.create(channel("good"), &["sk-good"]).await?;
    stack.create(channel("dead"), &["sk-dead"]).await?;
    stack.settled().await?;
    Ok(stack)
}

fn assert_all(got: &Value, wanted: &[(&str, Value)]) {
    let wrong: Vec<_> = wanted.iter().filter(|(key, value)| got[*key] != *value).collect();
    assert!(wrong.is_empty(), "wanted {wrong:?}, got {got:#}");
}

/// The caller gave up on the silent model: upstream is closed, and nobody is blamed.
async fn assert_silence_was_closed(stack: &Stack) -> Result<()> {
    let closed = |r: &spareline_tests::provider::record::Record| {
        r.model.as_deref() == Some(SILENT) && r.answer.end == Some(End::PeerClosed)
    };
    stack.provider.wait_until(SOON, |all| all.iter().any(closed)).await?;
    assert!(stack.view("good").await?.reason.is_empty(), "a caller's time-out condemned the channel");
    Ok(())
}

#[tokio::test]
async fn part12_openai_python_sdk() -> Result<()> {
    let stack = stack("openai").await?;
    let base = format!("http://{}/v1", stack.http()?);
    let got = tools::python("openai_sdk.py", &[&base, MODEL, EMBED, SILENT]).await?;
    assert_all(
        &got,
        &[
            ("plain", json!(HELLO)),
            ("usage", json!(13)),
            ("stream", json!(HELLO)),
            ("stream_finish", json!("stop")),
            ("stream_usage", json!(13)),
            ("tool", json!(["weather", {"city": "Paris"}])),
            ("stream_tool", json!({"city": "Paris"})),
            ("completion", json!(HELLO)),
            ("embedding", json!([0.25, -0.5, 0.75])),
            ("response", json!(HELLO)),
            ("response_stream", json!(HELLO)),
            ("response_end", json!("response.completed")),
            ("models", json!([EMBED, MODEL, SILENT])),
            ("model", json!(MODEL)),
            ("unknown_model", json!(["NotFoundError", 404, "model_not_found"])),
            ("missing_messages", json!(["BadRequestError", 400, "invalid_request"])),
            ("early_close", json!(true)),
            ("timeout", json!(["APITimeoutError"])),
            ("timeout_prompt", json!(true)),
        ],
    );
    assert_silence_was_closed(&stack).await
}

#[tokio::test]
async fn part12_openai_python_sdk_sees_a_broken_stream_as_an_error() -> Result<()> {
    let stack = stack("openai").await?;
    stack.provider.rule(Rule::for_key("sk-good", Answer::Part { events: 3, then: Ending::Cut }).stream(true));
    let base = format!("http://{}/v1", stack.http()?);
    let got = tools::python("openai_cut.py", &[&base, MODEL]).await?;
    assert_eq!(got["text"], "Hello from", "{got}");
    assert_eq!(got["finish"], Value::Null, "a finish reason was made up: {got}");
    assert_eq!(got["error"], json!(["APIError", "stream_interrupted"]), "{got}");
    Ok(())
}

#[tokio::test]
async fn part12_anthropic_python_sdk() -> Result<()> {
    let stack = stack("anthropic").await?;
    let base = format!("http://{}", stack.http()?);
    let got = tools::python("anthropic_sdk.py", &[&base, MODEL, SILENT]).await?;
    assert_all(
        &got,
        &[
            ("plain", json!(HELLO)),
            ("usage", json!([9, 4])),
            ("stream", json!(HELLO)),
            ("stream_stop", json!("end_turn")),
            ("tool", json!(["weather", {"city": "Paris"}])),
            ("stream_tool", json!({"city": "Paris"})),
            ("unknown_model", json!(["NotFoundError", 404, "error", "not_found_error"])),
            ("early_close", json!(true)),
            ("timeout", json!(["APITimeoutError"])),
            ("timeout_prompt", json!(true)),
        ],
    );
    let sent = stack.provider.requests_of("sk-good");
    assert!(
        sent.iter().all(|r| r.header("x-api-key").is_some() && r.header("anthropic-version").is_some()),
        "{sent:?}"
    );
    assert_silence_was_closed(&stack).await
}

#[tokio::test]
async fn part12_langchain() -> Result<()> {
    let stack = stack("openai").await?;
    let base = format!("http://{}/v1", stack.http()?);
    let got = tools::python("langchain_client.py", &[&base, MODEL, EMBED, SILENT]).await?;
    assert_all(
        &got,
        &[
            ("plain", json!(HELLO)),
            ("stream", json!(HELLO)),
            ("tool", json!(["weather", {"city": "Paris"}])),
            ("embedding", json!([0.25, -0.5, 0.75])),
            ("early_close", json!(true)),
            ("timeout_prompt", json!(true)),
        ],
    );
    // Its error classes are its own, derived from the SDK's.
    assert_eq!(
        (&got["unknown_model"][1], &got["unknown_model"][2]),
        (&json!(404), &json!("model_not_found")),
        "{got}"
    );
    assert_eq!(got["timeout"][0].as_str().map(|n| n.ends_with("TimeoutError")), Some(true), "{got}");
    assert_silence_was_closed(&stack).await
}

#[tokio::test]
async fn part12_openai_node_sdk() -> Result<()> {
    let stack = stack("openai").await?;
    let base = format!("http://{}/v1", stack.http()?);
    let Some(got) = tools::node("openai_node.mjs", &[&base, MODEL, EMBED, SILENT]).await? else {
        println!("no Node here: left out");
        return Ok(());
    };
    assert_all(
        &got,
        &[
            ("plain", json!(HELLO)),
            ("stream", json!(HELLO)),
            ("tool", json!(["weather", {"city": "Paris"}])),
            ("embedding", json!([0.25, -0.5, 0.75])),
            ("response", json!(HELLO)),
            ("unknown_model", json!(["NotFoundError", 404, "model_not_found"])),
            ("early_close", json!(true)),
            ("timeout", json!(["APIConnectionTimeoutError"])),
            ("timeout_prompt", json!(true)),
        ],
    );
    assert_silence_was_closed(&stack).await
}

#[tokio::test]
async fn part12_curl_sees_headers_and_every_event() -> Result<()> {
    let stack = stack("openai").await?;
    let url = format!("http://{}/v1/chat/completions", stack.http()?);
    let body = json!({"model": MODEL, "stream": true, "messages": []}).to_string();
    let curl = |more: &[&str]| {
        let mut command = tokio::process::Command::new("curl");
        command
            .args(["-sN", "--noproxy", "*", "-H", "content-type: application/json", "-d", &body, &url])
            .args(more);
        command.output()
    };
    let stream = String::from_utf8(curl(&["-i"]).await?.stdout)?;
    assert!(stream.starts_with("HTTP/1.1 200"), "{stream}");
    assert!(stream.to_lowercase().contains("x-spareline-attempts: "), "{stream}");
    assert!(stream.contains("data: [DONE]"), "{stream}");
    // HTTP/1.0, an early close and a time-out: none of them hurts anyone else.
    let old = String::from_utf8(curl(&["-i", "--http1.0"]).await?.stdout)?;
    assert!(old.contains(" 200 ") && old.contains("data: [DONE]"), "{old}");
    stack.provider.rule(Rule::for_key("sk-good", Answer::Hang).times(1));
    assert_eq!(curl(&["-m", "0.3"]).await?.status.code(), Some(28), "curl's own time-out");
    let reply = Call::chat(MODEL).send(stack.http()?).await?;
    assert_eq!((reply.status.as_u16(), reply.content().as_str()), (200, HELLO));
    tokio::time::timeout(Duration::from_secs(5), async {
        stack.provider.wait_until(SOON, |all| all.iter().any(|r| r.answer.end == Some(End::PeerClosed))).await
    })
    .await??;
    Ok(())
}
