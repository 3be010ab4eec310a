//! Connections, and the way from a request through the script to bytes on the socket.

use std::{convert::Infallible, io::Write as _, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

use super::{
    State, control,
    good::{Asked, Body, CONTENT},
    record::{Answered, Closing, End, Record, hex, kept, sha256},
    script::{Answer, Encoding, Ending, Failure, KeyState, Pace, Rule},
};

/// The body of an answer; its error cuts the connection.
pub(super) type Outgoing = BoxBody<Bytes, Gone>;

/// Ends a connection without a proper end.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("cut, as told")]
pub(super) struct Gone;

/// One connection's socket, to be able to reset it.
struct Socket(socket2::Socket);

impl Socket {
    /// From here on closing means a reset.
    fn reset(&self) {
        let _ = self.0.set_linger(Some(Duration::ZERO));
    }
}

/// Serves connections until the task is aborted.
pub(super) async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let Ok(socket) = socket2::SockRef::from(&stream).try_clone() else { continue };
        let socket = Arc::new(Socket(socket));
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let mut server = auto::Builder::new(TokioExecutor::new());
            if let Some(idle) = state.idle_close {
                server.http1().timer(TokioTimer::new()).header_read_timeout(idle);
            }
            let service = service_fn(move |request| answer(Arc::clone(&state), Arc::clone(&socket), request));
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    state: Arc<State>,
    socket: Arc<Socket>,
    request: Request<Incoming>,
) -> Result<Response<Outgoing>, Gone> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Gone)?.to_bytes();
    if let Some(path) = head.uri.path().strip_prefix("/control/") {
        return Ok(control::answer(&state, &head.method, path, head.uri.query(), &body).await);
    }
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    let record = record(&head, &body, &json);
    let asked = Asked {
        method: &head.method,
        path: head.uri.path(),
        body: &json,
        model: record.model.as_deref().unwrap_or("unknown"),
        stream: record.stream,
    };
    let rule = state.script.take(record.key.as_deref(), record.model.as_deref(), asked.path, asked.stream);
    let rule = rule.unwrap_or_else(|| Rule::always(by_key(state.script.key(record.key.as_deref()))));
    let closing = Closing::new(Arc::clone(&state), state.witness.add(record.clone()));
    let seq = closing.seq();
    if let Some(name) = &rule.hold {
        state.script.held(name).await;
    }
    tokio::time::sleep(Duration::from_millis(rule.delay_ms)).await;
    let plan = match plan(&asked, &rule) {
        Planned::Answer(plan) => plan,
        Planned::Silence => std::future::pending().await,
        Planned::Close => {
            closing.done(End::Cut);
            return Err(Gone);
        }
        Planned::Reset => {
            socket.reset();
            closing.done(End::Cut);
            return Err(Gone);
        }
    };
    let mut response = Response::builder().status(plan.status);
    for (name, value) in plan.headers {
        response = response.header(name, value);
    }
    state.witness.update(seq, |a| a.status = Some(plan.status));
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(write(state, socket, closing, sender, plan.pieces, rule.pace.delay(), plan.then));
    let frames = ReceiverStream::new(receiver).map(|piece: Result<Bytes, Gone>| piece.map(Frame::data));
    response.body(BodyExt::boxed(StreamBody::new(frames))).map_err(|_| Gone)
}

/// Writes a body piece by piece, and notes what became of it.
async fn write(
    state: Arc<State>,
    socket: Arc<Socket>,
    closing: Closing,
    sender: mpsc::Sender<Result<Bytes, Gone>>,
    pieces: Vec<Bytes>,
    pause: Duration,
    then: Ending,
) {
    let seq = closing.seq();
    let mut hash = Sha256::new();
    for (i, piece) in pieces.into_iter().enumerate() {
        if i > 0 && !pause.is_zero() {
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
        hash.update(&piece);
        let length = piece.len() as u64;
        if sender.send(Ok(piece)).await.is_err() {
            return;
        }
        state.witness.update(seq, |a: &mut Answered| {
            a.bytes += length;
            a.pieces += 1;
        });
    }
    let digest = hex(&hash.finalize());
    state.witness.update(seq, |a| a.sha256 = Some(digest));
    match then {
        Ending::End => closing.done(End::Complete),
        Ending::Hang => sender.closed().await,
        Ending::Cut | Ending::Reset => {
            if then == Ending::Reset {
                socket.reset();
            }
            closing.done(End::Cut);
            let _ = sender.send(Err(Gone)).await;
        }
    }
}

/// An answer, ready to be written.
struct Plan {
    status: u16,
    headers: Vec<(HeaderName, HeaderValue)>,
    pieces: Vec<Bytes>,
    then: Ending,
}

enum Planned {
    Answer(Plan),
    Silence,
    Close,
    Reset,
}

fn plan(asked: &Asked<'_>, rule: &Rule) -> Planned {
    let content: Vec<String> = match &rule.answer {
        Answer::Say { content } => content.clone(),
        _ => CONTENT.iter().map(|&c| c.to_owned()).collect(),
    };
    let plan = match &rule.answer {
        Answer::Hang => return Planned::Silence,
        Answer::Close => return Planned::Close,
        Answer::Reset => return Planned::Reset,
        Answer::Http { status, headers, body } => {
            let headers =
                headers.iter().filter_map(|(n, v)| Some((n.parse().ok()?, v.parse().ok()?))).collect();
            whole(*status, headers, body.clone().into_bytes(), rule, Ending::End)
        }
        Answer::Fail { error, retry_after } => {
            let (status, body) = asked.failure(*error);
            let mut headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
            if let Some(value) = retry_after.as_deref().and_then(|v| v.parse().ok()) {
                headers.push((header::RETRY_AFTER, value));
            }
            whole(status, headers, body.to_string().into_bytes(), rule, Ending::End)
        }
        Answer::Stream { events, then } => events_plan(events, rule, *then),
        Answer::Good | Answer::Say { .. } => good(asked, &content, rule, None),
        Answer::HeadThenHang => good(asked, &content, rule, Some((0, Ending::Hang))),
        Answer::Part { events, then } => good(asked, &content, rule, Some((*events, *then))),
    };
    Planned::Answer(plan)
}

/// A good answer, whole or in part.
fn good(asked: &Asked<'_>, content: &[String], rule: &Rule, part: Option<(usize, Ending)>) -> Plan {
    match asked.good(content) {
        Body::Stream(events) => match part {
            Some((count, then)) => events_plan(&events[..count.min(events.len())], rule, then),
            None => events_plan(&events, rule, Ending::End),
        },
        Body::Plain { content_type, bytes } => {
            let headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static(content_type))];
            match part {
                Some((count, then)) => {
                    let mut plan = whole(200, headers, bytes, rule, then);
                    plan.pieces = match plan.pieces.first() {
                        Some(piece) if count > 0 => vec![piece.slice(..piece.len() / 2)],
                        _ => Vec::new(),
                    };
                    plan
                }
                None => whole(200, headers, bytes, rule, Ending::End),
            }
        }
        Body::NoSuchPath => {
            let body = format!(
                "{{\"error\":{{\"message\":\"Invalid URL ({} {})\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}}}",
                asked.method, asked.path
            );
            whole(
                404,
                vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))],
                body.into_bytes(),
                rule,
                Ending::End,
            )
        }
    }
}

/// A body of known length.
fn whole(
    status: u16,
    mut headers: Vec<(HeaderName, HeaderValue)>,
    body: Vec<u8>,
    rule: &Rule,
    then: Ending,
) -> Plan {
    let body = match rule.encoding.map(|e| (e, compress(e, &body))) {
        Some((encoding, Ok(compressed))) => {
            headers.push((header::CONTENT_ENCODING, HeaderValue::from_static(name(encoding))));
            compressed
        }
        _ => body,
    };
    if !headers.iter().any(|(n, _)| n == header::CONTENT_LENGTH) {
        headers.push((header::CONTENT_LENGTH, HeaderValue::from(body.len())));
    }
    Plan { status, headers, pieces: split(Bytes::from(body), rule.pace), then }
}

/// An event stream.
fn events_plan(events: &[String], rule: &Rule, then: Ending) -> Plan {
    let mut headers = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    let pieces = match rule.encoding {
        Some(encoding) => {
            headers.push((header::CONTENT_ENCODING, HeaderValue::from_static(name(encoding))));
            let bytes = compress(encoding, events.concat().as_bytes()).unwrap_or_default();
            split(Bytes::from(bytes), rule.pace)
        }
        None if rule.pace.bytes.is_some() => split(Bytes::from(events.concat()), rule.pace),
        None => events.iter().map(|e| Bytes::from(e.clone())).collect(),
    };
    Plan { status: 200, headers, pieces, then }
}

fn split(mut bytes: Bytes, pace: Pace) -> Vec<Bytes> {
    let size = pace.bytes.unwrap_or(bytes.len()).max(1);
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        pieces.push(bytes.split_to(size.min(bytes.len())));
    }
    pieces
}

const fn name(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Gzip => "gzip",
        Encoding::Deflate => "deflate",
    }
}

fn compress(encoding: Encoding, body: &[u8]) -> std::io::Result<Vec<u8>> {
    let level = flate2::Compression::default();
    match encoding {
        Encoding::Gzip => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), level);
            out.write_all(body)?;
            out.finish()
        }
        Encoding::Deflate => {
            let mut out = flate2::write::ZlibEncoder::new(Vec::new(), level);
            out.write_all(body)?;
            out.finish()
        }
    }
}

const fn by_key(state: KeyState) -> Answer {
    match state {
        KeyState::Valid => Answer::Good,
        KeyState::Dead => Answer::fail(Failure::InvalidApiKey),
        KeyState::OutOfQuota => Answer::fail(Failure::InsufficientQuota),
        KeyState::Throttled => Answer::fail(Failure::RateLimit),
    }
}

/// Headers that carry a credential.
const CREDENTIAL_HEADERS: [&str; 3] = ["authorization", "x-api-key", "api-key"];

fn record(head: &http::request::Parts, body: &Bytes, json: &Value) -> Record {
    let text = |v: &HeaderValue| String::from_utf8_lossy(v.as_bytes()).into_owned();
    let key = CREDENTIAL_HEADERS.iter().find_map(|name| {
        let value = text(head.headers.get(*name)?);
        Some(value.strip_prefix("Bearer ").unwrap_or(&value).to_owned())
    });
    let headers = head.headers.iter().map(|(name, value)| {
        let hidden = CREDENTIAL_HEADERS.contains(&name.as_str());
        (name.to_string(), if hidden { "<key>".to_owned() } else { text(value) })
    });
    Record {
        seq: 0,
        at_ms: 0,
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        key,
        headers: headers.collect(),
        model: json["model"].as_str().map(str::to_owned).or_else(|| multipart_model(body)),
        stream: json["stream"] == true,
        body_len: body.len(),
        body_sha256: sha256(body),
        body: kept(body),
        answer: Answered::default(),
    }
}

/// The `model` field of a form, read simply: it is our own proxy that sends it.
fn multipart_model(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let (_, rest) = text.split_once("name=\"model\"")?;
    let (_, value) = rest.split_once("\r\n\r\n")?;
    Some(value.split("\r\n").next()?.to_owned())
}

/// A body in one piece, for the control API.
pub(super) fn full(status: u16, body: &impl serde::Serialize) -> Response<Outgoing> {
    let bytes = serde_json::to_vec(body).context("answer").unwrap_or_default();
    let body = http_body_util::Full::new(Bytes::from(bytes)).map_err(|never: Infallible| match never {});
    let mut response = Response::new(BodyExt::boxed(body));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
