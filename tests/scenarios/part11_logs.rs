//! Part 11: what is logged, once, and what never is.

use anyhow::{Context as _, Result};
use spareline_proto::registry::v1::Cause;
use spareline_tests::{
    http::Call,
    process::LogLine,
    provider::script::{Answer, Ending, Rule},
    stack::{Plan, SOON, Stack},
};

use crate::support::{MODEL, demo, out_for};

async fn finished(stack: &Stack, request_id: &str) -> Result<LogLine> {
    let wanted = |l: &LogLine| l.is("request_finished") && l.str("request_id") == request_id;
    stack.proxies[0].process.wait_for_log(SOON, wanted).await
}

#[tokio::test]
async fn part11_one_line_per_request_with_its_attempts_times_tokens_and_ending() -> Result<()> {
    let stack = demo(Plan::default()).await?;
    let stream = Call::chat_stream(MODEL).header("x-request-id", "the-callers-own-id");
    let reply = stack.until(0, &stream, |r| r.attempts().contains("mock-bad-key")).await?;
    assert_eq!(reply.header("x-request-id"), "the-callers-own-id");
    let wanted = |l: &LogLine| l.is("request_finished") && l.text.contains("mock-bad-key");
    let line = stack.proxies[0].process.wait_for_log(SOON, wanted).await?;
    assert_eq!(line.str("request_id"), "the-callers-own-id");
    assert_eq!(
        (line.str("group"), line.str("model"), line.str("ending")),
        ("default", MODEL, "complete"),
        "{}",
        line.text
    );
    for (channel, outcome) in [("mock-bad-key", "disable"), ("mock-primary", "ok")] {
        assert!(line.text.contains(channel) && line.text.contains(outcome), "{}", line.text);
    }
    for field in ["first_content_ms", "total_ms"] {
        assert!(line.field(field).is_number(), "{field}: {}", line.text);
    }
    let lines = stack.proxies[0].process.log();
    let mine = lines.iter().filter(|l| l.is("request_finished") && l.text.contains("mock-bad-key:"));
    assert!(mine.count() <= 1, "more than one line for one request");

    let reply = stack.send(&Call::chat(MODEL)).await?;
    let line = finished(&stack, reply.header("x-request-id")).await?;
    assert!(line.text.contains("13") || line.text.contains("tokens"), "no tokens: {}", line.text);
    stack.provider.rule(Rule::always(Answer::Part { events: 3, then: Ending::Cut }).stream(true));
    let reply = stack.send(&Call::chat_stream(MODEL)).await?;
    let line = finished(&stack, reply.header("x-request-id")).await?;
    assert_eq!(line.str("ending"), "broken", "{}", line.text);
    Ok(())
}

#[tokio::test]
async fn part11_status_changes_are_told_on_both_sides() -> Result<()> {
    let stack = demo(Plan { proxies: 2, ..Plan::default() }).await?;
    stack.until(0, &Call::chat(MODEL), |r| r.attempts().contains("mock-bad-key")).await?;
    stack.wait_for_view("mock-bad-key", SOON, |v| out_for(v, Cause::Credential)).await?;
    let processes = stack.proxies.iter().map(|p| &p.process).chain([&stack.control.process]);
    for process in processes {
        let changed = process.wait_for_log(SOON, |l| l.is("status_changed")).await?;
        assert!(changed.text.contains("credential"), "{}", changed.text);
        assert!(!changed.str("reason").is_empty() && !changed.str("cause").is_empty(), "{}", changed.text);
        let out = process.wait_for_log(SOON, |l| l.is("channel_disabled")).await?;
        assert_eq!(out.str("channel"), "mock-bad-key", "{}", out.text);
    }
    let enable = spareline_proto::admin::v1::EnableSubjectRequest {
        subject: crate::support::channel("mock-bad-key"),
        comment: String::new(),
    };
    stack.control.channels()?.enable_subject(enable).await?;
    for process in stack.proxies.iter().map(|p| &p.process).chain([&stack.control.process]) {
        let back = process.wait_for_log(SOON, |l| l.is("channel_recovered")).await?;
        assert_eq!(back.str("channel"), "mock-bad-key", "{}", back.text);
    }
    Ok(())
}

#[tokio::test]
async fn part11_no_secret_and_no_prompt_in_any_log_metric_error_or_page() -> Result<()> {
    let debug = ["--log-level".to_owned(), "trace".to_owned()].to_vec();
    let stack = Stack::start(Plan { proxy: debug, ..Plan::default() }).await?;
    stack.create(stack.channel("one", MODEL), &["sk-canary-good"]).await?;
    stack.create(stack.channel("two", MODEL), &["sk-canary-dead"]).await?;
    stack.settled().await?;
    let leak = serde_json::json!({"error": {"message": "Incorrect API key provided: sk-canary-dead.", "type": "invalid_request_error", "code": "invalid_api_key"}});
    stack.provider.rule(Rule::for_key("sk-canary-dead", Answer::json(401, &leak)));
    let prompt =
        serde_json::json!({"model": MODEL, "messages": [{"role": "user", "content": "canary prompt"}]});
    let call = Call::json("/v1/chat/completions", &prompt).header("authorization", "Bearer canary-caller");
    stack.until(0, &call, |r| r.attempts().contains("two:disable:401")).await?;
    let view = stack.wait_for_view("two", SOON, |v| out_for(v, Cause::Credential)).await?;
    let mut told = vec![("the view", format!("{view:?}")), ("the logs", stack.all_logs())];
    let proxy = stack.proxies.first().context("a proxy")?;
    for page in ["/metrics", "/debug/registry", "/readyz"] {
        told.push((page, Call::get(page).send(proxy.admin).await?.text()));
    }
    let events =
        stack.control.grpcurl().call("ChannelAdminService/ListEvents", &serde_json::json!({})).await?;
    told.push(("the events", events.to_string()));
    for (place, text) in told {
        assert!(!text.is_empty(), "{place} is empty");
        for canary in ["sk-canary", "canary prompt", "canary-caller"] {
            assert!(!text.contains(canary), "`{canary}` in {place}: {text}");
        }
    }
    Ok(())
}
