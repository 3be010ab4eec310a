//! Plain answers: whole or not at all.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use spareline_core::classify::Limit;
use spareline_core::{Class, Endpoint, Provider};

use crate::attempt::{Ending, Failed};
use crate::budget::Budget;
use crate::request::Outgoing;
use crate::testing::{CHAT, CHAT_STREAM, Setup, Upstream, finish, outgoing};

const GOOD: &str = r#"{"id":"1","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":5}}"#;

fn http(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

async fn failed(answer: impl Into<Vec<u8>>, body: &'static str) -> Box<Failed> {
    let (upstream, _told) = Upstream::always(answer).await;
    Setup::new(&upstream.url, body).go().await.map(|answer| answer.status).unwrap_err()
}

#[tokio::test]
async fn a_good_answer_passes_whole_with_its_counts() {
    let (upstream, mut told) = Upstream::always(http("200 OK", "application/json", GOOD.as_bytes())).await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    setup.upstream_model = Some("gpt-up");
    let answer = setup.go().await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.stream), (200, false));
    assert_eq!((answer.usage.input, answer.usage.output), (Some(3), Some(5)));
    assert_eq!(answer.headers["content-type"], "application/json");
    let (body, end) = finish(answer).await;
    assert_eq!(body, GOOD);
    assert_eq!((end.ending, end.bytes), (Ending::Complete, GOOD.len() as u64));

    let got = told.recv().await.unwrap();
    assert_eq!(got.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(got.body, br#"{"model":"gpt-up","messages":[]}"#);
    assert_eq!(got.headers["authorization"], "Bearer sk-ours");
    assert_eq!(got.headers["accept-encoding"], "identity");
    assert_eq!(got.headers["content-type"], "application/json");
    assert_eq!(got.headers.get_all("host").iter().count(), 1);
}

#[tokio::test]
async fn refusals_carry_their_verdict_and_their_body() {
    let key = br#"{"error":{"message":"Incorrect API key provided: sk-x","type":"invalid_request_error","code":"invalid_api_key"}}"#;
    let refused = failed(http("401 Unauthorized", "application/json", key), CHAT).await;
    assert_eq!((refused.verdict.class, refused.verdict.status), (Class::Disable, 401));
    assert!(!refused.silent && refused.limit.is_none());
    let response = refused.response.unwrap();
    assert_eq!((response.status.as_u16(), &response.body[..]), (401, &key[..]));
    for stream in [CHAT, CHAT_STREAM] {
        let bad = br#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
        let refused = failed(http("400 Bad Request", "application/json", bad), stream).await;
        assert_eq!(refused.verdict.class, Class::Transparent, "{stream}");
        assert_eq!(&refused.response.unwrap().body[..], bad);
    }
    let gone = failed(http("503 Service Unavailable", "text/plain", b"busy"), CHAT).await;
    assert_eq!(gone.verdict.class, Class::Retryable);
}

/// An error under its own status, as a success and as a stream's first event, each with a request for it.
fn ways_to_say(error: &str, status: &str) -> [(Vec<u8>, &'static str); 3] {
    [
        (http(status, "application/json", error.as_bytes()), CHAT),
        (http("200 OK", "application/json", error.as_bytes()), CHAT),
        (http("200 OK", "text/event-stream", format!("data: {error}\n\n").as_bytes()), CHAT_STREAM),
    ]
}

#[tokio::test]
async fn a_quoted_secret_is_in_no_verdict() {
    let error = r#"{"error":{"message":"no such key hunter2x","code":"invalid_api_key_hunter2x"}}"#;
    for (answer, request) in ways_to_say(error, "401 Unauthorized") {
        let (upstream, _told) = Upstream::always(answer).await;
        let mut setup = Setup::new(&upstream.url, request);
        setup.secret = Some("hunter2x");
        let failed = setup.go().await.unwrap_err();
        assert!(failed.verdict.reason().contains("no such key <redacted>"), "{}", failed.verdict.reason());
        assert!(!format!("{failed:?}").replace(&format!("{:?}", failed.response), "").contains("hunter2x"));
    }
}

#[tokio::test]
async fn a_quoted_secret_is_in_nothing_that_is_passed_on() {
    let error =
        r#"{"error":{"message":"not for hunter2/x or \"hunter2\/x\"","code":"context_length_exceeded"}}"#;
    for (answer, request) in ways_to_say(error, "400 Bad Request") {
        let (upstream, _told) = Upstream::always(answer).await;
        let mut setup = Setup::new(&upstream.url, request);
        setup.secret = Some("hunter2/x");
        let passed = setup.go().await.unwrap_err().response.unwrap();
        let text = std::str::from_utf8(&passed.body).unwrap();
        assert!(text.contains(r#"not for <redacted> or \"<redacted>\""#), "{text}");
        assert!(!passed.headers.contains_key("content-length"));
    }
}

#[tokio::test]
async fn redirects_are_failures_and_are_never_followed() {
    let answer =
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/x\r\ncontent-length: 0\r\n\r\n";
    let (upstream, mut told) = Upstream::always(answer).await;
    let failed = Setup::new(&upstream.url, CHAT).go().await.unwrap_err();
    assert_eq!((failed.verdict.class, failed.verdict.status), (Class::Retryable, 307));
    assert!(told.recv().await.is_some() && told.try_recv().is_err());
    assert!(!failed.response.unwrap().headers.contains_key("location"));
}

#[tokio::test]
async fn success_that_is_none_fails() {
    for (kind, body) in [
        ("text/html", &b"<html>sign in</html>"[..]),
        ("application/json", b""),
        ("application/json", b"{\"choices\":["),
        ("application/json", br#"{"error":{"message":"busy","code":"server_error"}}"#),
        ("application/json", br#"{"choices":[]}"#),
    ] {
        let failed = failed(http("200 OK", kind, body), CHAT).await;
        assert_eq!(failed.verdict.class, Class::Retryable, "{kind} {body:?}: {}", failed.verdict.reason());
    }
    let json_for_stream = failed(http("200 OK", "application/json", GOOD.as_bytes()), CHAT_STREAM).await;
    assert_eq!(json_for_stream.verdict.class, Class::Retryable);
    let html_for_stream = failed(http("200 OK", "text/html", b"<html>"), CHAT_STREAM).await;
    assert_eq!(html_for_stream.verdict.class, Class::Retryable);
    let limited = br#"{"error":{"message":"Rate limit reached for requests","type":"requests","code":"rate_limit_exceeded"}}"#;
    let limited = failed(http("200 OK", "application/json", limited), CHAT_STREAM).await;
    assert_eq!(limited.verdict.class, Class::Throttle);
}

#[tokio::test]
async fn where_there_are_no_streams_json_will_do() {
    let body = r#"{"object":"list","data":[{"embedding":[1]}]}"#;
    let (upstream, _told) = Upstream::always(http("200 OK", "application/json", body.as_bytes())).await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    setup.request = outgoing(Endpoint::Embeddings, "/v1/embeddings", r#"{"model":"e","stream":true}"#);
    assert_eq!(finish(setup.go().await.unwrap()).await.0, body);
    let (upstream, _told) = Upstream::always("HTTP/1.1 204 No Content\r\n\r\n").await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    setup.request = Outgoing::new(Method::DELETE, None, "/v1/files/f");
    assert_eq!(setup.go().await.unwrap().status.as_u16(), 204);
    // Where there is something to say, nothing is no answer.
    for request in [CHAT, CHAT_STREAM] {
        let failed = Setup::new(&upstream.url, request).go().await.unwrap_err();
        assert_eq!(failed.verdict.detail.to_string(), "empty_response");
    }
}

#[tokio::test]
async fn a_cut_answer_is_no_answer() {
    let upstream = Upstream::start(|mut peer| async move {
        peer.request().await;
        peer.send(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"choices\":",
        )
        .await;
    })
    .await;
    let failed = Setup::new(&upstream.url, CHAT).go().await.unwrap_err();
    assert_eq!(failed.verdict.detail.to_string(), "reset");
    assert!(failed.verdict.unknown_outcome && !failed.silent);
}

#[tokio::test]
async fn response_timeout_names_itself() {
    let upstream = Upstream::start(|mut peer| async move {
        peer.request().await;
        peer.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{").await;
        peer.gone().await;
    })
    .await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    setup.limits.response = Duration::from_millis(150);
    let failed = setup.go().await.unwrap_err();
    assert_eq!(failed.limit, Some(Limit::Response));
    assert_eq!(failed.verdict.detail.to_string(), "response_timeout");
    setup.limits.response = Duration::from_secs(30);
    setup.limits.deadline = Some(Duration::from_millis(100));
    assert_eq!(setup.go().await.unwrap_err().limit, Some(Limit::Deadline));
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn compressed_answers_are_decoded_and_no_longer_say_they_are() {
    let body = gzip(GOOD);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (upstream, _told) = Upstream::always([head.as_bytes(), &body].concat()).await;
    let answer = Setup::new(&upstream.url, CHAT).go().await.unwrap();
    assert!(
        !answer.headers.contains_key("content-encoding") && !answer.headers.contains_key("content-length")
    );
    assert_eq!(finish(answer).await.0, GOOD);

    let error = gzip(r#"{"error":{"message":"bad","code":"context_length_exceeded"}}"#);
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        error.len()
    );
    let failed = failed([head.as_bytes(), &error].concat(), CHAT).await;
    assert_eq!(failed.verdict.class, Class::Transparent);
    let response = failed.response.unwrap();
    assert!(response.body.starts_with(b"{\"error\"") && !response.headers.contains_key("content-encoding"));

    let odd = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: lzma\r\ncontent-length: 3\r\n\r\nabc";
    assert_eq!(super::plain::failed(odd, CHAT).await.verdict.detail.to_string(), "parse_error");
}

#[tokio::test]
async fn audio_is_committed_at_its_first_byte_with_its_length() {
    let upstream = Upstream::start(|mut peer| async move {
        peer.request().await;
        peer.send("HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: 6\r\n\r\nab").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        peer.send("cdef").await;
        peer.gone().await;
    })
    .await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    setup.request = outgoing(Endpoint::Audio, "/v1/audio/speech", r#"{"model":"tts","input":"x"}"#);
    let answer = setup.go().await.unwrap();
    assert_eq!(answer.headers["content-type"], "audio/mpeg");
    assert_eq!(http_body::Body::size_hint(&answer.body).exact(), Some(6));
    let (body, end) = finish(answer).await;
    assert_eq!((body.as_str(), end.ending, end.bytes), ("abcdef", Ending::Complete, 6));
}

#[tokio::test]
async fn audio_that_breaks_off_cuts_the_connection() {
    let answer =
        "HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ncontent-length: 60\r\nconnection: close\r\n\r\nab";
    let upstream = Upstream::start(move |mut peer| async move {
        peer.request().await;
        peer.send(answer).await;
    })
    .await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    setup.request = outgoing(Endpoint::Audio, "/v1/audio/speech", r#"{"model":"tts","input":"x"}"#);
    let mut answer = setup.go().await.unwrap();
    let (tell, told) = tokio::sync::oneshot::channel();
    answer.body.on_end(|end| tell.send(end).unwrap());
    assert!(answer.body.collect().await.is_err());
    let end = told.await.unwrap();
    assert_eq!(end.ending, Ending::Broken);
    assert!(end.verdict.is_some());
}

#[tokio::test]
async fn body_memory_bounds_what_is_held() {
    let (upstream, _told) = Upstream::always(http("200 OK", "application/json", GOOD.as_bytes())).await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    setup.budget = Budget::new(16);
    let failed = setup.go().await.unwrap_err();
    assert!(failed.overloaded && failed.verdict.class == Class::None, "{:?}", failed.verdict);
    assert_eq!(setup.budget.used(), 0);
}

#[tokio::test]
async fn body_memory_bounds_bodies_that_are_written_anew() {
    let (upstream, mut told) = Upstream::always(http("204 No Content", "text/plain", b"")).await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    setup.upstream_model = Some("another");
    setup.budget = Budget::new(CHAT.len());
    let failed = setup.go().await.unwrap_err();
    assert!(failed.overloaded && told.try_recv().is_err(), "{:?}", failed.verdict);
    assert_eq!(setup.budget.used(), 0);
}

#[tokio::test]
async fn each_dialect_has_its_one_credential_header_and_its_url() {
    let (upstream, mut told) = Upstream::always(http("200 OK", "application/json", GOOD.as_bytes())).await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    for (name, value) in [
        ("authorization", "Bearer caller"),
        ("x-api-key", "caller"),
        ("api-key", "caller"),
        ("cookie", "caller=1"),
        ("anthropic-beta", "a"),
        ("openai-organization", "caller-org"),
        ("idempotency-key", "idem"),
    ] {
        setup.request.headers.append(name, value.parse().unwrap());
    }
    setup.request.query = Some("key=caller&x=1".to_owned());
    setup.target.headers = vec![("x-own".parse().unwrap(), "1".parse().unwrap())];
    setup.target.api_version = Some("2024-10-21".into());
    for (revision, provider, header, value, path) in [
        (1, Provider::OpenAi, "authorization", "Bearer sk-ours", "/v1/chat/completions?x=1"),
        (
            2,
            Provider::AzureOpenAi,
            "api-key",
            "sk-ours",
            "/openai/deployments/gpt/chat/completions?x=1&api-version=2024-10-21",
        ),
        (3, Provider::Anthropic, "x-api-key", "sk-ours", "/v1/chat/completions?x=1"),
    ] {
        setup.target.provider = provider;
        setup.target.revision = revision;
        setup.go().await.unwrap();
        let got = told.recv().await.unwrap();
        assert_eq!(got.line, format!("POST {path} HTTP/1.1"));
        let credentials: Vec<_> = ["authorization", "x-api-key", "api-key", "cookie"]
            .into_iter()
            .flat_map(|name| {
                got.headers.get_all(name).iter().map(move |value| (name, value.to_str().unwrap().to_owned()))
            })
            .collect();
        assert_eq!(credentials, [(header, value.to_owned())]);
        assert_eq!(got.headers["anthropic-beta"], "a");
        assert_eq!(got.headers["idempotency-key"], "idem");
        assert_eq!(got.headers["x-own"], "1");
        assert_eq!(got.headers.contains_key("anthropic-version"), provider == Provider::Anthropic);
        assert!(!format!("{got:?}").contains("Bearer caller"));
    }
    setup.secret = None;
    setup.target.organization = Some("own-org".into());
    setup.target.provider = Provider::OpenAi;
    setup.target.revision = 4;
    setup.go().await.unwrap();
    let got = told.recv().await.unwrap();
    assert!(!got.headers.contains_key("authorization"));
    assert_eq!(got.headers["openai-organization"], "own-org");
}

#[tokio::test]
async fn get_requests_have_no_body_and_dot_paths_are_refused() {
    let (upstream, mut told) = Upstream::always(http("200 OK", "application/json", b"{\"data\":[]}")).await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    setup.request = Outgoing::new(Method::GET, None, "/v1/models");
    setup.go().await.unwrap();
    let got = told.recv().await.unwrap();
    assert_eq!((got.line.as_str(), got.body.len()), ("GET /v1/models HTTP/1.1", 0));
    assert!(!got.headers.contains_key("content-length") && !got.headers.contains_key("transfer-encoding"));
    setup.request.path = "/v1/../admin".to_owned();
    assert_eq!(setup.go().await.unwrap_err().verdict.class, Class::None);
}

#[tokio::test]
async fn a_large_body_goes_up_whole_and_again() {
    let (upstream, mut told) = Upstream::always(http("200 OK", "application/json", GOOD.as_bytes())).await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    let text = format!(r#"{{"model":"gpt","x":"{}"}}"#, "y".repeat(5_000_000));
    setup.request.body = Bytes::from(text.clone());
    for _ in 0..2 {
        setup.go().await.unwrap();
        assert!(told.recv().await.unwrap().body == text.as_bytes());
    }
}

#[tokio::test]
async fn an_answer_counts_as_held_until_its_caller_has_taken_it() {
    let text = "x".repeat(1 << 20);
    let good = GOOD.replace("hi", &text);
    let (upstream, _told) = Upstream::always(http("200 OK", "application/json", good.as_bytes())).await;
    let setup = Setup::new(&upstream.url, CHAT);
    let mut answer = setup.go().await.unwrap();
    let (tell, told) = tokio::sync::oneshot::channel();
    answer.body.on_end(|end| tell.send(end.ending).unwrap());
    let piece = answer.body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(piece.len() < good.len() / 4 && setup.budget.used() >= good.len());
    drop(answer);
    assert_eq!((told.await, setup.budget.used()), (Ok(Ending::CallerLeft), 0));

    let (body, end) = finish(setup.go().await.unwrap()).await;
    assert_eq!((body == good, end.ending, end.bytes), (true, Ending::Complete, good.len() as u64));
    assert_eq!(setup.budget.used(), 0);
}
