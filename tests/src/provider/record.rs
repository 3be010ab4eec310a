//! What the provider saw and what it wrote.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

/// At most so much of a request's body is kept.
const BODY_KEPT: usize = 64 * 1024;

/// One request and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// From 1, in order of arrival.
    pub seq: u64,
    /// Milliseconds since the provider started.
    pub at_ms: u64,
    /// As sent.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// As sent.
    pub query: Option<String>,
    /// The secret it came with.
    pub key: Option<String>,
    /// In order; the values of credential headers are left out (`key` has them).
    pub headers: Vec<(String, String)>,
    /// The body's `model`, also of a multipart body.
    pub model: Option<String>,
    /// The body asked for a stream.
    pub stream: bool,
    /// Bytes.
    pub body_len: usize,
    /// Hex.
    pub body_sha256: String,
    /// The first 64 KiB, as text.
    pub body: String,
    /// What was answered so far.
    pub answer: Answered,
}

/// What became of the answer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Answered {
    /// Unset while no head was written.
    pub status: Option<u16>,
    /// Of the body, as handed to the socket.
    pub bytes: u64,
    /// Hex, of those bytes; set at the end.
    pub sha256: Option<String>,
    /// Pieces written.
    pub pieces: usize,
    /// Unset while it goes on.
    pub end: Option<End>,
    /// Milliseconds since the provider started.
    pub end_ms: Option<u64>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Written whole.
    Complete,
    /// The provider cut it, as told.
    Cut,
    /// The peer went away first.
    PeerClosed,
}

impl Record {
    /// A header's value, by lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Keeps the records.
pub(crate) struct Witness {
    start: Instant,
    records: watch::Sender<Vec<Record>>,
    seq: Mutex<u64>,
}

impl Default for Witness {
    fn default() -> Self {
        Self { start: Instant::now(), records: watch::Sender::default(), seq: Mutex::new(0) }
    }
}

impl Witness {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn all(&self) -> Vec<Record> {
        self.records.borrow().clone()
    }

    pub(crate) fn forget(&self) {
        self.records.send_modify(Vec::clear);
    }

    pub(crate) fn add(&self, mut record: Record) -> u64 {
        let mut seq = self.seq.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *seq += 1;
        record.seq = *seq;
        record.at_ms = self.now_ms();
        self.records.send_modify(|all| all.push(record));
        *seq
    }

    pub(crate) fn update(&self, seq: u64, change: impl FnOnce(&mut Answered)) {
        self.records.send_modify(|all| {
            if let Some(record) = all.iter_mut().rev().find(|r| r.seq == seq) {
                change(&mut record.answer);
            }
        });
    }

    pub(crate) fn end(&self, seq: u64, end: End) {
        let now = self.now_ms();
        self.update(seq, |a| {
            if a.end.is_none() {
                a.end = Some(end);
                a.end_ms = Some(now);
            }
        });
    }

    pub(crate) async fn wait_until(
        &self,
        limit: Duration,
        wanted: impl Fn(&[Record]) -> bool,
    ) -> Result<Vec<Record>> {
        let mut seen = self.records.subscribe();
        let waited = tokio::time::timeout(limit, seen.wait_for(|all| wanted(all))).await;
        if let Ok(Ok(all)) = waited {
            return Ok(all.clone());
        }
        let mut list = String::new();
        for r in self.all() {
            let _ = write!(
                list,
                "\n  {} {} {} key={:?} model={:?} {:?}",
                r.seq, r.method, r.path, r.key, r.model, r.answer
            );
        }
        bail!("the provider did not see what was waited for within {limit:?}; it saw:{list}")
    }

    /// Requests and statuses by key.
    pub(crate) fn counters(&self) -> BTreeMap<String, Counter> {
        let mut counters = BTreeMap::<String, Counter>::new();
        for record in self.records.borrow().iter() {
            let counter = counters.entry(record.key.clone().unwrap_or_default()).or_default();
            counter.requests += 1;
            if let Some(status) = record.answer.status {
                *counter.by_status.entry(status).or_default() += 1;
            }
        }
        counters
    }
}

/// What one key was used for.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Counter {
    requests: u64,
    by_status: BTreeMap<u16, u64>,
}

/// Notes that the peer left unless told how the answer ended.
pub(crate) struct Closing {
    state: Arc<super::State>,
    seq: u64,
}

impl Closing {
    pub(crate) const fn new(state: Arc<super::State>, seq: u64) -> Self {
        Self { state, seq }
    }

    pub(crate) const fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn done(self, end: End) {
        self.state.witness.end(self.seq, end);
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.state.witness.end(self.seq, End::PeerClosed);
    }
}

/// The SHA-256 of some bytes, in hex.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

pub(crate) fn kept(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(BODY_KEPT)]).into_owned()
}
