//! An upstream that answers as it is told and remembers what it was asked.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::mpsc};

/// What to answer.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Status, content type, body.
    Plain(u16, &'static str, String),
    /// The same with a header more.
    With(u16, &'static str, &'static str, String),
    /// An event stream: pauses in ms and bytes, then a clean end.
    Stream(Vec<(u64, String)>),
    /// The same, then the connection is cut.
    Cut(Vec<(u64, String)>),
    /// Nothing, until the caller leaves.
    Hang,
    /// A good plain answer.
    Ok,
}

/// What was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

/// A listening upstream.
#[derive(Clone)]
pub struct Provider {
    pub url: String,
    state: Arc<State>,
}

struct State {
    script: Mutex<VecDeque<Reply>>,
    always: Mutex<Reply>,
    asked: Mutex<Vec<Asked>>,
    open: AtomicUsize,
}

pub const ANSWER: &str = r#"{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}"#;

/// A chunk of a chat completion.
pub fn chunk(content: &str) -> String {
    format!(
        "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// The first chunk, without content.
pub fn role() -> String {
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n".into()
}

/// The last chunk and the terminator.
pub fn stop() -> String {
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n".into()
}

/// A whole good stream.
pub fn good_stream() -> Reply {
    Reply::Stream(vec![(0, role()), (0, chunk("hel")), (5, chunk("lo")), (0, stop())])
}

/// An error in OpenAI's shape.
pub fn error(status: u16, kind: &str, code: &str, message: &str) -> Reply {
    let body =
        format!(r#"{{"error":{{"message":"{message}","type":"{kind}","param":null,"code":"{code}"}}}}"#);
    Reply::Plain(status, "application/json", body)
}

pub fn bad_key() -> Reply {
    error(401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided: sk-x.")
}

pub fn unavailable() -> Reply {
    error(503, "server_error", "", "The server is overloaded or not ready yet.")
}

impl Provider {
    /// Answers this to everything.
    pub async fn start(always: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let state = Arc::new(State {
            script: Mutex::default(),
            always: Mutex::new(always),
            asked: Mutex::default(),
            open: AtomicUsize::new(0),
        });
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let state = shared.clone();
                tokio::spawn(async move {
                    state.open.fetch_add(1, Ordering::SeqCst);
                    let service = service_fn(|request| answer(state.clone(), request));
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(socket), service).await;
                    state.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { url, state }
    }

    /// A good one.
    pub async fn good() -> Self {
        Self::start(Reply::Ok).await
    }

    /// Answers these first, in order.
    pub fn then(self, replies: impl IntoIterator<Item = Reply>) -> Self {
        self.state.script.lock().unwrap().extend(replies);
        self
    }

    pub fn always(&self, reply: Reply) {
        *self.state.always.lock().unwrap() = reply;
    }

    pub fn hits(&self) -> usize {
        self.state.asked.lock().unwrap().len()
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.state.asked.lock().unwrap().clone()
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Waits until no connection is open.
    pub async fn closed(&self) {
        for _ in 0..100 {
            if self.open() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} connections are still open after a second", self.open());
    }

    /// Waits until that many requests came.
    pub async fn reached(&self, hits: usize) {
        for _ in 0..300 {
            if self.hits() >= hits {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("only {} requests came", self.hits());
    }
}

type Body = http_body_util::combinators::BoxBody<Bytes, std::io::Error>;

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let stream = body.windows(13).any(|w| w == b"\"stream\":true");
    state.asked.lock().unwrap().push(Asked {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts.headers,
        body,
    });
    let scripted = state.script.lock().unwrap().pop_front();
    let mut reply = scripted.unwrap_or_else(|| state.always.lock().unwrap().clone());
    if let (Reply::Ok, true) = (&reply, stream) {
        reply = good_stream();
    }
    let full = |body: String| http_body_util::Full::from(body).map_err(|e: Infallible| match e {}).boxed();
    let response = |status: u16, kind: &str| Response::builder().status(status).header("content-type", kind);
    Ok(match reply {
        Reply::Ok => response(200, "application/json").body(full(ANSWER.into())).unwrap(),
        Reply::Plain(status, kind, body) => response(status, kind).body(full(body)).unwrap(),
        Reply::With(status, name, value, body) => {
            response(status, "application/json").header(name, value).body(full(body)).unwrap()
        }
        Reply::Hang => std::future::pending().await,
        Reply::Stream(steps) => response(200, "text/event-stream").body(events(steps, false)).unwrap(),
        Reply::Cut(steps) => response(200, "text/event-stream").body(events(steps, true)).unwrap(),
    })
}

fn events(steps: Vec<(u64, String)>, cut: bool) -> Body {
    let (tx, rx) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::spawn(async move {
        for (pause, bytes) in steps {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if tx.send(Ok(bytes.into())).await.is_err() {
                return;
            }
        }
        if cut {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _ = tx.send(Err(std::io::Error::other("cut"))).await;
        }
    });
    let frames = futures_util::stream::unfold(rx, |mut rx| async move {
        let next = rx.recv().await?;
        Some((next.map(http_body::Frame::data), rx))
    });
    http_body_util::StreamBody::new(frames).boxed()
}
