//! Part 9: one request over several channels, as the caller sees it.

use crate::support::{
    Provider, Registry, Reply, channel,
    provider::{ANSWER, bad_key, error, unavailable},
    start,
};
use spareline_proto::registry::v1 as pb;

#[tokio::test]
async fn part9_a_plain_request_passes_byte_for_byte() {
    let up = Provider::good().await;
    let proxy = start(Registry::new().channel(channel("a", &up.url))).await;
    let seen = proxy.chat().await;
    assert_eq!((seen.status, seen.text().as_str()), (200, ANSWER));
    assert_eq!(seen.attempts(), "a:ok:200");
    assert_eq!(seen.header("x-spareline-channel"), "a");
    assert_eq!(seen.header("x-request-id").len(), 36);
    let asked = &up.asked()[0];
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.body, crate::support::CHAT);
    assert_eq!(asked.headers["authorization"], "Bearer sk-a");
    let line = &proxy.logs.wait_for(1).await[0];
    assert_eq!(line["event"], "request_finished");
    assert_eq!(line["ending"], "complete");
    assert_eq!(line["attempts"][0]["channel"], "a");
    assert_eq!(line["attempts"][0]["status"], 200);
    assert_eq!((&line["input_tokens"], &line["output_tokens"]), (&3.into(), &5.into()));
    assert_eq!((&line["model"], &line["group"]), (&"m".into(), &"default".into()));
}

#[tokio::test]
async fn layers_are_tried_in_order_each_channel_once() {
    let (a, b, c) =
        (Provider::start(unavailable()).await, Provider::start(unavailable()).await, Provider::good().await);
    let registry = Registry::new()
        .channel(channel("c", &c.url).priority(7))
        .channel(channel("b", &b.url).priority(8))
        .channel(channel("a", &a.url).priority(9));
    let proxy = start(registry).await;
    let seen = proxy.chat().await;
    assert_eq!(seen.status, 200);
    assert_eq!(seen.attempts(), "a:retryable:503, b:retryable:503, c:ok:200");
    assert_eq!((a.hits(), b.hits(), c.hits()), (1, 1, 1));
}

#[tokio::test]
async fn a_dead_key_costs_the_caller_nothing_and_is_not_tried_again() {
    let (bad, good) = (Provider::start(bad_key()).await, Provider::good().await);
    let registry =
        Registry::new().channel(channel("bad", &bad.url).priority(1)).channel(channel("good", &good.url));
    let proxy = start(registry).await;
    assert_eq!(proxy.chat().await.attempts(), "bad:disable:401, good:ok:200");
    for _ in 0..5 {
        assert_eq!(proxy.chat().await.attempts(), "good:ok:200");
    }
    assert_eq!(bad.hits(), 1, "the overlay is in force before the next pick");
    assert_eq!(proxy.shared.spool.len(), 1, "one report per overlay");
    let page = proxy.admin("/debug/registry").await.text();
    assert!(page.contains("\"cause\": \"credential\"") && !page.contains("sk-"), "{page}");
}

#[tokio::test]
async fn fifteen_dead_keys_and_five_good_ones_fail_nobody() {
    let (bad, good) = (Provider::start(bad_key()).await, Provider::good().await);
    let mut registry = Registry::new();
    for n in 0..15 {
        registry = registry.channel(channel(&format!("bad-{n}"), &bad.url));
    }
    for n in 0..5 {
        registry = registry.channel(channel(&format!("good-{n}"), &good.url));
    }
    let proxy = start(registry).await;
    for _ in 0..40 {
        let seen = proxy.chat().await;
        assert_eq!(seen.status, 200, "{}", seen.text());
    }
    assert!(bad.hits() <= 15);
}

#[tokio::test]
async fn the_sibling_key_of_a_channel_may_be_next() {
    let up = Provider::good().await.then([bad_key()]);
    let proxy = start(Registry::new().channel(channel("a", &up.url).keys(&["sk-1", "sk-2"]))).await;
    let seen = proxy.chat().await;
    let entries: Vec<&str> = seen.attempts().split(", ").collect();
    assert_eq!(seen.status, 200);
    assert!(
        entries == ["a#1:disable:401", "a#2:ok:200"] || entries == ["a#2:disable:401", "a#1:ok:200"],
        "{entries:?}"
    );
    let keys: Vec<_> = up.asked().iter().map(|a| a.headers["authorization"].clone()).collect();
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn our_keys_never_show_as_the_callers() {
    let up = Provider::start(bad_key()).await;
    let proxy = start(Registry::new().channel(channel("a", &up.url))).await;
    let seen = proxy.chat().await;
    assert_eq!((seen.status, seen.code().as_str()), (502, "all_channels_failed"));
    assert_eq!(seen.json()["error"]["attempts"][0], "a:disable:401");
    assert_eq!(seen.attempts(), "a:disable:401");
}

#[tokio::test]
async fn a_request_at_fault_comes_back_after_one_attempt() {
    let body = r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#;
    let a = Provider::start(Reply::Plain(400, "application/json", body.into())).await;
    let b = Provider::good().await;
    let proxy =
        start(Registry::new().channel(channel("a", &a.url).priority(1)).channel(channel("b", &b.url))).await;
    let seen = proxy.chat().await;
    assert_eq!((seen.status, seen.text().as_str()), (400, body));
    assert_eq!(seen.attempts(), "a:transparent:400");
    assert_eq!(b.hits(), 0);
    let line = &proxy.logs.wait_for(1).await[0];
    assert_eq!(line["ending"], "transparent");
}

#[tokio::test]
async fn a_broken_wire_switches_and_is_named() {
    let good = Provider::good().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let registry = Registry::new()
        .channel(channel("gone", &format!("http://{closed}/v1")).priority(2))
        .channel(channel("nowhere", "http://does-not-exist.invalid/v1").priority(1))
        .channel(channel("good", &good.url));
    let proxy = start(registry).await;
    let seen = proxy.chat().await;
    assert_eq!(seen.attempts(), "gone:retryable:refused, nowhere:retryable:dns, good:ok:200");
}

#[tokio::test]
async fn answers_that_are_none_switch() {
    let good = Provider::good().await;
    for (reply, word) in [
        (Reply::Plain(200, "text/html", "<html>welcome</html>".into()), "parse_error"),
        (Reply::Plain(200, "application/json", String::new()), "empty_response"),
        (Reply::Plain(200, "application/json", r#"{"id":"x","cho"#.into()), "parse_error"),
    ] {
        let odd = Provider::start(reply).await;
        let registry =
            Registry::new().channel(channel("odd", &odd.url).priority(1)).channel(channel("good", &good.url));
        let proxy = start(registry).await;
        assert_eq!(proxy.chat().await.attempts(), format!("odd:retryable:{word}, good:ok:200"));
    }
}

#[tokio::test]
async fn all_throttled_says_when_to_come_back() {
    let up = Provider::start(Reply::With(
        429,
        "retry-after",
        "30",
        r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#.into(),
    ))
    .await;
    let proxy = start(Registry::new().channel(channel("a", &up.url))).await;
    for _ in 0..2 {
        let seen = proxy.chat().await;
        assert_eq!((seen.status, seen.code().as_str()), (503, "all_throttled"), "{}", seen.text());
        let wait: u64 = seen.header("retry-after").parse().unwrap();
        assert!((29..=33).contains(&wait), "{wait}");
    }
    assert_eq!(up.hits(), 1, "a hint is obeyed");
}

#[tokio::test]
async fn attempts_are_bounded() {
    let up = Provider::start(unavailable()).await;
    let mut registry = Registry::new();
    for n in 0..6 {
        registry = registry.channel(channel(&format!("c{n}"), &up.url));
    }
    let proxy = start(registry).await;
    let seen = proxy.chat().await;
    assert_eq!((seen.status, seen.code().as_str()), (502, "max_attempts_exceeded"));
    assert_eq!(up.hits(), 3);
}

#[tokio::test]
async fn same_channel_retries_and_waiting_for_a_hint_stay_where_they_are() {
    let a = Provider::good().await.then([unavailable()]);
    let policy = pb::Policy { same_channel_retries: Some(1), ..Default::default() };
    let proxy = start(Registry::new().channel(channel("a", &a.url)).policy(policy)).await;
    assert_eq!(proxy.chat().await.attempts(), "a:retryable:503, a:ok:200");

    let limited =
        error(429, "requests", "rate_limit_exceeded", "Rate limit reached. Please try again in 1s.");
    let a = Provider::good().await.then([limited]);
    let wait = prost_types::Duration { seconds: 3, nanos: 0 };
    let policy = pb::Policy { throttle_wait_max: Some(wait), ..Default::default() };
    let b = Provider::good().await;
    let registry = Registry::new()
        .channel(channel("a", &a.url).priority(1))
        .channel(channel("b", &b.url))
        .policy(policy);
    let proxy = start(registry).await;
    assert_eq!(proxy.chat().await.attempts(), "a:throttle:429, a:ok:200");
    assert_eq!(b.hits(), 0);
}

#[tokio::test]
async fn a_pinned_request_stays_and_an_unknown_pin_is_said() {
    let (a, b) = (Provider::start(unavailable()).await, Provider::good().await);
    let policy = pb::Policy { allow_pinning: Some(true), ..Default::default() };
    let registry = Registry::new().channel(channel("a", &a.url)).channel(channel("b", &b.url)).policy(policy);
    let proxy = start(registry).await;
    let pinned = |name: &'static str| {
        let request = crate::support::client().post(proxy.url("/v1/chat/completions"));
        proxy.send(request.header("x-spareline-channel", name).body(crate::support::CHAT))
    };
    let seen = pinned("a").await;
    assert_eq!((seen.status, seen.attempts()), (502, "a:retryable:503"));
    assert_eq!(pinned("b").await.attempts(), "b:ok:200");
    assert_eq!(pinned("2").await.attempts(), "b:ok:200", "by id");
    let seen = pinned("nobody").await;
    assert_eq!((seen.status, seen.code().as_str()), (404, "channel_not_found"));
}

#[tokio::test]
async fn a_slow_upstream_is_left_and_the_limit_is_named() {
    let (slow, good) = (Provider::start(Reply::Hang).await, Provider::good().await);
    let registry = Registry::new()
        .channel(channel("slow", &slow.url).priority(1).limits_ms(200, 200, 200))
        .channel(channel("good", &good.url));
    let proxy = start(registry).await;
    assert_eq!(proxy.chat().await.attempts(), "slow:retryable:response_timeout, good:ok:200");
    slow.closed().await;

    let alone = start(Registry::new().channel(channel("slow", &slow.url).limits_ms(200, 200, 200))).await;
    for seen in [alone.chat().await, alone.stream().await] {
        assert_eq!((seen.status, seen.code().as_str()), (504, "upstream_timeout"), "{}", seen.text());
        assert!(seen.text().contains("_timeout fired"), "{}", seen.text());
    }
}

#[tokio::test]
async fn a_model_the_channel_does_not_know_costs_that_channel_that_model_only() {
    let unknown = error(404, "invalid_request_error", "model_not_found", "The model `x` does not exist");
    let (a, b) = (Provider::start(unknown).await, Provider::good().await);
    let two = |made: crate::support::registry::Made| {
        made.with(|c| c.models.push(pb::ModelEntry { model: "n".into(), ..Default::default() }))
    };
    let registry =
        Registry::new().channel(two(channel("a", &a.url).priority(1))).channel(two(channel("b", &b.url)));
    let proxy = start(registry).await;
    assert_eq!(proxy.chat().await.attempts(), "a:model_unavailable:404, b:ok:200");
    assert_eq!(proxy.chat().await.attempts(), "b:ok:200");
    a.always(Reply::Ok);
    let other = proxy.post("/v1/chat/completions", r#"{"model":"n","messages":[]}"#).await;
    assert_eq!(other.attempts(), "a:ok:200", "the other model is untouched");
}

#[tokio::test]
async fn metrics_have_bounded_labels_and_say_how_channels_stand() {
    let (bad, good) = (Provider::start(bad_key()).await, Provider::good().await);
    let registry = Registry::new()
        .channel(channel("bad", &bad.url).priority(1).keys(&["sk-1", "sk-2"]))
        .channel(channel("good", &good.url));
    let proxy = start(registry).await;
    proxy.chat().await;
    for n in 0..50 {
        proxy.post("/v1/chat/completions", &format!("{{\"model\":\"invented-{n}\"}}")).await;
    }
    proxy.logs.wait_for(51).await;
    let metrics = proxy.admin("/metrics").await.text();
    for line in [
        "spareline_attempts_total{channel=\"bad\",outcome=\"disable\"} 2",
        "spareline_attempts_total{channel=\"good\",outcome=\"ok\"} 1",
        "spareline_channel_credentials{channel=\"bad\"} 2",
        "spareline_channel_active{channel=\"good\"} 1",
        "spareline_overlays{cause=\"credential\"} 2",
        "spareline_tokens_total{channel=\"good\",direction=\"output\"} 5",
        "spareline_in_flight 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(metrics.contains("model=\"other\"") && !metrics.contains("invented"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"));
    let again = Registry::new().channel(channel("good", &good.url)).view();
    let before = proxy.shared.view();
    assert!(before.line_by_name("bad").is_some());
    proxy.shared.publish(std::sync::Arc::new(again));
    let metrics = proxy.admin("/metrics").await.text();
    assert!(!metrics.contains("channel_active{channel=\"bad\"}"), "{metrics}");
}
