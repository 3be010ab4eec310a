//! What is known of one request, from its head to its one ending: the log line, the metrics and the place among those
//! in flight all hang on it, so that none of them can be forgotten.
//!
//! Exactly one ending is written per request: by [`Record::finish`], or when the record is dropped, which means that
//! the caller left (or that we panicked).

use std::{fmt::Write as _, sync::Arc, time::Duration};

use tokio::time::Instant;

use spareline_core::{Endpoint, commit::Usage};

use crate::{
    log::{Logger, digits, millis, quote},
    metrics::{ChannelLabel, Finished, Handles, Metrics, OTHER},
};

/// One attempt, as logs and headers show it.
#[derive(Clone, Debug)]
pub struct AttemptRecord {
    /// The channel's name.
    pub channel: Arc<str>,
    /// Which of its keys, from 1, where it lists several.
    pub rank: Option<usize>,
    /// `ok`, a class, `cancelled` or `internal`.
    pub outcome: &'static str,
    /// The upstream's status; zero: none.
    pub status: u16,
    /// What is shown in place of a status: `refused`, a limit's name ...
    pub word: &'static str,
    /// It was tried although it is out.
    pub last_resort: bool,
    /// How long it took.
    pub took: Duration,
}

impl AttemptRecord {
    /// The entry of `x-spareline-attempts`; without names where they are not to be shown.
    #[must_use]
    pub fn entry(&self, number: usize, expose: bool) -> String {
        let mut entry = String::new();
        self.write_entry(&mut entry, number, expose);
        entry
    }

    fn write_entry(&self, entry: &mut String, number: usize, expose: bool) {
        entry.reserve(48);
        if expose {
            entry.push_str(&self.channel);
            if let Some(rank) = self.rank {
                let _ = write!(entry, "#{rank}");
            }
        } else {
            let _ = write!(entry, "attempt-{number}");
        }
        entry.push(':');
        entry.push_str(self.outcome);
        if !self.word.is_empty() {
            entry.push(':');
            entry.push_str(self.word);
        } else if self.status != 0 {
            entry.push(':');
            digits(entry, u64::from(self.status), 1);
        }
        if self.last_resort {
            entry.push_str(":last_resort");
        }
    }
}

/// What is needed to write endings.
pub struct Recorder {
    /// Where lines go.
    pub logger: Logger,
    /// Where counts go.
    pub metrics: Arc<Metrics>,
    /// The counts that this worker has found already.
    pub handles: Handles,
    /// The model of a request that has named none yet.
    unnamed: Arc<str>,
}

impl Recorder {
    /// A worker's.
    #[must_use]
    pub fn new(logger: Logger, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { logger, metrics, handles: Handles::default(), unnamed: "".into() })
    }

    /// The same with handles of its own, for another worker.
    #[must_use]
    pub fn sibling(&self) -> Arc<Self> {
        Self::new(self.logger.clone(), self.metrics.clone())
    }
}

/// One request.
pub struct Record {
    recorder: Arc<Recorder>,
    started: Instant,
    finished: bool,
    /// Its place among those in flight.
    pub place: Option<crate::state::Place>,
    /// The id in `x-request-id`.
    pub request_id: Arc<str>,
    /// From `traceparent`, or made.
    pub trace_id: Arc<str>,
    /// `POST` and so on; empty: not worth showing.
    pub method: http::Method,
    /// The path as called, shortened.
    pub path: String,
    /// The caller's group.
    pub group: Arc<str>,
    /// The model asked for.
    pub model: Arc<str>,
    /// Whether the registry knows that model for the group.
    pub known_model: bool,
    /// What was asked of it.
    pub endpoint: Option<Endpoint>,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// The status sent; zero: none yet.
    pub status: u16,
    /// The code of our own error.
    pub code: &'static str,
    /// In order.
    pub attempts: Vec<AttemptRecord>,
    /// From the request's head to the answer's first byte.
    pub first_content: Option<Duration>,
    /// The limit that ended the answer.
    pub limit: Option<&'static str>,
    /// Tokens.
    pub usage: Usage,
    /// An idempotency key of the caller's, so that doubles can be found.
    pub idempotency_key: Option<String>,
    /// Body bytes received from the caller, decoded.
    pub request_bytes: u64,
    /// Body bytes received from the upstream and passed on.
    pub response_bytes: u64,
}

impl Record {
    /// Begins.
    #[must_use]
    pub fn begin(recorder: Arc<Recorder>, request_id: Arc<str>, trace_id: Arc<str>, group: Arc<str>) -> Self {
        recorder.metrics.in_flight.inc();
        Self {
            started: Instant::now(),
            finished: false,
            place: None,
            request_id,
            trace_id,
            method: http::Method::POST,
            path: String::new(),
            group,
            model: recorder.unnamed.clone(),
            known_model: false,
            endpoint: None,
            stream: false,
            status: 0,
            code: "",
            attempts: Vec::new(),
            first_content: None,
            limit: None,
            usage: Usage::default(),
            idempotency_key: None,
            request_bytes: 0,
            response_bytes: 0,
            recorder,
        }
    }

    /// When it began.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Remembers an attempt and counts it.
    pub fn attempt(&mut self, attempt: AttemptRecord) {
        let Recorder { metrics, handles, .. } = &*self.recorder;
        handles.attempted(metrics, &attempt.channel, attempt.outcome);
        if attempt.last_resort {
            metrics.last_resorts.get_or_create(&ChannelLabel { channel: attempt.channel.clone() }).inc();
        }
        self.attempts.push(attempt);
    }

    /// The value of `x-spareline-attempts`; empty: there was none.
    #[must_use]
    pub fn attempts_text(&self, expose: bool) -> String {
        let mut text = String::new();
        for (n, attempt) in self.attempts.iter().enumerate() {
            text.push_str(if n > 0 { ", " } else { "" });
            attempt.write_entry(&mut text, n + 1, expose);
        }
        text
    }

    /// The entries of `x-spareline-attempts`.
    #[must_use]
    pub fn entries(&self, expose: bool) -> Vec<String> {
        self.attempts.iter().enumerate().map(|(n, a)| a.entry(n + 1, expose)).collect()
    }

    /// Writes the ending; only the first one counts.
    pub fn finish(mut self, ending: &'static str) {
        self.end(ending);
    }

    fn end(&mut self, ending: &'static str) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let metrics = &self.recorder.metrics;
        metrics.in_flight.dec();
        let total = self.started.elapsed();
        let status = if self.status == 0 { 499 } else { self.status };
        let endpoint = self.endpoint.map_or(OTHER, Endpoint::as_str);
        let it = Finished {
            group: &self.group,
            model: if self.known_model { &self.model } else { OTHER },
            endpoint,
            status,
            ending,
            stream: self.stream,
            total: total.as_secs_f64(),
            first_content: self.first_content.map(|first| first.as_secs_f64()),
            channel: self.attempts.last().map(|last| &*last.channel),
            usage: self.usage,
        };
        self.recorder.handles.finished(metrics, &it);
        self.log(status, total, ending);
    }

    fn log(&self, status: u16, total: Duration, ending: &'static str) {
        let Some(mut line) = self.recorder.logger.line("request_finished", "request finished") else {
            return;
        };
        line.text("request_id", &self.request_id);
        line.text("trace_id", &self.trace_id);
        line.text("method", self.method.as_str());
        line.text("path", &self.path);
        line.text("group", &self.group);
        line.text("model", &self.model);
        line.text("endpoint", self.endpoint.map_or("", Endpoint::as_str));
        line.flag("stream", self.stream);
        line.number("status", u64::from(status));
        if !self.code.is_empty() {
            line.text("code", self.code);
        }
        line.write("attempts", |json| self.attempts_json(json));
        if let Some(last) = self.attempts.last() {
            line.text("channel", &last.channel);
        }
        if let Some(first) = self.first_content {
            line.ms("first_content_ms", first);
        }
        line.ms("total_ms", total);
        line.maybe("input_tokens", self.usage.input);
        line.maybe("output_tokens", self.usage.output);
        line.maybe("cached_tokens", self.usage.cached);
        line.maybe("reasoning_tokens", self.usage.reasoning);
        if let Some(key) = &self.idempotency_key {
            line.text("idempotency_key", key);
        }
        line.number("request_bytes", self.request_bytes);
        line.number("response_bytes", self.response_bytes);
        line.text("ending", ending);
        if let Some(limit) = self.limit {
            line.text("limit", limit);
        }
        self.recorder.logger.write(line);
    }

    fn attempts_json(&self, json: &mut String) {
        json.push('[');
        for (n, attempt) in self.attempts.iter().enumerate() {
            json.push_str(if n > 0 { ",{\"channel\":" } else { "{\"channel\":" });
            quote(json, &attempt.channel);
            if let Some(rank) = attempt.rank {
                let _ = write!(json, ",\"key\":{rank}");
            }
            json.push_str(",\"outcome\":\"");
            json.push_str(attempt.outcome);
            json.push_str("\",\"status\":");
            digits(json, u64::from(attempt.status), 1);
            if !attempt.word.is_empty() {
                let _ = write!(json, ",\"detail\":\"{}\"", attempt.word);
            }
            if attempt.last_resort {
                json.push_str(",\"last_resort\":true");
            }
            json.push_str(",\"ms\":");
            millis(json, attempt.took);
            json.push('}');
        }
        json.push(']');
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let ending = if std::thread::panicking() { "internal" } else { "caller_left" };
        self.end(ending);
    }
}
