//! A small load generator for `tests/bench/bench.py`: sends one request again and again over keep-alive connections, and
//! prints what came of it as one JSON object. Loopback only; bounded by `--seconds` and `--requests`.
//!
//! With `--rate`, requests have their places on a fixed time line, and times are counted from the place, not from the
//! moment of sending: an answer that holds up the next requests shows in their times too.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use clap::Parser;
use http::{HeaderName, HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep_until, timeout},
};

#[derive(Clone, Parser)]
#[command(about = "Sends one request again and again, and counts")]
struct Arguments {
    /// Where to; http, a loopback address and a port.
    url: Uri,
    /// A file with the request's body.
    #[arg(long)]
    body: std::path::PathBuf,
    /// A header, as `name: value`; repeat for more.
    #[arg(long)]
    header: Vec<String>,
    /// Connections, each with one request at a time.
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// No new request after this.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// No more requests than this.
    #[arg(long, default_value_t = u64::MAX)]
    requests: u64,
    /// How long all connections stay open, idle, after the last request.
    #[arg(long, default_value_t = 0.0)]
    linger: f64,
    /// Requests per second over all connections; not given: as fast as they go.
    #[arg(long)]
    rate: Option<f64>,
}

type Connection = http1::SendRequest<Full<Bytes>>;

/// What one connection has seen; times in microseconds.
#[derive(Debug, Default)]
struct Seen {
    statuses: BTreeMap<u16, u64>,
    errors: BTreeMap<&'static str, u64>,
    whole: Vec<u64>,
    first_byte: Vec<u64>,
    /// To the first text of a model's.
    first_content: Vec<u64>,
    bytes: u64,
}

/// What all connections share.
struct Load {
    arguments: Arguments,
    address: SocketAddr,
    request: Request<Full<Bytes>>,
    started: Instant,
    next: AtomicU64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let authority = arguments.url.authority().context("the URL names no host")?.as_str().to_owned();
    let address: SocketAddr = authority.parse().context("an address and a port, such as 127.0.0.1:8080")?;
    ensure!(address.ip().is_loopback(), "load goes to this machine only");
    ensure!(arguments.seconds <= 600.0 && arguments.connections <= 20_000, "too long or too many");
    let mut request = Request::post(arguments.url.path())
        .header(header::HOST, authority)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(std::fs::read(&arguments.body)?)))?;
    for line in &arguments.header {
        let (name, value) = line.split_once(':').context("a header is `name: value`")?;
        let name = HeaderName::try_from(name.trim())?;
        request.headers_mut().insert(name, HeaderValue::try_from(value.trim())?);
    }
    let connections = arguments.connections;
    let next = AtomicU64::new(0);
    let load = Arc::new(Load { arguments, address, request, started: Instant::now(), next });
    let workers: Vec<_> = (0..connections).map(|_| tokio::spawn(work(load.clone()))).collect();
    let mut all = Seen::default();
    let mut open = Vec::new();
    for worker in workers {
        let (seen, connection) = worker.await?;
        all.add(seen);
        open.extend(connection);
    }
    let took = load.started.elapsed();
    tokio::time::sleep(Duration::from_secs_f64(load.arguments.linger.clamp(0.0, 60.0))).await;
    drop(open);
    let report = all.report(took);
    writeln!(std::io::stdout(), "{report}")?;
    Ok(())
}

async fn work(load: Arc<Load>) -> (Seen, Option<Connection>) {
    let mut seen = Seen::default();
    let mut connection = None;
    let end = load.started + Duration::from_secs_f64(load.arguments.seconds);
    loop {
        let number = load.next.fetch_add(1, Ordering::Relaxed);
        let due = match load.arguments.rate {
            Some(rate) => load.started + Duration::from_secs_f64(number as f64 / rate),
            None => Instant::now(),
        };
        if number >= load.arguments.requests || due >= end {
            return (seen, connection);
        }
        sleep_until(due).await;
        let result = timeout(Duration::from_secs(60), one(&load, &mut connection, due, &mut seen)).await;
        if let Err(problem) = result.unwrap_or(Err("timeout")) {
            *seen.errors.entry(problem).or_default() += 1;
            connection = None;
        }
    }
}

async fn one(
    load: &Load,
    connection: &mut Option<Connection>,
    due: Instant,
    seen: &mut Seen,
) -> Result<(), &'static str> {
    if connection.as_ref().is_none_or(http1::SendRequest::is_closed) {
        let socket = TcpStream::connect(load.address).await.map_err(|_| "connect")?;
        let _ = socket.set_nodelay(true);
        let (sender, driver) = http1::handshake(TokioIo::new(socket)).await.map_err(|_| "connect")?;
        tokio::spawn(driver);
        *connection = Some(sender);
    }
    let sender = connection.as_mut().ok_or("connect")?;
    sender.ready().await.map_err(|_| "closed")?;
    let response = sender.send_request(load.request.clone()).await.map_err(|_| "send")?;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let (mut first, mut content) = (None, None);
    let mut begun = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "body")?;
        first.get_or_insert_with(|| due.elapsed());
        let Some(data) = frame.data_ref() else { continue };
        seen.bytes += data.len() as u64;
        if content.is_none() {
            begun.extend_from_slice(data);
            content = has_content(&begun).then(|| due.elapsed());
        }
    }
    *seen.statuses.entry(status).or_default() += 1;
    seen.whole.push(micros(due.elapsed()));
    seen.first_byte.push(micros(first.unwrap_or_default()));
    seen.first_content.extend(content.map(micros));
    Ok(())
}

/// Whether there is a text that is not empty, in what the bench's upstream writes.
fn has_content(body: &[u8]) -> bool {
    const KEY: &[u8] = b"\"content\":\"";
    body.windows(KEY.len() + 1).any(|part| part.starts_with(KEY) && !part.ends_with(b"\""))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Seen {
    fn add(&mut self, other: Self) {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (problem, count) in other.errors {
            *self.errors.entry(problem).or_default() += count;
        }
        self.whole.extend(other.whole);
        self.first_byte.extend(other.first_byte);
        self.first_content.extend(other.first_content);
        self.bytes += other.bytes;
    }

    fn report(mut self, took: Duration) -> serde_json::Value {
        let answers: u64 = self.statuses.values().sum();
        let errors: u64 = self.errors.values().sum();
        let good = self.statuses.get(&200).copied().unwrap_or_default();
        serde_json::json!({
            "requests": answers + errors,
            "good": good,
            "statuses": self.statuses,
            "errors": self.errors,
            "seconds": took.as_secs_f64(),
            "bytes": self.bytes,
            "whole_us": quantiles(&mut self.whole),
            "first_byte_us": quantiles(&mut self.first_byte),
            "first_content_us": quantiles(&mut self.first_content),
        })
    }
}

fn quantiles(times: &mut [u64]) -> serde_json::Value {
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
    serde_json::json!({ "p50": at(50), "p90": at(90), "p99": at(99), "max": times.last() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_alone_is_no_content() {
        let role = br#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
        assert!(!has_content(role));
        assert!(has_content(&[&role[..], br#"data: {"choices":[{"delta":{"content":"a"}}]}"#].concat()));
    }
}
