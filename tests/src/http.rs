//! An HTTP client that keeps every byte and says how a body ended. One connection per request.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};

/// No answer of a test takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// What came of the body.
    pub body: Bytes,
    /// Why the body ended early; `None`: it ended as HTTP wants.
    pub broken: Option<String>,
    /// From the request to the end.
    pub took: Duration,
}

/// An answer whose body is still coming. Dropping it closes the connection.
pub struct Streaming {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    connection: JoinHandle<()>,
}

impl Call {
    /// A `GET`.
    pub fn get(path: &str) -> Self {
        Self { method: Method::GET, path: path.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    /// A `POST` of bytes said to be JSON.
    pub fn post(path: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { method: Method::POST, path: path.to_owned(), headers, body: body.into() }
    }

    /// A `POST` of JSON.
    pub fn json(path: &str, body: &Value) -> Self {
        Self::post(path, body.to_string())
    }

    /// A plain chat completion.
    pub fn chat(model: &str) -> Self {
        Self::json(
            "/v1/chat/completions",
            &json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}),
        )
    }

    /// A streamed chat completion.
    pub fn chat_stream(model: &str) -> Self {
        let messages = json!([{"role": "user", "content": "hi"}]);
        Self::json("/v1/chat/completions", &json!({"model": model, "stream": true, "messages": messages}))
    }

    /// With one more header, or another value of one.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends it and reads the whole answer.
    ///
    /// # Errors
    /// When no head comes; a body that breaks is no error, see [`Reply::broken`].
    pub async fn send(&self, to: SocketAddr) -> Result<Reply> {
        let start = Instant::now();
        let mut streaming = self.open(to).await?;
        let mut body = BytesMut::new();
        let broken = loop {
            match streaming.piece().await {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => break None,
                Err(error) => break Some(format!("{error:#}")),
            }
        };
        let (status, headers) = (streaming.status, std::mem::take(&mut streaming.headers));
        Ok(Reply { status, headers, body: body.freeze(), broken, took: start.elapsed() })
    }

    /// Sends it and reads the head.
    ///
    /// # Errors
    /// When no head comes.
    pub async fn open(&self, to: SocketAddr) -> Result<Streaming> {
        let stream = TcpStream::connect(to).await.with_context(|| format!("cannot connect to {to}"))?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        let mut request =
            Request::builder().method(&self.method).uri(&self.path).header("host", to.to_string());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body.clone()))?;
        let answer = tokio::time::timeout(LIMIT, sender.send_request(request)).await;
        let answer =
            answer.with_context(|| format!("no head of {} {} within {LIMIT:?}", self.method, self.path))?;
        let (head, body) = answer.with_context(|| format!("{} {}", self.method, self.path))?.into_parts();
        Ok(Streaming { status: head.status, headers: head.headers, body, connection })
    }
}

impl Streaming {
    /// The next piece of the body; `None` at its proper end.
    ///
    /// # Errors
    /// When the body breaks, or is silent for a minute.
    pub async fn piece(&mut self) -> Result<Option<Bytes>> {
        loop {
            let frame = tokio::time::timeout(LIMIT, self.body.frame()).await.context("the body is silent")?;
            match frame.transpose().context("the body broke")? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Reply {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, or null.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// A header's value, empty if absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// The `x-spareline-attempts` header.
    pub fn attempts(&self) -> &str {
        self.header("x-spareline-attempts")
    }

    /// Our own error's code.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// The text of a chat completion, plain or streamed.
    pub fn content(&self) -> String {
        if let Some(content) = self.json()["choices"][0]["message"]["content"].as_str() {
            return content.to_owned();
        }
        let text = self.text();
        let events =
            text.lines().filter_map(|l| serde_json::from_str::<Value>(l.strip_prefix("data: ")?).ok());
        events.filter_map(|e| e["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
    }
}

/// Sends raw bytes and reads until the peer closes or is silent for so long.
pub async fn raw(to: SocketAddr, bytes: &[u8], silence: Duration) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(bytes).await?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(Ok(read)) = tokio::time::timeout(silence, stream.read(&mut buffer)).await {
        if read == 0 {
            break;
        }
        answer.extend_from_slice(&buffer[..read]);
    }
    Ok(answer)
}
