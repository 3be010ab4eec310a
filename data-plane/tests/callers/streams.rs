//! Part 9: streams in two phases, as the caller sees them.

use std::time::Duration;

use crate::support::{
    Provider, Registry, Reply, channel,
    provider::{ANSWER, bad_key, chunk, good_stream, role, stop},
    start,
};

const ERROR_EVENT: &str =
    "data: {\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\",\"code\":null}}\n\n";

async fn before_b(reply: Reply) -> (crate::support::Running, Provider, Provider) {
    let (a, b) = (Provider::start(reply).await, Provider::good().await);
    let registry = Registry::new()
        .channel(channel("a", &a.url).priority(1).limits_ms(300, 300, 300))
        .channel(channel("b", &b.url).limits_ms(2000, 2000, 300));
    (start(registry).await, a, b)
}

#[tokio::test]
async fn part9_a_stream_passes_byte_for_byte_with_its_headers() {
    let up = Provider::good().await;
    let proxy = start(Registry::new().channel(channel("a", &up.url))).await;
    let seen = proxy.stream().await;
    let Reply::Stream(steps) = good_stream() else { panic!() };
    assert_eq!(seen.text(), steps.into_iter().map(|(_, s)| s).collect::<String>());
    assert_eq!(seen.header("content-type"), "text/event-stream");
    assert_eq!(seen.header("x-accel-buffering"), "no");
    assert_eq!(seen.header("cache-control"), "no-cache");
    assert_eq!(seen.attempts(), "a:ok:200");
    let line = &proxy.logs.wait_for(1).await[0];
    assert_eq!(line["ending"], "complete");
    assert_eq!(line["stream"], true);
    assert!(line["first_content_ms"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn until_the_first_content_every_fault_switches() {
    let html = Reply::Plain(200, "text/html", "<html>".into());
    let json = Reply::Plain(
        200,
        "application/json",
        r#"{"error":{"message":"overloaded","type":"server_error"}}"#.into(),
    );
    let faults = [
        (bad_key(), "a:disable:401"),
        (html, "a:retryable:parse_error"),
        (json, "a:retryable:200"),
        (Reply::Stream(vec![(0, role()), (0, ERROR_EVENT.into())]), "a:retryable:200"),
        (Reply::Stream(vec![]), "a:retryable:empty_response"),
        (Reply::Stream(vec![(0, "data: [DONE]\n\n".into())]), "a:retryable:empty_response"),
        (Reply::Stream(vec![(0, role()), (5000, chunk("late"))]), "a:retryable:first_content_timeout"),
        (Reply::Cut(vec![(0, role())]), "a:retryable:reset"),
        (Reply::Hang, "a:retryable:first_content_timeout"),
    ];
    for (fault, entry) in faults {
        let shown = format!("{fault:?}");
        let (proxy, a, b) = before_b(fault).await;
        let seen = proxy.stream().await;
        assert_eq!(seen.status, 200, "{shown}");
        assert_eq!(seen.attempts(), format!("{entry}, b:ok:200"), "{shown}");
        assert!(
            seen.text().ends_with("data: [DONE]\n\n") && !seen.text().contains("error"),
            "{shown}: {}",
            seen.text()
        );
        assert_eq!((a.hits(), b.hits()), (1, 1));
    }
}

#[tokio::test]
async fn after_the_first_content_nothing_switches_and_the_break_is_told() {
    let events = vec![(0, role()), (0, chunk("half"))];
    for (reply, ending) in [
        (Reply::Cut(events.clone()), "broken"),
        (Reply::Stream(events.clone()), "ended_without_finish"),
        (Reply::Stream([events.clone(), vec![(5000, stop())]].concat()), "stalled"),
    ] {
        let (proxy, _a, b) = before_b(reply).await;
        let seen = proxy.stream().await;
        let text = seen.text();
        assert!(text.starts_with(&(role() + &chunk("half"))), "{text}");
        assert!(text.contains("\"code\":\"stream_interrupted\""), "{ending}: {text}");
        assert!(!text.contains("[DONE]"), "never a made-up end: {text}");
        assert_eq!((seen.attempts(), b.hits()), ("a:ok:200", 0));
        assert_eq!(proxy.logs.wait_for(1).await[0]["ending"], ending);
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_evidence_against_its_channel() {
    let (proxy, _a, _b) = before_b(Reply::Cut(vec![(0, role()), (0, chunk("half"))])).await;
    for n in 0..5 {
        let body = crate::support::STREAM.replace("hi", &n.to_string());
        proxy.post("/v1/chat/completions", &body).await;
        proxy.logs.wait_for(n + 1).await;
    }
    assert_eq!(
        proxy.stream().await.attempts(),
        "b:ok:200",
        "{}",
        proxy.admin("/debug/registry").await.text()
    );
}

#[tokio::test]
async fn a_caller_that_leaves_closes_the_upstream_within_a_second() {
    let slow = Reply::Stream([vec![(0, role()), (0, chunk("x"))], vec![(300, chunk("y")); 100]].concat());
    let (proxy, a, b) = before_b(slow).await;
    let mut response = crate::support::client()
        .post(proxy.url("/v1/chat/completions"))
        .body(crate::support::STREAM)
        .send()
        .await
        .unwrap();
    response.chunk().await.unwrap().unwrap();
    drop(response);
    a.closed().await;
    let line = &proxy.logs.wait_for(1).await[0];
    assert_eq!(line["ending"], "caller_left");
    assert_eq!(b.hits(), 0);
    assert!(proxy.shared.health.troubled().is_empty());
}

#[tokio::test]
async fn a_caller_that_leaves_before_the_first_byte_starts_nothing_new() {
    for body in [crate::support::CHAT, crate::support::STREAM] {
        let a = Provider::start(Reply::Hang).await;
        let b = Provider::good().await;
        let registry =
            Registry::new().channel(channel("a", &a.url).priority(1)).channel(channel("b", &b.url));
        let proxy = start(registry).await;
        let request = crate::support::client().post(proxy.url("/v1/chat/completions")).body(body).send();
        let waiting = tokio::spawn(request);
        a.reached(1).await;
        waiting.abort();
        a.closed().await;
        let line = &proxy.logs.wait_for(1).await[0];
        assert_eq!((&line["ending"], &line["status"]), (&"caller_left".into(), &499.into()));
        assert_eq!(line["attempts"][0]["outcome"], "cancelled");
        assert_eq!(b.hits(), 0);
        assert!(proxy.admin("/metrics").await.text().contains("spareline_in_flight 0"));
    }
}

#[tokio::test]
async fn an_assured_stream_is_whole_or_a_clean_error() {
    let (proxy, _a, _b) = before_b(Reply::Cut(vec![(0, role()), (0, chunk("half"))])).await;
    let request =
        crate::support::client().post(proxy.url("/v1/chat/completions")).body(crate::support::STREAM);
    let seen = proxy.send(request.header("x-spareline-stream", "assured")).await;
    assert_eq!(seen.status, 200);
    assert!(seen.attempts().ends_with(", b:ok:200"), "{}", seen.attempts());
    assert!(!seen.text().contains("half") && seen.text().ends_with("data: [DONE]\n\n"), "{}", seen.text());
}

#[tokio::test]
async fn a_shutdown_lets_streams_finish_and_then_cuts_them_honestly() {
    // drain_timeout is 2 s.
    let short = Reply::Stream(vec![(0, role()), (0, chunk("x")), (1000, stop())]);
    let long = Reply::Stream([vec![(0, role()), (0, chunk("x"))], vec![(400, chunk("y")); 100]].concat());
    for (reply, cut) in [(short, false), (long, true)] {
        let up = Provider::start(reply).await;
        let proxy = start(Registry::new().channel(channel("a", &up.url))).await;
        let mut response = crate::support::client()
            .post(proxy.url("/v1/chat/completions"))
            .body(crate::support::STREAM)
            .send()
            .await
            .unwrap();
        response.chunk().await.unwrap().unwrap();
        assert_eq!(proxy.admin("/readyz").await.status, 200);
        proxy.stop.drain.cancel();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(proxy.admin("/readyz").await.status, 503);
        assert!(
            crate::support::client().get(proxy.url("/v1/models")).send().await.is_err(),
            "the listener is closed"
        );
        let rest = response.text().await.unwrap();
        assert_eq!(rest.contains("stream_interrupted"), cut, "{rest}");
        assert_eq!(rest.contains("[DONE]"), !cut, "{rest}");
        let ending = proxy.logs.wait_for(1).await[0]["ending"].clone();
        assert_eq!(ending, if cut { "shutdown" } else { "complete" });
        tokio::time::timeout(Duration::from_secs(5), proxy.ended).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn plain_answers_have_their_length() {
    let up = Provider::good().await;
    let proxy = start(Registry::new().channel(channel("a", &up.url))).await;
    assert_eq!(proxy.chat().await.header("content-length"), ANSWER.len().to_string());
}

#[tokio::test]
async fn a_caller_that_takes_nothing_is_given_up() {
    let big = "x".repeat(100_000);
    let flood = Reply::Stream([vec![(0, role())], vec![(0, chunk(&big)); 1000]].concat());
    let up = Provider::start(flood).await;
    let limits = spareline_proto::registry::v1::AttemptPolicy {
        write_timeout: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..Default::default()
    };
    let proxy =
        start(Registry::new().channel(channel("a", &up.url).with(|c| c.attempt_policy = Some(limits)))).await;
    let mut socket = tokio::net::TcpStream::connect(proxy.http).await.unwrap();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{}",
        crate::support::STREAM.len(),
        crate::support::STREAM
    );
    tokio::io::AsyncWriteExt::write_all(&mut socket, request.as_bytes()).await.unwrap();
    let line = &proxy.logs.wait_for(1).await[0];
    assert_eq!(line["ending"], "write_timeout");
    up.closed().await;
    assert!(proxy.shared.health.troubled().is_empty());
}

#[tokio::test]
async fn a_second_signal_does_not_wait_and_plain_requests_are_told() {
    let up = Provider::start(Reply::Hang).await;
    let proxy = start(Registry::new().channel(channel("a", &up.url))).await;
    let waiting = tokio::spawn(
        crate::support::client().post(proxy.url("/v1/chat/completions")).body(crate::support::CHAT).send(),
    );
    up.reached(1).await;
    let began = std::time::Instant::now();
    proxy.stop.drain.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxy.stop.force.cancel();
    let response = waiting.await.unwrap().unwrap();
    assert_eq!(response.status().as_u16(), 503);
    assert!(response.text().await.unwrap().contains("shutting down"));
    tokio::time::timeout(Duration::from_secs(5), proxy.ended).await.unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_millis(1900), "{:?}", began.elapsed());
    up.closed().await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let config = crate::support::config(|c| c.first_byte_timeout = Duration::from_millis(200));
    let proxy = crate::support::start_with(Registry::new(), config).await;
    let mut socket = tokio::net::TcpStream::connect(proxy.http).await.unwrap();
    let mut byte = [0];
    let read = tokio::io::AsyncReadExt::read(&mut socket, &mut byte);
    let read = tokio::time::timeout(Duration::from_secs(5), read).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}
