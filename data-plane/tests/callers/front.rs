//! Part 9: what callers may send, and how they are told that they may not.

use crate::support::{Provider, Registry, Reply, channel, config, start, start_with};
use spareline_proto::registry::v1 as pb;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn simple() -> (crate::support::Running, Provider) {
    let up = Provider::good().await;
    (start(Registry::new().channel(channel("a", &up.url).upstream_model("real-m"))).await, up)
}

/// Sends bytes, reads all that comes.
async fn raw(proxy: &crate::support::Running, request: &[u8]) -> String {
    let mut socket = tokio::net::TcpStream::connect(proxy.http).await.unwrap();
    socket.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let read = socket.read_to_end(&mut answer);
    tokio::time::timeout(std::time::Duration::from_secs(10), read)
        .await
        .expect("the connection ends")
        .unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn part9_bad_input_is_told_apart() {
    let (proxy, up) = simple().await;
    let chat = "/v1/chat/completions";
    for (path, body, status, code) in [
        (chat, "not json", 400, "invalid_request"),
        (chat, "", 400, "invalid_request"),
        (chat, "[]", 400, "invalid_request"),
        (chat, r#"{"messages":[]}"#, 400, "invalid_request"),
        (chat, r#"{"model":7}"#, 400, "invalid_request"),
        (chat, r#"{"model":"m","model":"n"}"#, 400, "invalid_request"),
        (chat, r#"{"model":"unknown"}"#, 404, "model_not_found"),
        ("/v1/images/generations", r#"{"model":"m"}"#, 404, "endpoint_not_available"),
        ("/v1/responses", r#"{"model":"m","previous_response_id":"r"}"#, 501, "endpoint_not_supported"),
        ("/v1/files", "{}", 501, "endpoint_not_supported"),
        ("/v2/x", "{}", 404, "endpoint_not_available"),
    ] {
        let seen = proxy.post(path, body).await;
        assert_eq!((seen.status, seen.code().as_str()), (status, code), "{path} {body}: {}", seen.text());
        assert!(seen.json()["error"]["message"].as_str().unwrap().len() > 5);
        assert!(!seen.header("x-request-id").is_empty());
    }
    assert_eq!(proxy.get("/v1/embeddings").await.status, 405);
    assert_eq!(up.hits(), 0);
    let seen = proxy.post("/v1/messages", "{").await;
    assert_eq!(
        (&seen.json()["type"], seen.json()["error"]["type"].as_str()),
        (&"error".into(), Some("invalid_request_error"))
    );
    let metrics = proxy.admin("/metrics").await.text();
    assert!(metrics.contains("model=\"other\"") && !metrics.contains("unknown"), "{metrics}");
}

#[tokio::test]
async fn part9_only_the_model_is_rewritten() {
    let (proxy, up) = simple().await;
    let body =
        "{ \"messages\":[{\"content\":\"say \\\"m\\\" \\u00e9\"}],\n\t\"model\" : \"m\", \"x\":1.0e2 }";
    assert_eq!(proxy.post("/v1/chat/completions/", body).await.status, 200);
    assert_eq!(up.asked()[0].body, body.replace("\"model\" : \"m\"", "\"model\" : \"real-m\""));
    assert_eq!(up.asked()[0].path, "/v1/chat/completions");
}

#[tokio::test]
async fn part9_a_registry_is_waited_for_and_said() {
    let proxy = crate::support::start_empty(config(|_| {}));
    let seen = proxy.chat().await;
    assert_eq!((seen.status, seen.code().as_str()), (503, "registry_not_ready"));
    assert_eq!(seen.header("retry-after"), "1");
    assert_eq!(proxy.admin("/readyz").await.status, 503);
    assert_eq!(proxy.admin("/healthz").await.status, 200);
}

#[tokio::test]
async fn part9_groups_come_from_a_header_only_where_configured() {
    let up = Provider::good().await;
    let registry = || {
        Registry::new()
            .channel(channel("basic", &up.url))
            .channel(channel("vip", &up.url).with(|c| c.groups = vec!["vip".into()]))
    };
    let ask = |proxy: &crate::support::Running, group: &'static str| {
        let request =
            crate::support::client().post(proxy.url("/v1/chat/completions")).header("x-group", group);
        request.body(crate::support::CHAT)
    };
    let closed = start(registry()).await;
    assert_eq!(closed.send(ask(&closed, "vip")).await.attempts(), "basic:ok:200", "ignored");
    let configured = config(|c| {
        c.group_header = Some("x-group".parse().unwrap());
        c.groups = vec!["default".into(), "vip".into()];
    });
    let open = start_with(registry(), configured).await;
    assert_eq!(open.send(ask(&open, "vip")).await.attempts(), "vip:ok:200");
    let seen = open.send(ask(&open, "secret")).await;
    assert_eq!((seen.status, seen.code().as_str()), (403, "group_not_allowed"));
    assert_eq!(open.chat().await.attempts(), "basic:ok:200");
}

#[tokio::test]
async fn part9_models_are_listed_with_what_can_be_served() {
    let up = Provider::good().await;
    let registry = Registry::new().channel(channel("a", &up.url).with(|c| {
        c.models = ["z", "meta/llama-3", "a"]
            .map(|m| pb::ModelEntry { model: m.into(), ..Default::default() })
            .to_vec();
    }));
    let proxy = start(registry).await;
    let list = proxy.get("/v1/models").await.json();
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["a", "meta/llama-3", "z"]);
    assert_eq!(list["data"][0]["spareline"]["usable"], true);
    assert_eq!(list["object"], "list");
    assert_eq!(proxy.get("/v1/models?usable=true").await.json()["data"].as_array().unwrap().len(), 3);
    assert_eq!(proxy.get("/v1/models/meta/llama-3").await.json()["id"], "meta/llama-3");
    assert_eq!(proxy.get("/v1/models/nope").await.status, 404);
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused_and_compressed_ones_decoded() {
    let up = Provider::good().await;
    let small = config(|c| c.body_limit = 100_000);
    let proxy = start_with(Registry::new().channel(channel("a", &up.url)), small).await;
    let big = format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "y".repeat(150_000));
    let seen = proxy.post("/v1/chat/completions", &big).await;
    assert_eq!((seen.status, seen.code().as_str()), (413, "body_too_large"));
    let chunked = reqwest::Body::wrap_stream(futures_util::stream::iter(
        (0..200).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1000])),
    ));
    let seen =
        proxy.send(crate::support::client().post(proxy.url("/v1/chat/completions")).body(chunked)).await;
    assert_eq!(seen.status, 413);

    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, crate::support::CHAT.as_bytes()).unwrap();
    let request =
        crate::support::client().post(proxy.url("/v1/chat/completions")).header("content-encoding", "gzip");
    assert_eq!(proxy.send(request.body(gz.finish().unwrap())).await.status, 200);
    let asked = &up.asked()[0];
    assert_eq!(asked.body, crate::support::CHAT);
    assert!(!asked.headers.contains_key("content-encoding"));
    let request =
        crate::support::client().post(proxy.url("/v1/chat/completions")).header("content-encoding", "rot13");
    assert_eq!(proxy.send(request.body("x")).await.status, 415);
}

#[tokio::test]
async fn odd_clients_are_served() {
    let (proxy, up) = simple().await;
    let body = crate::support::CHAT;
    let old = format!("POST /v1/chat/completions HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let answer = raw(&proxy, old.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    let patient = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\nconnection: close\r\n\
         content-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let answer = raw(&proxy, patient.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"), "{answer}");
    let asked = &up.asked()[1];
    assert!(!asked.headers.contains_key("expect"), "{:?}", asked.headers);
    assert_eq!(asked.headers["content-type"], "application/json");

    let h2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let request = h2.post(proxy.url("/v1/chat/completions")).body(body);
    assert_eq!(proxy.send(request).await.status, 200);
    let head = h2.head(proxy.url("/v1/models")).send().await.unwrap();
    assert_eq!(head.status(), 200);
    assert_ne!(head.headers()["content-length"], "0");

    let socket =
        "GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n\r\n";
    assert!(raw(&proxy, socket.as_bytes()).await.starts_with("HTTP/1.1 501"));
    assert!(raw(&proxy, b"nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn a_refusal_is_read_and_its_connection_used_again_whatever_body_nobody_wanted() {
    let (proxy, _up) = simple().await;
    let body = "x".repeat(1 << 20);
    let next = "GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    for (what, status) in
        [("POST /nope", "404"), ("DELETE /v1/chat/completions", "405"), ("GET /v1/models", "200")]
    {
        let first = format!("{what} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let answers = raw(&proxy, format!("{first}{next}").as_bytes()).await;
        assert!(answers.starts_with(&format!("HTTP/1.1 {status}")), "{what}: {answers}");
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 2, "{what}: {answers}");
    }
}

#[tokio::test]
async fn the_callers_credentials_and_hop_by_hop_headers_stay_here() {
    let (proxy, up) = simple().await;
    let request = crate::support::client()
        .post(proxy.url("/v1/chat/completions"))
        .header("authorization", "Bearer caller-secret")
        .header("x-api-key", "caller-secret")
        .header("api-key", "caller-secret")
        .header("cookie", "s=caller-secret")
        .header("connection", "close, x-private")
        .header("x-private", "caller-secret")
        .header("proxy-authorization", "caller-secret")
        .header("openai-beta", "one")
        .header("idempotency-key", "idem-1")
        .header("x-request-id", "req-7")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let seen = proxy.send(request.body(crate::support::CHAT)).await;
    assert_eq!((seen.status, seen.header("x-request-id")), (200, "req-7"));
    let asked = &up.asked()[0].headers;
    assert!(!format!("{asked:?}").contains("caller-secret"), "{asked:?}");
    assert_eq!(asked["authorization"], "Bearer sk-a");
    assert_eq!(asked["openai-beta"], "one");
    assert_eq!(asked["idempotency-key"], "idem-1");
    assert_eq!(asked["x-request-id"], "req-7");
    assert!(asked["traceparent"].to_str().unwrap().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
    let line = &proxy.logs.wait_for(1).await[0];
    assert_eq!(line["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(line["idempotency_key"], "idem-1");
}

#[tokio::test]
async fn browsers_may_call_only_from_configured_origins() {
    let up = Provider::good().await;
    let registry = || Registry::new().channel(channel("a", &up.url));
    let preflight = |proxy: &crate::support::Running| {
        let request =
            crate::support::client().request(reqwest::Method::OPTIONS, proxy.url("/v1/chat/completions"));
        request
            .header("origin", "https://app.test")
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization")
    };
    let closed = start(registry()).await;
    let seen = closed.send(preflight(&closed)).await;
    assert_eq!((seen.status, seen.header("access-control-allow-origin")), (405, ""));
    let open = start_with(registry(), config(|c| c.cors_origins = vec!["https://app.test".into()])).await;
    let seen = open.send(preflight(&open)).await;
    assert_eq!((seen.status, seen.header("access-control-allow-origin")), (204, "https://app.test"));
    assert_eq!(seen.header("access-control-allow-headers"), "authorization");
    let failing =
        crate::support::client().post(open.url("/v1/chat/completions")).header("origin", "https://app.test");
    let seen = open.send(failing.body("{")).await;
    assert_eq!(
        (seen.status, seen.header("access-control-allow-origin")),
        (400, "https://app.test"),
        "errors too"
    );
}

#[tokio::test]
async fn too_many_at_once_are_told_to_come_back() {
    let up = Provider::start(Reply::Hang).await;
    let proxy =
        start_with(Registry::new().channel(channel("a", &up.url)), config(|c| c.max_in_flight = 2)).await;
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            tokio::spawn(
                crate::support::client()
                    .post(proxy.url("/v1/chat/completions"))
                    .body(crate::support::CHAT)
                    .send(),
            )
        })
        .collect();
    up.reached(2).await;
    let seen = proxy.chat().await;
    assert_eq!((seen.status, seen.code().as_str(), seen.header("retry-after")), (503, "overloaded", "1"));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    up.closed().await;
    up.always(Reply::Ok);
    assert_eq!(proxy.chat().await.status, 200);
}

#[tokio::test]
async fn stored_objects_go_to_the_groups_channel() {
    let (store, other) = (Provider::good().await, Provider::good().await);
    let policy = pb::Policy { stateful_channel: Some("store".into()), ..Default::default() };
    let registry = Registry::new()
        .channel(channel("other", &other.url).priority(9))
        .channel(channel("store", &store.url).provider("openai").keys(&["sk-1", "sk-2"]))
        .policy(policy);
    let proxy = start(registry).await;
    assert_eq!(proxy.get("/v1/responses/resp_1?include=x").await.attempts(), "store#1:ok:200");
    assert_eq!(store.asked()[0].path, "/v1/responses/resp_1?include=x");
    let follow_up = r#"{"model":"m","previous_response_id":"resp_1","input":"x"}"#;
    assert_eq!(proxy.post("/v1/responses", follow_up).await.attempts(), "store#1:ok:200");
    store.always(crate::support::provider::bad_key());
    let seen = proxy.get("/v1/files/f").await;
    assert_eq!((seen.status, seen.attempts()), (502, "store#1:disable:401"));
    assert!(proxy.shared.spool.is_empty(), "nobody is blamed");
    assert_eq!(other.hits(), 0);
}

#[tokio::test]
async fn what_an_operator_took_out_gets_no_stored_object_either() {
    use pb::subject::Kind;
    let store = Provider::good().await;
    let registry = || {
        let policy = pb::Policy { stateful_channel: Some("store".into()), ..Default::default() };
        let made = channel("store", &store.url).provider("openai").keys(&["sk-first", "sk-second"]);
        Registry::new().channel(made).policy(policy)
    };
    let proxy = start(registry().disabled(Kind::CredentialId(1))).await;
    assert_eq!(proxy.get("/v1/responses/resp_1").await.status, 200);
    assert_eq!(store.asked()[0].headers["authorization"], "Bearer sk-second");
    let all_keys = registry().disabled(Kind::CredentialId(1)).disabled(Kind::CredentialId(2));
    for out in [all_keys, registry().disabled(Kind::ChannelId(1))] {
        let seen = start(out).await.get("/v1/responses/resp_1").await;
        assert_eq!((seen.status, seen.code().as_str()), (502, "all_channels_failed"));
    }
    assert_eq!(store.hits(), 1);
}

#[tokio::test]
async fn unknown_paths_with_a_model_are_routed_like_the_rest() {
    let (bad, good) =
        (Provider::start(crate::support::provider::unavailable()).await, Provider::good().await);
    let registry =
        Registry::new().channel(channel("bad", &bad.url).priority(1)).channel(channel("good", &good.url));
    let proxy = start(registry).await;
    let seen = proxy.post("/v1/ocr", r#"{"model":"m","document":"x"}"#).await;
    assert_eq!(seen.attempts(), "bad:retryable:503, good:ok:200");
    assert_eq!(good.asked()[0].path, "/v1/ocr");
}
