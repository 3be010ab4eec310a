//! A scripted upstream on a loopback socket, and the parts of an attempt for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use spareline_core::classify::Rules;
use spareline_core::{ChannelId, Endpoint, Provider, splice};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use crate::attempt::{Answer, Attempt, CommitMode, End, Failed, Limits, attempt};
use crate::budget::Budget;
use crate::clients::{Clients, ClientsConfig, Line};
use crate::request::{ModelSpan, Outgoing};
use crate::target::{Network, Target};

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// A connection of the upstream's.
pub(crate) struct Peer {
    pub(crate) number: usize,
    socket: TcpStream,
    seen: Vec<u8>,
}

impl Peer {
    /// The next request; `None` when the other side closes.
    pub(crate) async fn request(&mut self) -> Option<Got> {
        let end = loop {
            if let Some(at) = self.seen.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if self.read().await == 0 {
                return None;
            }
        };
        let head = String::from_utf8(self.seen.drain(..end).collect()).unwrap();
        let mut lines = head.split("\r\n");
        let line = lines.next().unwrap().to_owned();
        let mut headers = HeaderMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            let name: http::HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let length =
            headers.get("content-length").map_or(0, |value| value.to_str().unwrap().parse().unwrap());
        while self.seen.len() < length {
            assert_ne!(self.read().await, 0, "the request's body is cut");
        }
        let body = self.seen.drain(..length).collect();
        Some(Got { line, headers, body })
    }

    async fn read(&mut self) -> usize {
        let mut buffer = vec![0; 64 * 1024];
        let read = self.socket.read(&mut buffer).await.unwrap_or(0);
        self.seen.extend_from_slice(&buffer[..read]);
        read
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.socket.write_all(bytes.as_ref()).await;
        let _ = self.socket.flush().await;
    }

    /// A whole answer with a length.
    pub(crate) async fn answer(&mut self, status: &str, headers: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
        self.send([head.as_bytes(), body].concat()).await;
    }

    /// The head of a chunked event stream.
    pub(crate) async fn stream_head(&mut self) {
        self.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
    }

    pub(crate) async fn chunk(&mut self, text: &str) {
        self.send(format!("{:x}\r\n{text}\r\n", text.len())).await;
    }

    pub(crate) async fn last_chunk(&mut self) {
        self.send("0\r\n\r\n").await;
    }

    /// Waits until the other side is gone.
    pub(crate) async fn gone(&mut self) {
        while self.read().await != 0 {}
    }

    /// With a reset.
    pub(crate) fn reset(self) {
        self.socket.set_zero_linger().unwrap();
    }
}

/// The upstream: `serve` is run for every connection.
pub(crate) struct Upstream {
    pub(crate) url: String,
    connections: Arc<AtomicUsize>,
}

impl Upstream {
    pub(crate) async fn start<F, R>(serve: F) -> Self
    where
        F: Fn(Peer) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                socket.set_nodelay(true).unwrap();
                let number = count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(Peer { number, socket, seen: Vec::new() }));
            }
        });
        Self { url, connections }
    }

    /// Answers every request on every connection with the same bytes, and tells what came in.
    pub(crate) async fn always(answer: impl Into<Vec<u8>>) -> (Self, mpsc::Receiver<Got>) {
        let (tell, told) = mpsc::channel(64);
        let answer = Arc::new(answer.into());
        let upstream = Self::start(move |mut peer| {
            let (tell, answer) = (tell.clone(), answer.clone());
            async move {
                while let Some(got) = peer.request().await {
                    let _ = tell.send(got).await;
                    peer.send(&*answer).await;
                }
            }
        })
        .await;
        (upstream, told)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// What an attempt is made of; tests change what they need.
pub(crate) struct Setup {
    pub(crate) target: Target,
    pub(crate) clients: Clients,
    pub(crate) secret: Option<&'static str>,
    pub(crate) request: Outgoing,
    pub(crate) upstream_model: Option<&'static str>,
    pub(crate) limits: Limits,
    pub(crate) commit: CommitMode,
    pub(crate) request_usage: bool,
    pub(crate) rules: Rules,
    pub(crate) budget: Budget,
}

pub(crate) const CHAT_STREAM: &str = r#"{"model":"gpt","stream":true,"messages":[]}"#;
pub(crate) const CHAT: &str = r#"{"model":"gpt","messages":[]}"#;

impl Setup {
    pub(crate) fn new(url: &str, body: &'static str) -> Self {
        crate::install_tls();
        Self {
            target: Target {
                channel: ChannelId(1),
                revision: 1,
                provider: Provider::OpenAi,
                vendor: None,
                base_url: url.parse().unwrap(),
                api_version: None,
                organization: None,
                project: None,
                headers: Vec::new(),
                network: Network::default(),
            },
            clients: Clients::new(ClientsConfig::default()),
            secret: Some("sk-ours"),
            request: outgoing(Endpoint::ChatCompletions, "/v1/chat/completions", body),
            upstream_model: None,
            limits: Limits {
                connect: Duration::from_secs(5),
                first_content: Some(Duration::from_secs(20)),
                response: Duration::from_secs(30),
                idle: Duration::from_secs(20),
                deadline: None,
            },
            commit: CommitMode::FirstContent,
            request_usage: false,
            rules: Rules::builtin(),
            budget: Budget::unlimited(),
        }
    }

    pub(crate) fn line(&self) -> Arc<Line> {
        self.clients.line(self.target.channel, self.target.revision, || self.target.clone()).unwrap()
    }

    pub(crate) fn attempt<'a>(&'a self, line: &'a Line) -> Attempt<'a> {
        Attempt {
            line,
            secret: self.secret,
            request: &self.request,
            upstream_model: self.upstream_model,
            limits: self.limits,
            commit: self.commit,
            request_usage: self.request_usage,
            rules: &self.rules,
            budget: &self.budget,
            now: SystemTime::UNIX_EPOCH,
            heard: None,
        }
    }

    pub(crate) async fn go(&self) -> Result<Answer, Box<Failed>> {
        let line = self.line();
        attempt(self.attempt(&line)).await
    }
}

pub(crate) fn outgoing(endpoint: Endpoint, path: &str, body: &'static str) -> Outgoing {
    let fields = splice::scan(body.as_bytes(), None).unwrap();
    Outgoing {
        body: Bytes::from_static(body.as_bytes()),
        model: fields.model.map(|model| ModelSpan::Json(model.span)),
        stream: fields.stream,
        ..Outgoing::new(Method::POST, Some(endpoint), path)
    }
}

/// Everything of an answer's body, and its end.
pub(crate) async fn finish(mut answer: Answer) -> (String, End) {
    let (tell, told) = oneshot::channel();
    answer.body.on_end(|end| tell.send(end).unwrap());
    let bytes = answer.body.collect().await.unwrap().to_bytes();
    (String::from_utf8(bytes.to_vec()).unwrap(), told.await.unwrap())
}

/// One chat chunk with content.
pub(crate) fn delta(text: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
}

pub(crate) const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
pub(crate) const STOP: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
pub(crate) const USAGE: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5}}\n\n";
pub(crate) const DONE: &str = "data: [DONE]\n\n";
