//! Verdicts that can be trusted: what callers, models and odd providers may do without taking a line from others.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use anyhow::Result;
use serde_json::json;
use spareline_proto::{
    admin::v1::{ProbeNowRequest, UpdatePolicyRequest},
    registry::v1::{self as registry, Cause, Channel, Policy, ServingState},
};
use spareline_tests::{
    http::Call,
    provider::script::{Answer, Failure, KeyState, Rule},
    stack::{Plan, SOON, Stack},
};

use crate::support::{MODEL, active, out_for};

/// Its name, headers, body, seconds (0: it stays local), and what the reason quotes.
type Form = (&'static str, &'static [(&'static str, &'static str)], &'static str, i64, &'static str);

/// A 429 with these headers and this body.
fn slow_down(headers: &[(&str, &str)], body: &str) -> Answer {
    let mut all = BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]);
    all.extend(headers.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())));
    Answer::Http { status: 429, headers: all, body: body.to_owned() }
}

#[tokio::test]
async fn verdicts_part5_hints_of_every_form_reach_every_proxy_with_the_providers_own_words() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 2, ..Plan::default() }).await?;
    let phrase = r#"{"error":{"message":"Rate limit reached. Please try again in 20s.","code":"rate_limit_exceeded"}}"#;
    let info = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"x","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"25s"}]}}"#;
    let forms: [Form; 7] = [
        ("seconds", &[("retry-after", "40")], "{}", 40, "retry-after: 40"),
        ("millis", &[("retry-after-ms", "41500")], "{}", 41, "retry-after-ms: 41500"),
        (
            "reset",
            &[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s")],
            "{}",
            360,
            "6m0s",
        ),
        ("phrase", &[], phrase, 20, "20s"),
        ("info", &[], info, 25, "25"),
        ("huge", &[("retry-after", "99999")], "{}", 900, "retry-after: 99999"),
        ("short", &[("retry-after", "3")], "{}", 0, ""),
    ];
    for (name, headers, body, ..) in forms {
        let key = format!("sk-{name}");
        stack.provider.rule(Rule::for_key(&key, slow_down(headers, body)));
        stack.create(Channel { priority: 1, ..stack.channel(name, name) }, &[&key]).await?;
        stack.create(stack.channel(&format!("{name}-spare"), name), &["sk-spare"]).await?;
    }
    stack.settled().await?;
    for (name, ..) in forms {
        let reply = stack.send(&Call::chat(name)).await?;
        assert_eq!(reply.attempts(), format!("{name}:throttle:429, {name}-spare:ok:200"));
    }
    for (name, _, _, seconds, quoted) in forms {
        if seconds == 0 {
            assert!(active(&stack.view(name).await?), "under 10 s it stays where it was heard");
            continue;
        }
        let view = stack.wait_for_view(name, SOON, |v| out_for(v, Cause::Throttled)).await?;
        assert!(view.reason.contains(quoted), "{name}: {}", view.reason);
        let (since, until) = (view.since.unwrap_or_default(), view.until.unwrap_or_default());
        let lasts = until.seconds - since.seconds;
        assert!((seconds - 2..=seconds + 1).contains(&lasts), "{name} lasts {lasts} s");
    }
    stack.settled().await?;
    for (name, _, _, seconds, _) in forms.into_iter().filter(|form| form.3 > 0) {
        let reply = stack.until(1, &Call::chat(name), |_| true).await?;
        assert_eq!(reply.attempts(), format!("{name}-spare:ok:200"), "{seconds} s at the other proxy");
    }
    Ok(())
}

#[tokio::test]
async fn verdicts_part2_callers_with_odd_wishes_take_nothing_from_others() -> Result<()> {
    let stack = Stack::small().await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    let revision = stack.settled().await?;
    let error = |message: &str, code: &str| json!({"error": {"message": message, "type": "invalid_request_error", "code": code}});
    let odd = error("Invalid URL (POST /v1/odd)", "");
    let scope = error("You have insufficient permissions. Missing scopes: model.request.", "missing_scope");
    stack.provider.rule(Rule::always(Answer::json(404, &odd)).path("/odd"));
    stack.provider.rule(Rule::always(Answer::json(403, &scope)).path("/moderations"));
    for path in ["/v1/odd", "/v1/moderations"] {
        let reply = stack.send(&Call::json(path, &json!({"model": MODEL, "input": "x"}))).await?;
        assert!(reply.attempts().starts_with("one:endpoint_missing:"), "{path}: {}", reply.attempts());
    }
    for call in [Call::get("/v1/files/file-x"), Call::chat("made-up"), Call::get("/v1/../etc/passwd")] {
        let reply = stack.send(&call).await?;
        assert!(reply.status.as_u16() >= 400 && reply.attempts().is_empty(), "{}", reply.text());
    }
    for n in 0..9 {
        // The same prompt, nine times: it is the prompt.
        stack.provider.rule(Rule::always(Answer::fail(Failure::ServerError)).times(1));
        let reply = stack.send(&Call::chat(MODEL)).await?;
        assert_eq!(reply.attempts(), "one:retryable:500", "{n}");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(stack.send(&Call::chat(MODEL)).await?.attempts(), "one:ok:200");
    let view = stack.view("one").await?;
    assert!(active(&view) && view.statuses.is_empty(), "{view:?}");
    assert_eq!(stack.settled().await?, revision, "nothing was written");
    Ok(())
}

#[tokio::test]
async fn verdicts_part6_a_dead_key_comes_back_by_a_request_of_its_channels_kind() -> Result<()> {
    let stack = Stack::small().await?;
    let kinds = [
        ("embeds", "text-embedding-3-small", registry::Endpoint::Embeddings, "/v1/embeddings"),
        ("draws", "dall-e-3", registry::Endpoint::Images, "/v1/models"),
        ("thinks", "o3", registry::Endpoint::ChatCompletions, "/v1/chat/completions"),
    ];
    for (name, model, endpoint, _) in kinds {
        let channel = Channel { endpoints: vec![endpoint.into()], ..stack.channel(name, model) };
        stack.create(channel, &[&format!("sk-{name}")]).await?;
        stack.provider.key(&format!("sk-{name}"), KeyState::Dead);
    }
    stack.settled().await?;
    stack
        .send(&Call::json("/v1/embeddings", &json!({"model": "text-embedding-3-small", "input": "x"})))
        .await?;
    stack.send(&Call::json("/v1/images/generations", &json!({"model": "dall-e-3", "prompt": "x"}))).await?;
    stack.send(&Call::chat("o3")).await?;
    for (name, ..) in kinds {
        stack.wait_for_view(name, SOON, |v| out_for(v, Cause::Credential)).await?;
        stack.provider.key(&format!("sk-{name}"), KeyState::Valid);
    }
    let refused = json!({"error": {"message": "Unsupported parameter: 'max_tokens'", "type": "invalid_request_error",
        "param": "max_tokens", "code": "unsupported_parameter"}});
    stack.provider.rule(Rule::for_key("sk-thinks", Answer::json(400, &refused)).times(1));
    stack.provider.forget();
    let round = stack.control.channels()?.probe_now(ProbeNowRequest::default()).await?.into_inner();
    assert_eq!(round.recovered, ["draws", "embeds", "thinks"], "{round:?}");
    for (name, _, _, path) in kinds {
        let asked = stack.provider.requests_of(&format!("sk-{name}"));
        assert_eq!(asked.len(), if name == "thinks" { 2 } else { 1 }, "{name}");
        assert!(asked.iter().all(|r| r.path == path), "{name} was asked at {:?}", asked[0].path);
    }
    Ok(())
}

#[tokio::test]
async fn verdicts_part8_rules_of_the_operators_own_change_both_proxies_under_traffic() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 2, ..Plan::default() }).await?;
    stack.create(Channel { priority: 1, ..stack.channel("quirky", MODEL) }, &["sk-1"]).await?;
    stack.create(stack.channel("spare", MODEL), &["sk-2"]).await?;
    let quirk = json!({"error": {"message": "come back", "code": "quirk"}});
    stack.provider.rule(Rule::for_key("sk-1", Answer::json(418, &quirk)));
    stack.settled().await?;

    let (stop, sent) = (AtomicBool::new(false), AtomicU32::new(0));
    let traffic = async |proxy: usize| -> Result<Vec<String>> {
        let mut seen = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let reply = Call::chat(MODEL).send(stack.proxies[proxy].http).await?;
            assert!(matches!(reply.status.as_u16(), 200 | 418), "{}", reply.text());
            sent.fetch_add(1, Ordering::Relaxed);
            if seen.last().map(String::as_str) != Some(reply.attempts()) {
                seen.push(reply.attempts().to_owned());
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        Ok(seen)
    };
    let operator = async || -> Result<()> {
        for class in ["retryable", "throttle"] {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let rule = registry::Rule {
                rule_id: "quirk".into(),
                code: "quirk".into(),
                class: class.into(),
                ..Default::default()
            };
            let change = UpdatePolicyRequest {
                policy: Some(Policy { rules: vec![rule], ..Default::default() }),
                update_mask: Some(prost_types::FieldMask { paths: vec!["rules".into()] }),
                ..Default::default()
            };
            stack.control.policies()?.update_policy(change).await?;
            stack.settled().await?;
        }
        stack.wait_for_view("quirky", SOON, |v| out_for(v, Cause::Throttled)).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.store(true, Ordering::Relaxed);
        Ok(())
    };
    let (one, two, done) = tokio::join!(traffic(0), traffic(1), operator());
    done?;
    for seen in [one?, two?] {
        assert_eq!(seen.first().map(String::as_str), Some("quirky:transparent:418"));
        assert!(seen.iter().any(|a| a == "quirky:retryable:418, spare:ok:200"), "{seen:?}");
        assert_eq!(seen.last().map(String::as_str), Some("spare:ok:200"), "{seen:?}");
    }
    assert!(sent.load(Ordering::Relaxed) > 50);
    let view = stack.view("quirky").await?;
    let status = view.statuses.iter().find(|s| s.state() != ServingState::Active);
    let rule = status.and_then(|s| s.evidence.as_ref()).map(|e| e.rule_id.as_str());
    assert_eq!(rule, Some("quirk"), "{view:?}");
    Ok(())
}
