//! The upstream for `tests/bench/bench.py`: ready-made answers from one thread, so that it is not what is measured.
//!
//! * A chat completion of 1 KiB, or a stream of 20 content events 5 ms apart where the body asks for one.
//! * A key that begins with `bad` gets a 401; `GET /stats` counts those and the good ones; `POST /reset` forgets them.
//! * With `--tls` it makes a certificate for 127.0.0.1, and says it beside its address.

use std::{
    convert::Infallible,
    io::Write as _,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use clap::Parser;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{ServerConfig, pki_types::PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    time::{Instant, Sleep, sleep_until},
};
use tokio_rustls::TlsAcceptor;

/// Content events of a stream.
const EVENTS: usize = 20;

#[derive(Parser)]
#[command(about = "Ready-made answers for benchmarks")]
struct Arguments {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Between the events of a stream.
    #[arg(long, default_value_t = 5.0)]
    interval_ms: f64,
    /// https in place of http.
    #[arg(long)]
    tls: bool,
}

struct Ready {
    completion: Bytes,
    refusal: Bytes,
    /// Role, contents, then finish, usage and the end in one piece.
    events: Vec<Bytes>,
    interval: Duration,
    good: AtomicU64,
    refused: AtomicU64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let listener = TcpListener::bind(arguments.listen).await?;
    let (tls, ca_pem) = arguments.tls.then(certified).transpose()?.unzip();
    let address = listener.local_addr()?.to_string();
    let line = serde_json::json!({"event": "listening", "http_addr": address, "ca_pem": ca_pem});
    writeln!(std::io::stderr(), "{line}")?;
    let ready = Arc::new(Ready::new(Duration::from_secs_f64(arguments.interval_ms / 1000.0)));
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let _ = socket.set_nodelay(true);
        let (ready, tls) = (ready.clone(), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(ready, socket).await,
                Some(tls) => {
                    if let Ok(socket) = tls.accept(socket).await {
                        serve(ready, socket).await;
                    }
                }
            }
        });
    }
}

async fn serve(ready: Arc<Ready>, socket: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(move |request| answer(ready.clone(), request));
    // A caller that hangs up is no problem of ours.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
}

/// A certificate that nobody else vouches for, and its text.
fn certified() -> Result<(TlsAcceptor, String)> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    Ok((TlsAcceptor::from(Arc::new(config)), made.cert.pem()))
}

async fn answer(ready: Arc<Ready>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    match request.uri().path() {
        "/stats" => {
            let (good, refused) = (&ready.good, &ready.refused);
            let text = serde_json::json!({
                "good": good.load(Ordering::Relaxed), "refused": refused.load(Ordering::Relaxed)
            });
            return Ok(json(StatusCode::OK, text.to_string().into()));
        }
        "/reset" => {
            ready.good.store(0, Ordering::Relaxed);
            ready.refused.store(0, Ordering::Relaxed);
            return Ok(json(StatusCode::OK, Bytes::from_static(b"{}")));
        }
        _ => {}
    }
    let key = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let refused = !key.starts_with(b"Bearer ") || key.starts_with(b"Bearer bad");
    // Read whole before any answer, so that the connection stays of use.
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    if refused {
        ready.refused.fetch_add(1, Ordering::Relaxed);
        return Ok(json(StatusCode::UNAUTHORIZED, ready.refusal.clone()));
    }
    ready.good.fetch_add(1, Ordering::Relaxed);
    let streams = body.windows(14).take(4096).any(|part| part == b"\"stream\": true");
    if !streams {
        return Ok(json(StatusCode::OK, ready.completion.clone()));
    }
    let interval = ready.interval;
    let clock = Box::pin(sleep_until(Instant::now() + interval));
    let mut response = Response::new(Body::Events { ready, sent: 0, clock });
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

fn json(status: StatusCode, text: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Some(text)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

impl Ready {
    fn new(interval: Duration) -> Self {
        let content = "The quick brown fox jumps over the lazy dog while gateways carry tokens. ".repeat(9);
        let completion = serde_json::json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1_764_400_000, "model": "mock-model",
            "choices": [{
                "index": 0, "logprobs": null, "finish_reason": "stop",
                "message": {"role": "assistant", "content": content, "refusal": null, "annotations": []},
            }],
            "usage": {"prompt_tokens": 24, "completion_tokens": 128, "total_tokens": 152},
        });
        let refusal = serde_json::json!({"error": {
            "message": "Incorrect API key provided.", "type": "invalid_request_error", "param": null,
            "code": "invalid_api_key",
        }});
        let chunk = |choices: serde_json::Value, usage: serde_json::Value| {
            let event = serde_json::json!({
                "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_764_400_000,
                "model": "mock-model", "choices": choices, "usage": usage,
            });
            format!("data: {event}\n\n")
        };
        let delta = |delta: serde_json::Value, finish: Option<&str>| {
            let choices = serde_json::json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
            chunk(choices, serde_json::Value::Null)
        };
        let mut events = vec![delta(serde_json::json!({"role": "assistant", "content": ""}), None)];
        events.extend((0..EVENTS).map(|_| delta(serde_json::json!({"content": "alpha "}), None)));
        let usage = serde_json::json!({"prompt_tokens": 24, "completion_tokens": 20, "total_tokens": 44});
        let end = delta(serde_json::json!({}), Some("stop"));
        events.push(end + &chunk(serde_json::json!([]), usage) + "data: [DONE]\n\n");
        Self {
            completion: completion.to_string().into(),
            refusal: refusal.to_string().into(),
            events: events.into_iter().map(Bytes::from).collect(),
            interval,
            good: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

/// A whole answer, or events on a clock.
enum Body {
    Whole(Option<Bytes>),
    Events { ready: Arc<Ready>, sent: usize, clock: Pin<Box<Sleep>> },
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut *self {
            Self::Whole(bytes) => bytes.take(),
            Self::Events { ready, sent, clock } => {
                // The first and the last piece do not wait.
                if (1..=EVENTS).contains(sent) {
                    ready!(clock.as_mut().poll(cx));
                    let next = clock.deadline() + ready.interval;
                    clock.as_mut().reset(next);
                }
                *sent += 1;
                ready.events.get(*sent - 1).cloned()
            }
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Events { ready, sent, .. } => *sent >= ready.events.len(),
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Whole(bytes) => {
                http_body::SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Events { .. } => http_body::SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_has_all_its_events_on_the_clock() {
        let ready = Arc::new(Ready::new(Duration::from_millis(5)));
        let began = Instant::now();
        let clock = Box::pin(sleep_until(began + ready.interval));
        let body = Body::Events { ready: ready.clone(), sent: 0, clock };
        let bytes = body.collect().await.unwrap().to_bytes();
        assert_eq!(bytes, ready.events.concat());
        assert_eq!(began.elapsed(), ready.interval * 20);
        assert!(bytes.ends_with(b"data: [DONE]\n\n"));
    }
}
