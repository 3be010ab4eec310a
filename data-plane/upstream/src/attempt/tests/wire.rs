//! Connections: what goes wrong below HTTP, pools, limits, cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use spareline_core::classify::Limit;
use spareline_core::{ChannelId, Class, Endpoint, Scope};

use crate::body::Ending;
use crate::clients::{Clients, ClientsConfig, LineError};
use crate::testing::{CHAT, CHAT_STREAM, DONE, STOP, Setup, Upstream, delta, finish, outgoing};

const GOOD: &str = r#"{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}"#;

async fn good() -> (Upstream, tokio::sync::mpsc::Receiver<crate::testing::Got>) {
    Upstream::always(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{GOOD}",
        GOOD.len()
    ))
    .await
}

#[tokio::test]
async fn faults_have_their_names() {
    let refused = Setup::new("http://127.0.0.1:1", CHAT).go().await.unwrap_err();
    assert_eq!(refused.verdict.detail.to_string(), "refused");
    assert!(refused.silent && !refused.verdict.unknown_outcome && refused.verdict.scope == Scope::Channel);

    let hangs_up = Upstream::start(|mut peer| async move {
        peer.request().await;
    })
    .await;
    let reset = Setup::new(&hangs_up.url, CHAT).go().await.unwrap_err();
    assert_eq!(reset.verdict.detail.to_string(), "reset");
    assert!(reset.silent && reset.verdict.unknown_outcome);
    assert_eq!(hangs_up.connections(), 1, "a fresh connection that dies is not replayed");

    let resets = Upstream::start(|mut peer| async move {
        peer.request().await;
        peer.reset();
    })
    .await;
    assert_eq!(Setup::new(&resets.url, CHAT).go().await.unwrap_err().verdict.detail.to_string(), "reset");

    let garbage = Upstream::start(|mut peer| async move {
        peer.request().await;
        peer.send("SSH-2.0-OpenSSH\r\n\r\n").await;
    })
    .await;
    assert_eq!(
        Setup::new(&garbage.url, CHAT).go().await.unwrap_err().verdict.detail.to_string(),
        "parse_error"
    );

    let no_tls = Upstream::start(|mut peer| async move {
        peer.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        peer.gone().await;
    })
    .await;
    let tls = Setup::new(&no_tls.url.replace("http:", "https:"), CHAT).go().await.unwrap_err();
    assert_eq!((tls.verdict.class, tls.verdict.detail.to_string().as_str()), (Class::Retryable, "tls"));
    assert!(!tls.verdict.unknown_outcome);

    let mute = Upstream::start(|mut peer| async move { peer.gone().await }).await;
    let mut slow = Setup::new(&mute.url.replace("http:", "https:"), CHAT);
    slow.limits.connect = Duration::from_millis(150);
    let slow = slow.go().await.unwrap_err();
    assert_eq!(
        (slow.limit, slow.verdict.detail.to_string().as_str()),
        (Some(Limit::Connect), "connect_timeout")
    );

    let name = Setup::new("http://no-such-host.invalid", CHAT).go().await.unwrap_err();
    assert_eq!(name.verdict.detail.to_string(), "dns");
}

#[tokio::test]
async fn a_stale_pooled_connection_is_replayed_once_on_a_fresh_one() {
    // Every connection answers one request and hangs up on its second.
    let upstream = Upstream::start(|mut peer| async move {
        peer.request().await;
        peer.answer("200 OK", "content-type: application/json\r\n", GOOD).await;
        peer.request().await;
    })
    .await;
    let setup = Setup::new(&upstream.url, CHAT);
    for _ in 0..20 {
        let answer = setup.go().await.unwrap();
        assert_eq!(finish(answer).await.0, GOOD);
    }
    assert!(upstream.connections() > 10);
}

#[tokio::test]
async fn an_upstream_that_hangs_up_on_the_replay_too_has_failed() {
    let upstream = Upstream::start(|mut peer| async move {
        if peer.number == 0 {
            peer.request().await;
            peer.answer("200 OK", "content-type: application/json\r\n", GOOD).await;
        }
        peer.request().await;
    })
    .await;
    let setup = Setup::new(&upstream.url, CHAT);
    finish(setup.go().await.unwrap()).await;
    assert_eq!(setup.go().await.unwrap_err().verdict.detail.to_string(), "reset");
    assert_eq!(upstream.connections(), 2);
}

#[tokio::test]
async fn what_must_not_be_done_twice_is_not_sent_twice() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let upstream = Upstream::start(move |mut peer| {
        let count = count.clone();
        async move {
            // Answers once, then takes another request and hangs up on it.
            for turn in 0..2 {
                if peer.request().await.is_none() {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                if turn == 0 {
                    peer.answer("200 OK", "content-type: application/json\r\n", GOOD).await;
                }
            }
        }
    })
    .await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    for (endpoint, path) in [
        (Endpoint::ChatCompletions, "/v1/chat/completions"),
        (Endpoint::Images, "/v1/images/generations"),
        (Endpoint::Audio, "/v1/audio/speech"),
    ] {
        setup.request = crate::testing::outgoing(endpoint, path, CHAT);
        finish(setup.go().await.unwrap()).await;
    }
    assert_eq!((sent.load(Ordering::SeqCst), upstream.connections()), (3, 3));
}

#[tokio::test]
async fn connections_are_kept_over_answers_streams_refusals_and_registry_updates() {
    let upstream = Upstream::start(|mut peer| async move {
        let mut number = 0;
        while peer.request().await.is_some() {
            number += 1;
            match number % 3 {
                0 => peer.answer("500 Oops", "content-type: text/plain\r\n", "oops").await,
                1 => peer.answer("200 OK", "content-type: application/json\r\n", GOOD).await,
                _ => {
                    peer.stream_head().await;
                    peer.chunk(&(delta("a") + DONE)).await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    peer.last_chunk().await;
                }
            }
        }
    })
    .await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    for number in 1..=9 {
        setup.target.revision = number;
        let body = if number % 3 == 2 { CHAT_STREAM } else { CHAT };
        setup.request =
            crate::testing::outgoing(spareline_core::Endpoint::ChatCompletions, "/v1/chat/completions", body);
        match setup.go().await {
            Ok(answer) => drop(finish(answer).await),
            Err(failed) => assert_eq!(failed.verdict.status, 500),
        }
        // Until the rest of the stream is read, on a busy machine too.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_dropped_attempt_closes_its_upstream_in_every_phase() {
    for phase in 0..3 {
        let (tell, mut told) = tokio::sync::mpsc::channel(4);
        let upstream = Upstream::start(move |mut peer| {
            let tell = tell.clone();
            async move {
                if peer.request().await.is_none() {
                    return;
                }
                match phase {
                    0 => {}
                    1 => peer.stream_head().await,
                    _ => {
                        peer.send(
                            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
                        )
                        .await
                    }
                }
                tell.send(false).await.unwrap();
                peer.gone().await;
                tell.send(true).await.unwrap();
            }
        })
        .await;
        let setup = Setup::new(&upstream.url, if phase == 1 { CHAT_STREAM } else { CHAT });
        let line = setup.line();
        let mut running = Box::pin(crate::attempt(setup.attempt(&line)));
        tokio::select! {
            _ = &mut running => panic!("it cannot end"),
            begun = told.recv() => assert_eq!(begun, Some(false)),
        }
        drop(running);
        let gone = tokio::time::timeout(Duration::from_secs(1), told.recv()).await.unwrap();
        assert_eq!(gone, Some(true), "phase {phase}");
    }
}

#[tokio::test]
async fn connections_per_channel_are_limited_and_nobody_is_blamed_for_it() {
    let upstream = Upstream::start(|mut peer| async move {
        peer.request().await;
        peer.gone().await;
    })
    .await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    setup.target.network.max_connections = Some(1);
    setup.limits.connect = Duration::from_millis(100);
    let line = setup.line();
    let sibling = setup.clients.sibling();
    let other = sibling.line(ChannelId(1), 1, || setup.target.clone()).unwrap();
    let mut first = Box::pin(crate::attempt(setup.attempt(&line)));
    tokio::select! {
        _ = &mut first => panic!("it cannot end"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    let second = crate::attempt(setup.attempt(&other)).await.unwrap_err();
    assert_eq!(
        (second.limit, second.verdict.scope, second.silent),
        (Some(Limit::Connect), Scope::None, false)
    );
    drop(first);
    assert!(line.permit().await.is_some());
}

#[tokio::test]
async fn an_egress_proxy_is_used_and_its_refusal_is_nobodys_fault() {
    let (proxy, mut told) = good().await;
    let mut setup = Setup::new("http://provider.invalid/v1", CHAT);
    setup.target.network.proxy_url = Some(proxy.url.as_str().into());
    finish(setup.go().await.unwrap()).await;
    assert_eq!(told.recv().await.unwrap().line, "POST http://provider.invalid/v1/chat/completions HTTP/1.1");

    let (refusing, _told) =
        Upstream::always("HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n").await;
    for url in ["http://provider.invalid", "https://provider.invalid"] {
        let mut setup = Setup::new(url, CHAT);
        setup.target.network.proxy_url = Some(refusing.url.as_str().into());
        let failed = setup.go().await.unwrap_err();
        assert_eq!((failed.verdict.class, failed.verdict.scope), (Class::Retryable, Scope::None), "{url}");
    }
}

#[tokio::test]
async fn http2_is_spoken_where_a_channel_says_so() {
    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let serve = service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
                let body = if request.version() == http::Version::HTTP_2 { GOOD } else { "not HTTP/2" };
                let response = hyper::Response::builder().header("content-type", "application/json");
                response.body(Full::new(bytes::Bytes::from_static(body.as_bytes())))
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            tokio::spawn(
                async move { builder.serve_connection(TokioIo::new(socket), serve).await.map_err(drop) },
            );
        }
    });
    let mut setup = Setup::new(&url, CHAT);
    assert!(setup.go().await.is_err(), "HTTP/1.1 unless the channel says otherwise");
    setup.target.network.http2 = true;
    setup.target.revision = 2;
    assert_eq!(finish(setup.go().await.unwrap()).await.0, GOOD);
}

/// The first connection answers one request, streams to another and is silent to all others.
#[tokio::test]
async fn an_http2_connection_that_went_silent_is_given_up_and_its_streams_are_not() {
    use http_body_util::StreamBody;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let release = Arc::new(tokio::sync::Notify::new());
    let connections = Arc::new(AtomicUsize::new(0));
    let (held, count) = (release.clone(), connections.clone());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let (held, served) = (held.clone(), AtomicUsize::new(0));
            let serve = service_fn(move |_| {
                let (nth, held) = (served.fetch_add(1, Ordering::SeqCst), held.clone());
                async move {
                    if first && nth > 1 {
                        std::future::pending::<()>().await;
                    }
                    let (kind, texts) = if nth == 1 && first {
                        ("text/event-stream", vec![delta("a"), format!("{STOP}{DONE}")])
                    } else {
                        ("application/json", vec![GOOD.to_owned()])
                    };
                    let pieces = futures_util::stream::unfold((0, texts), move |(n, texts)| {
                        let held = held.clone();
                        async move {
                            if n == 1 && n < texts.len() {
                                held.notified().await;
                            }
                            let frame = http_body::Frame::data(bytes::Bytes::from(texts.get(n)?.clone()));
                            Some((Ok::<_, std::convert::Infallible>(frame), (n + 1, texts)))
                        }
                    });
                    let response = hyper::Response::builder().header("content-type", kind);
                    response.body(StreamBody::new(Box::pin(pieces)))
                }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            tokio::spawn(
                async move { builder.serve_connection(TokioIo::new(socket), serve).await.map_err(drop) },
            );
        }
    });
    let mut setup = Setup::new(&url, CHAT);
    setup.target.network.http2 = true;
    assert!(setup.go().await.is_ok());
    let plain = std::mem::replace(
        &mut setup.request,
        outgoing(Endpoint::ChatCompletions, "/v1/chat/completions", CHAT_STREAM),
    );
    let streaming = setup.go().await.unwrap();
    setup.request = plain;
    setup.limits.response = Duration::from_millis(200);
    for _ in 0..3 {
        assert_eq!(setup.go().await.unwrap_err().limit, Some(Limit::Response));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    setup.limits.response = Duration::from_secs(20);
    assert_eq!(finish(setup.go().await.unwrap()).await.0, GOOD);
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    release.notify_one();
    let (body, end) = finish(streaming).await;
    assert_eq!((body, end.ending), ([&delta("a"), STOP, DONE].concat(), Ending::Complete));
}

/// A TLS server on a thread of its own, one answer per connection: its URL, and its certificate, which nobody else has signed.
fn tls_server() -> (String, String) {
    use std::io::{Read as _, Write as _};
    crate::install_tls();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let config = std::sync::Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for socket in listener.incoming().take(2) {
            let mut stream = rustls::StreamOwned::new(
                rustls::ServerConnection::new(config.clone()).unwrap(),
                socket.unwrap(),
            );
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).is_ok() {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
                let _ = write!(stream, "{head}content-length: {}\r\n\r\n{GOOD}", GOOD.len());
                let _ = stream.flush();
            }
        }
    });
    (url, made.cert.pem())
}

#[tokio::test]
async fn a_certificate_is_trusted_only_where_the_channel_says_so() {
    let (url, certificate) = tls_server();
    let mut setup = Setup::new(&url, CHAT);
    let failed = setup.go().await.unwrap_err();
    assert_eq!((failed.verdict.class, failed.verdict.detail.to_string().as_str()), (Class::Retryable, "tls"));
    setup.target.network.ca_pem = Some(certificate.into());
    setup.target.revision = 2;
    assert_eq!(finish(setup.go().await.unwrap()).await.0, GOOD);
}

#[tokio::test]
async fn network_options_that_do_not_work_are_said() {
    let line = |change: fn(&mut crate::Target)| {
        let mut setup = Setup::new("http://127.0.0.1:1", CHAT);
        change(&mut setup.target);
        setup.clients.line(ChannelId(1), 1, || setup.target.clone()).map(|_| ()).unwrap_err()
    };
    assert_eq!(line(|target| target.network.ca_pem = Some("nonsense".into())), LineError::Certificates);
    assert_eq!(line(|target| target.network.proxy_url = Some("::".into())), LineError::Proxy);
}

#[tokio::test]
async fn pools_are_shared_by_channels_alike_and_dropped_with_the_last() {
    let (upstream, _told) = good().await;
    let mut setup = Setup::new(&upstream.url, CHAT);
    for channel in 1..=3 {
        setup.target.channel = ChannelId(channel);
        finish(setup.go().await.unwrap()).await;
    }
    assert_eq!(upstream.connections(), 1);
    setup.clients.retain(|_| false);
    finish(setup.go().await.unwrap()).await;
    assert_eq!(upstream.connections(), 2, "the pool went with its last channel");
    let clients = Clients::new(ClientsConfig::default());
    clients.retain(|_| true);
}
