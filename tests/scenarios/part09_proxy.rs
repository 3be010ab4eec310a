//! Part 9: the request path, against a provider that does everything wrong.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use spareline_proto::{
    admin::v1::ChannelView,
    registry::v1::{Cause, Channel, Endpoint, ModelEntry},
};
use spareline_tests::{
    http::Call,
    provider::{
        record::{End, sha256},
        script::{Answer, Encoding, Ending, Failure, KeyState, Pace, Rule},
    },
    stack::{Plan, SOON, Stack},
};

use crate::support::{LIMIT, MODEL, out_for};

/// `wild` is scripted by the test and is drawn first; `tame` in the layer below always works.
async fn wild_and_tame() -> Result<Stack> {
    let stack = Stack::small().await?;
    stack.create(Channel { priority: 1, ..stack.quick_channel("wild", MODEL, LIMIT) }, &["sk-wild"]).await?;
    stack.create(stack.quick_channel("tame", MODEL, LIMIT), &["sk-tame"]).await?;
    stack.settled().await?;
    Ok(stack)
}

/// Everything that may go wrong before the first content, and the entry it leaves in `x-spareline-attempts`.
fn failures(stream: bool) -> Vec<(&'static str, Answer)> {
    let html = |status| Answer::text(status, "text/html", "<html><body>nginx</body></html>");
    let mut all = vec![
        ("wild:retryable:503", Answer::fail(Failure::Overloaded)),
        ("wild:retryable:500", Answer::fail(Failure::ServerError)),
        ("wild:retryable:502", html(502)),
        ("wild:retryable:403", html(403)),
        ("wild:retryable:reset", Answer::Close),
        ("wild:retryable:reset", Answer::Reset),
        ("wild:retryable:empty_response", Answer::text(200, "application/json", "")),
        ("wild:retryable", html(200)),
        ("wild:throttle:429", Answer::Fail { error: Failure::RateLimit, retry_after: Some("2".into()) }),
    ];
    if stream {
        let error = "data: {\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\",\"code\":null}}\n\n";
        let events = |events: &[&str], then| Answer::Stream {
            events: events.iter().map(|&e| e.to_owned()).collect(),
            then,
        };
        all.extend([
            ("wild:retryable", events(&[error], Ending::End)),
            ("wild:retryable", events(&["data: [DONE]\n\n"], Ending::End)),
            ("wild:retryable", events(&[": ping\n\n", ": ping\n\n"], Ending::End)),
            ("wild:retryable", Answer::Part { events: 1, then: Ending::End }),
            ("wild:retryable", Answer::Part { events: 1, then: Ending::Cut }),
        ]);
    } else {
        all.extend([
            (
                "wild:retryable:parse_error",
                Answer::text(200, "application/json", "{\"id\":\"chatcmpl-1\",\"choi"),
            ),
            ("wild:retryable", Answer::Part { events: 1, then: Ending::Cut }),
            (
                "wild:retryable",
                Answer::json(200, &json!({"error": {"message": "boom", "type": "server_error"}})),
            ),
        ]);
    }
    all
}

#[tokio::test]
async fn part09_before_the_commit_every_failure_switches_and_nobody_notices() -> Result<()> {
    for stream in [false, true] {
        for (entry, answer) in failures(stream) {
            // A stack of its own: some of these leave an overlay behind.
            let stack = wild_and_tame().await?;
            stack.provider.rule(Rule::for_key("sk-wild", answer.clone()).stream(stream));
            let call = if stream { Call::chat_stream(MODEL) } else { Call::chat(MODEL) };
            let reply = stack.send(&call).await?;
            stack.provider.behave();
            assert_eq!(reply.status, 200, "{answer:?}: {} [{}]", reply.text(), reply.attempts());
            assert_eq!(reply.content(), "Hello from the provider", "{answer:?}");
            assert!(reply.broken.is_none(), "{answer:?}: {:?}", reply.broken);
            let attempts = reply.attempts();
            assert!(
                attempts.starts_with(entry) && attempts.ends_with(", tame:ok:200"),
                "{answer:?}: {attempts}"
            );
            assert_eq!(reply.text().matches("[DONE]").count(), usize::from(stream), "{answer:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn part09_silence_is_given_up_after_its_limit_and_named() -> Result<()> {
    let stack = wild_and_tame().await?;
    for (stream, answer, limit) in [
        (false, Answer::Hang, "response_timeout"),
        (true, Answer::Hang, "first_content_timeout"),
        (true, Answer::HeadThenHang, "first_content_timeout"),
        (true, Answer::Part { events: 1, then: Ending::Hang }, "first_content_timeout"),
    ] {
        stack.provider.rule(Rule::for_key("sk-wild", answer.clone()));
        let call = if stream { Call::chat_stream(MODEL) } else { Call::chat(MODEL) };
        let reply = stack.send(&call).await?;
        stack.provider.behave();
        assert_eq!(reply.attempts(), format!("wild:retryable:{limit}, tame:ok:200"), "{answer:?}");
        assert!(
            reply.took >= LIMIT && reply.took < LIMIT + Duration::from_secs(3),
            "{answer:?} took {:?}",
            reply.took
        );
    }
    let closed = |all: &[spareline_tests::provider::record::Record]| {
        all.iter().filter(|r| r.answer.end == Some(End::PeerClosed)).count() >= 4
    };
    stack.provider.wait_until(SOON, closed).await?;
    Ok(())
}

#[tokio::test]
async fn part09_after_the_commit_bytes_pass_and_the_end_is_honest() -> Result<()> {
    let stack = wild_and_tame().await?;
    for then in [Ending::Cut, Ending::Reset, Ending::Hang, Ending::End] {
        stack.provider.rule(Rule::for_key("sk-wild", Answer::Part { events: 3, then }));
        stack.provider.forget();
        let reply = stack.send(&Call::chat_stream(MODEL)).await?;
        stack.provider.behave();
        assert_eq!((reply.status.as_u16(), reply.attempts()), (200, "wild:ok:200"), "{then:?}");
        let text = reply.text();
        let events: Vec<&str> = text.split_inclusive("\n\n").collect();
        assert_eq!(events.len(), 4, "three events and one error: {then:?}: {text}");
        let before = sha256(events[..3].concat().as_bytes());
        let seen = stack.provider.requests();
        assert_eq!(
            seen.last().and_then(|r| r.answer.sha256.clone()),
            Some(before),
            "{then:?}: the bytes changed"
        );
        assert!(events[3].contains("stream_interrupted"), "{then:?}: {text}");
        assert!(!text.contains("[DONE]"), "{then:?}: a made-up [DONE]: {text}");
        assert_eq!(seen.len(), 1, "{then:?}: a second attempt after the commit");
    }
    Ok(())
}

#[tokio::test]
async fn part09_streams_pass_byte_for_byte_however_they_are_cut_into_pieces() -> Result<()> {
    let stack = wild_and_tame().await?;
    let delta = |content: &str| {
        format!(
            "data: {}\n\n",
            json!({"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": content}}]})
        )
    };
    let stop = "data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}";
    let events = vec![
        ": a comment\r\n\r\n".to_owned(),
        delta("grüße \u{2028} 🦀"),
        "data: not json at all\n\n".to_owned(),
        delta(&"x".repeat(100_000)),
        format!("{stop}\r\n\r\n"),
        "data: [DONE]\n\n".to_owned(),
    ];
    for bytes in [1, 2, 3, 7, 1000, 65_536] {
        let mut rule = Rule::for_key("sk-wild", Answer::Stream { events: events.clone(), then: Ending::End });
        rule.pace = Pace { bytes: Some(bytes), delay_ms: 0 };
        stack.provider.rule(rule);
        let reply = stack.send(&Call::chat_stream(MODEL)).await?;
        assert_eq!(reply.broken, None, "pieces of {bytes}");
        assert_eq!(sha256(&reply.body), sha256(events.concat().as_bytes()), "pieces of {bytes}: other bytes");
    }
    Ok(())
}

#[tokio::test]
async fn part09_events_are_passed_on_when_they_come() -> Result<()> {
    let stack = wild_and_tame().await?;
    let mut rule = Rule::for_key("sk-wild", Answer::Good);
    rule.pace = Pace { bytes: None, delay_ms: 100 };
    stack.provider.rule(rule);
    let start = Instant::now();
    let mut stream = Call::chat_stream(MODEL).open(stack.http()?).await?;
    let mut seen = String::new();
    while !seen.contains("Hello") {
        let piece = stream.piece().await?.context("a stream with content")?;
        seen.push_str(&String::from_utf8_lossy(&piece));
    }
    let first_at = start.elapsed();
    assert!(!seen.contains(" from"), "held longer than to the first content: {seen}");
    while stream.piece().await?.is_some() {}
    assert!(start.elapsed() - first_at > Duration::from_millis(300), "the stream came in one piece");
    Ok(())
}

#[tokio::test]
async fn part09_a_leaving_caller_closes_upstream_and_blames_nobody() -> Result<()> {
    let stack = wild_and_tame().await?;
    for answer in [Answer::Hang, Answer::HeadThenHang, Answer::Part { events: 3, then: Ending::Hang }] {
        stack.provider.rule(Rule::for_key("sk-wild", answer.clone()));
        stack.provider.forget();
        let to = stack.http()?;
        let waiting = tokio::spawn(async move {
            let mut stream = Call::chat_stream(MODEL).open(to).await?;
            while stream.piece().await?.is_some() {}
            anyhow::Ok(())
        });
        stack.provider.wait_until(SOON, |all| !all.is_empty()).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        waiting.abort();
        let left = Instant::now();
        stack
            .provider
            .wait_until(SOON, |all| all.iter().all(|r| r.answer.end == Some(End::PeerClosed)))
            .await?;
        assert!(
            left.elapsed() < Duration::from_secs(1),
            "{answer:?}: upstream was open for {:?}",
            left.elapsed()
        );
        assert_eq!(stack.provider.requests().len(), 1, "{answer:?}: something new was started");
        stack.provider.behave();
    }
    let reply = stack.send(&Call::chat(MODEL)).await?;
    assert_eq!(reply.attempts(), "wild:ok:200");
    Ok(())
}

#[tokio::test]
async fn part09_assured_streams_are_whole_or_an_error() -> Result<()> {
    let stack = wild_and_tame().await?;
    let call = Call::chat_stream(MODEL).header("x-spareline-stream", "assured");
    for then in [Ending::Cut, Ending::End] {
        stack.provider.rule(Rule::for_key("sk-wild", Answer::Part { events: 3, then }));
        let reply = stack.send(&call).await?;
        stack.provider.behave();
        assert!(reply.attempts().ends_with(", tame:ok:200"), "{then:?}: {}", reply.attempts());
        assert_eq!(reply.content(), "Hello from the provider", "{then:?}");
    }
    Ok(())
}

#[tokio::test]
async fn part09_a_requests_own_fault_is_passed_on_as_it_came() -> Result<()> {
    let stack = wild_and_tame().await?;
    for (error, status, code) in [
        (Failure::ContextLength, 400, "context_length_exceeded"),
        (Failure::BadParameter, 400, "invalid_value"),
    ] {
        stack.provider.rule(Rule::for_key("sk-wild", Answer::fail(error)));
        let reply = stack.send(&Call::chat(MODEL)).await?;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (status, code));
        assert_eq!(reply.attempts(), format!("wild:transparent:{status}"));
    }
    Ok(())
}

#[tokio::test]
async fn part09_dead_keys_unknown_models_and_quota_switch() -> Result<()> {
    for (state, entry) in [(KeyState::Dead, "wild:disable:401"), (KeyState::OutOfQuota, "wild:disable:429")] {
        let stack = wild_and_tame().await?;
        stack.provider.key("sk-wild", state);
        let reply = stack.send(&Call::chat(MODEL)).await?;
        assert_eq!(reply.attempts(), format!("{entry}, tame:ok:200"));
    }
    let stack = wild_and_tame().await?;
    stack.provider.rule(Rule::for_key("sk-wild", Answer::fail(Failure::ModelNotFound)));
    let reply = stack.send(&Call::chat(MODEL)).await?;
    assert_eq!(reply.attempts(), "wild:model_unavailable:404, tame:ok:200");
    Ok(())
}

#[tokio::test]
async fn part09_fifteen_dead_keys_and_five_good_ones_never_fail_a_caller() -> Result<()> {
    let stack = Stack::small().await?;
    for n in 0..15 {
        stack.provider.key(&format!("sk-dead-{n}"), KeyState::Dead);
        stack.create(stack.channel(&format!("dead-{n}"), MODEL), &[&format!("sk-dead-{n}")]).await?;
    }
    for n in 0..5 {
        stack.create(stack.channel(&format!("good-{n}"), MODEL), &[&format!("sk-good-{n}")]).await?;
    }
    stack.settled().await?;
    for _ in 0..40 {
        let reply = stack.send(&Call::chat(MODEL)).await?;
        assert_eq!(reply.status, 200, "{} [{}]", reply.text(), reply.attempts());
    }
    Ok(())
}

#[tokio::test]
async fn part09_a_dead_key_of_three_costs_one_key() -> Result<()> {
    let stack = Stack::small().await?;
    stack.provider.key("sk-2", KeyState::Dead);
    stack.create(stack.channel("three-keys", MODEL), &["sk-1", "sk-2", "sk-3"]).await?;
    stack.settled().await?;
    let reply = stack.until(0, &Call::chat(MODEL), |r| r.attempts().contains("disable")).await?;
    assert!(reply.attempts().starts_with("three-keys#2:disable:401, three-keys#"), "{}", reply.attempts());
    let usable =
        |v: &spareline_proto::admin::v1::ChannelView| (v.credentials_usable, v.credentials_total) == (2, 3);
    stack.wait_for_view("three-keys", SOON, usable).await?;
    Ok(())
}

#[tokio::test]
async fn part09_endpoints_of_both_dialects_are_served() -> Result<()> {
    let stack = Stack::small().await?;
    let models =
        [MODEL, "mock-embed"].map(|m| ModelEntry { model: m.to_owned(), ..Default::default() }).to_vec();
    stack.create(Channel { models, ..stack.channel("one", MODEL) }, &["sk-1"]).await?;
    let anthropic = Channel { provider: "anthropic".into(), ..stack.channel("two", "mock-claude") };
    stack.create(anthropic, &["sk-2"]).await?;
    stack.settled().await?;
    for (path, body, field) in [
        ("/v1/chat/completions", json!({"model": MODEL, "messages": []}), "/choices/0/message/content"),
        ("/v1/completions", json!({"model": MODEL, "prompt": "x"}), "/choices/0/text"),
        ("/v1/embeddings", json!({"model": "mock-embed", "input": "x"}), "/data/0/embedding/0"),
        ("/v1/responses", json!({"model": MODEL, "input": "x"}), "/output/0/content/0/text"),
        ("/v1/messages", json!({"model": "mock-claude", "max_tokens": 1, "messages": []}), "/content/0/text"),
        ("/v1/images/generations", json!({"model": MODEL, "prompt": "x"}), "/data/0/url"),
        ("/v1/moderations", json!({"model": MODEL, "input": "x"}), "/results/0/flagged"),
    ] {
        let reply = stack.send(&Call::json(path, &body)).await?;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        assert!(reply.json().pointer(field).is_some(), "{path}: {}", reply.text());
        let sent = stack.provider.requests().last().map(|r| r.path.clone());
        assert_eq!(sent.as_deref(), Some(path), "sent upstream to another path");
    }
    let speech = stack
        .send(&Call::json("/v1/audio/speech", &json!({"model": MODEL, "input": "x", "voice": "v"})))
        .await?;
    assert_eq!((speech.status.as_u16(), speech.header("content-type")), (200, "audio/mpeg"));
    for (path, body) in [
        ("/v1/files", json!({})),
        ("/v1/responses", json!({"model": MODEL, "input": "x", "previous_response_id": "r"})),
    ] {
        let stored = stack.send(&Call::json(path, &body)).await?;
        assert_eq!(
            (stored.status.as_u16(), stored.code().as_str()),
            (501, "endpoint_not_supported"),
            "{path}: {}",
            stored.text()
        );
    }
    Ok(())
}

#[tokio::test]
async fn part09_only_the_model_is_rewritten_and_only_our_credential_goes_up() -> Result<()> {
    let stack = Stack::small().await?;
    let models = vec![ModelEntry {
        model: MODEL.into(),
        upstream_model: "the/other \"name\"".into(),
        ..Default::default()
    }];
    stack.create(Channel { models, ..stack.channel("one", MODEL) }, &["sk-1"]).await?;
    stack.settled().await?;
    let body = format!(
        "{{ \"temperature\" : 1.50,\n \"model\"  : \"{MODEL}\", \"messages\":[{{\"model\":\"{MODEL}\"}}], \"x\":1e2 }}"
    );
    let call = Call::post("/v1/chat/completions", body.clone())
        .header("authorization", "Bearer the-callers-own")
        .header("x-api-key", "the-callers-own")
        .header("cookie", "a=b")
        .header("openai-beta", "assistants=v2")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("connection", "close, x-hop")
        .header("x-hop", "1");
    let reply = stack.send(&call).await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = stack.provider.requests();
    let seen = seen.last().context("a request")?;
    assert_eq!(seen.body, body.replacen(&format!("\"{MODEL}\""), "\"the/other \\\"name\\\"\"", 1));
    assert_eq!(seen.key.as_deref(), Some("sk-1"));
    for gone in ["x-api-key", "cookie", "x-hop", "x-spareline-channel"] {
        assert_eq!(seen.header(gone), None, "{gone} went up: {seen:?}");
    }
    assert_eq!(seen.header("openai-beta"), Some("assistants=v2"));
    assert!(
        seen.header("traceparent").is_some_and(|t| t.contains("0af7651916cd43dd8448eb211c80319c")),
        "{seen:?}"
    );
    assert!(!reply.header("x-request-id").is_empty() && reply.header("x-spareline-channel") == "one");
    Ok(())
}

#[tokio::test]
async fn part09_compressed_answers_and_requests_are_understood() -> Result<()> {
    let stack = wild_and_tame().await?;
    for encoding in [Encoding::Gzip, Encoding::Deflate] {
        for stream in [false, true] {
            let mut rule = Rule::for_key("sk-wild", Answer::Good);
            rule.encoding = Some(encoding);
            stack.provider.rule(rule);
            let call = if stream { Call::chat_stream(MODEL) } else { Call::chat(MODEL) };
            let reply = stack.send(&call).await?;
            stack.provider.behave();
            assert_eq!(
                (reply.status.as_u16(), reply.attempts()),
                (200, "wild:ok:200"),
                "{encoding:?} stream={stream}"
            );
            // Passed on compressed or not, what the headers say must hold.
            if reply.header("content-encoding").is_empty() {
                assert_eq!(reply.content(), "Hello from the provider", "{encoding:?} stream={stream}");
            }
        }
        let mut rule = Rule::for_key("sk-wild", Answer::fail(Failure::InvalidApiKey));
        rule.encoding = Some(encoding);
        stack.provider.rule(rule.times(0));
    }
    let seen = stack.provider.requests();
    assert!(seen.iter().all(|r| r.header("accept-encoding").is_none_or(|e| e == "identity")), "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn part09_models_are_listed_whatever_their_status() -> Result<()> {
    let stack = Stack::small().await?;
    stack.create(stack.channel("b", "vendor/model-b"), &["sk-1"]).await?;
    stack.create(stack.channel("a", "model-a"), &["sk-2"]).await?;
    let subject = crate::support::channel("a");
    let out = spareline_proto::admin::v1::DisableSubjectRequest { subject, comment: String::new() };
    stack.control.channels()?.disable_subject(out).await?;
    stack.settled().await?;
    let list = stack.send(&Call::get("/v1/models")).await?.json();
    let ids = |list: &Value| -> Vec<(String, bool)> {
        let data = list["data"].as_array().into_iter().flatten();
        data.map(|m| (m["id"].as_str().unwrap_or_default().to_owned(), m["spareline"]["usable"] == true))
            .collect()
    };
    assert_eq!(ids(&list), [("model-a".to_owned(), false), ("vendor/model-b".to_owned(), true)], "{list}");
    let usable = stack.send(&Call::get("/v1/models?usable=true")).await?.json();
    assert_eq!(ids(&usable), [("vendor/model-b".to_owned(), true)], "{usable}");
    let one = stack.send(&Call::get("/v1/models/vendor/model-b")).await?;
    assert_eq!((one.status.as_u16(), one.json()["id"].as_str()), (200, Some("vendor/model-b")));
    let none = stack.send(&Call::get("/v1/models/none")).await?;
    assert_eq!((none.status.as_u16(), none.code().as_str()), (404, "model_not_found"));
    Ok(())
}

#[tokio::test]
async fn part09_the_admin_port_answers() -> Result<()> {
    let stack = wild_and_tame().await?;
    let proxy = stack.proxies.first().context("a proxy")?;
    stack.send(&Call::chat(MODEL)).await?;
    assert_eq!(Call::get("/healthz").send(proxy.admin).await?.status, 200);
    assert!(proxy.ready().await?);
    let metrics = Call::get("/metrics").send(proxy.admin).await?.text();
    assert!(metrics.contains("# TYPE") && metrics.contains("spareline_"), "{metrics}");
    let registry = Call::get("/debug/registry").send(proxy.admin).await?;
    assert!(registry.text().contains("wild") && !registry.text().contains("sk-wild"), "{}", registry.text());
    assert_eq!(Call::get("/metrics").send(proxy.http).await?.status, 404, "metrics on the callers' port");
    Ok(())
}

#[tokio::test]
async fn part09_layers_go_in_order_and_weights_drain() -> Result<()> {
    let stack = Stack::small().await?;
    let channel = |name: &str, priority, weight| Channel {
        priority,
        weight: Some(weight),
        ..stack.channel(name, MODEL)
    };
    stack.create(channel("high", 2, 3), &["sk-1"]).await?;
    stack.create(channel("high-drained", 2, 0), &["sk-2"]).await?;
    stack.create(channel("low", 1, 1), &["sk-3"]).await?;
    stack.settled().await?;
    for _ in 0..20 {
        assert_eq!(stack.send(&Call::chat(MODEL)).await?.attempts(), "high:ok:200");
    }
    stack.provider.key("sk-1", KeyState::Dead);
    let reply = stack.send(&Call::chat(MODEL)).await?;
    assert_eq!(reply.attempts(), "high:disable:401, low:ok:200", "a drained channel was drawn");
    Ok(())
}

#[tokio::test]
async fn part09_endpoint_overrides_and_channels_without_a_key() -> Result<()> {
    let stack = Stack::small().await?;
    let endpoints = vec![Endpoint::Embeddings.into()];
    stack.create(Channel { endpoints, ..stack.channel("only-embeddings", MODEL) }, &["sk-1"]).await?;
    let local = Channel { provider: "openai_compatible".into(), ..stack.channel("local", "local-model") };
    stack.create(local, &[]).await?;
    stack.settled().await?;
    let embedding = stack.send(&Call::json("/v1/embeddings", &json!({"model": MODEL, "input": "x"}))).await?;
    assert_eq!(embedding.status, 200, "{}", embedding.text());
    let chat = stack.send(&Call::chat(MODEL)).await?;
    assert_eq!((chat.status.as_u16(), chat.code().as_str()), (404, "endpoint_not_available"));
    let reply = stack.send(&Call::chat("local-model")).await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(stack.provider.requests().last().and_then(|r| r.key.clone()), None, "a key was made up");
    Ok(())
}

#[tokio::test]
async fn part09_sigterm_lets_streams_finish() -> Result<()> {
    let mut stack = wild_and_tame().await?;
    stack.provider.rule(Rule::for_key("sk-wild", Answer::Part { events: 3, then: Ending::Hang }).times(0));
    let mut rule = Rule::for_key("sk-wild", Answer::Good);
    rule.pace = Pace { bytes: None, delay_ms: 200 };
    stack.provider.rule(rule);
    let mut stream = Call::chat_stream(MODEL).open(stack.http()?).await?;
    let mut body = stream.piece().await?.context("a first piece")?.to_vec();
    stack.proxies[0].process.signal("TERM").await?;
    while let Some(piece) = stream.piece().await? {
        body.extend_from_slice(&piece);
    }
    assert!(String::from_utf8_lossy(&body).ends_with("data: [DONE]\n\n"), "the stream was cut");
    assert!(stack.proxies[0].process.ended(SOON).await?.success());
    Ok(())
}

#[tokio::test]
async fn part09_requests_go_on_while_the_control_plane_is_dead() -> Result<()> {
    let mut stack = crate::support::demo(Plan { proxies: 2, embedded: true, ..Plan::default() }).await?;
    let out = |v: &ChannelView| out_for(v, Cause::Credential);
    stack.until(0, &Call::chat(MODEL), |r| r.attempts().contains("mock-bad-key")).await?;
    stack.wait_for_view("mock-bad-key", SOON, out).await?;
    stack.settled().await?;
    let marks: Vec<_> = stack.proxies.iter().map(|p| p.process.mark()).collect();
    stack.control.crash().await?;
    for (proxy, mark) in stack.proxies.iter().zip(&marks) {
        proxy.process.wait_for_log_after(*mark, SOON, |l| l.is("watch_lost")).await?;
        for _ in 0..20 {
            let reply = Call::chat(MODEL).send(proxy.http).await?;
            assert_eq!(
                (reply.status.as_u16(), reply.attempts()),
                (200, "mock-primary:ok:200"),
                "{}",
                reply.text()
            );
        }
    }
    stack.control.restart().await?;
    for (proxy, mark) in stack.proxies.iter().zip(&marks) {
        let line = proxy.process.wait_for_log_after(*mark, SOON, |l| l.is("watch_connected")).await?;
        assert_eq!(line.field("resumed"), &true, "{}", line.text);
        let log = proxy.process.log();
        assert!(
            !log[*mark..].iter().any(|l| *l.field("snapshot") == true),
            "a snapshot although nothing had changed"
        );
    }
    Ok(())
}

#[tokio::test]
async fn part09_a_verdict_reached_without_a_control_plane_is_told_when_it_is_back() -> Result<()> {
    let mut stack = crate::support::demo(Plan { embedded: true, ..Plan::default() }).await?;
    stack.control.crash().await?;
    stack
        .until(0, &Call::chat(MODEL), |r| r.attempts() == "mock-bad-key:disable:401, mock-primary:ok:200")
        .await?;
    for _ in 0..20 {
        assert_eq!(
            stack.send(&Call::chat(MODEL)).await?.attempts(),
            "mock-primary:ok:200",
            "its overlay did not hold"
        );
    }
    stack.control.restart().await?;
    stack.wait_for_view("mock-bad-key", SOON, |v| out_for(v, Cause::Credential)).await?;
    Ok(())
}
