//! What `/metrics` shows. Labels come from closed sets and from the registry only: a model nobody serves counts as
//! `other`, callers never become labels, and the series of a channel or a model that is gone are removed.

mod channels;
mod handles;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use spareline_core::Class;
use std::sync::atomic::{AtomicU64, Ordering};

pub use channels::Channels;
pub use handles::{Finished, Handles};

/// What a request that names no known model, or no endpoint, counts as.
pub const OTHER: &str = "other";

/// Labels of a finished request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    /// The caller's group.
    pub group: Arc<str>,
    /// The model, where the registry knows it.
    pub model: Arc<str>,
    /// The endpoint.
    pub endpoint: &'static str,
    /// As sent to the caller; 499 where the caller left before an answer.
    pub status: u16,
    /// How it ended.
    pub ending: &'static str,
}

/// Labels of how long requests take.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TimingLabels {
    /// The endpoint.
    pub endpoint: &'static str,
    /// Whether an event stream was sent.
    pub stream: bool,
}

/// Labels of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AttemptLabels {
    /// The channel's name.
    pub channel: Arc<str>,
    /// The attempt's outcome, as in logs.
    pub outcome: &'static str,
}

/// Labels of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TokenLabels {
    /// The channel's name.
    pub channel: Arc<str>,
    /// `input` or `output`.
    pub direction: &'static str,
}

/// A channel alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ChannelLabel {
    /// The channel's name.
    pub channel: Arc<str>,
}

/// One word.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WordLabel {
    /// From a closed set.
    pub kind: &'static str,
}

/// All of them. Clones of the handles inside share their values.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    /// How often series were removed.
    forgotten: AtomicU64,
    /// Requests finished.
    requests: Family<RequestLabels, Counter>,
    /// The series there are of those.
    requested: Mutex<HashSet<RequestLabels>>,
    /// From the request's head to the end of the answer.
    pub request_seconds: Family<TimingLabels, Histogram, fn() -> Histogram>,
    /// From the request's head to the answer's first byte.
    pub first_content_seconds: Family<TimingLabels, Histogram, fn() -> Histogram>,
    /// Attempts finished.
    pub attempts: Family<AttemptLabels, Counter>,
    /// Attempts on what is out, because nothing else was left.
    pub last_resorts: Family<ChannelLabel, Counter>,
    /// Tokens as upstreams counted them.
    pub tokens: Family<TokenLabels, Counter>,
    /// Streams that ended well and never said what they used.
    pub streams_without_usage: Family<ChannelLabel, Counter>,
    /// Requests in flight.
    pub in_flight: Gauge,
    /// Callers' connections.
    pub connections: Gauge,
    /// Whether the watch is connected.
    pub watch_connected: Gauge,
    /// Watch sessions begun.
    pub watch_sessions: Counter,
    /// Items of the control plane that could not be used.
    pub rejected_items: Counter,
    /// Verdicts reached, by cause.
    pub verdicts: Family<WordLabel, Counter>,
    /// What the control plane made of them.
    pub dispositions: Family<WordLabel, Counter>,
    /// Reports lost because the spool was full.
    pub spool_dropped: Counter,
    /// Reports waiting.
    pub spool_waiting: Gauge,
    /// The registry revision in force.
    pub registry_revision: Gauge,
    /// Since the watch last proved that the registry is current, in seconds.
    pub registry_age_seconds: Gauge<f64, AtomicU64>,
    /// Copies of the registry written to disk.
    pub registry_file_writes: Counter,
    /// Copies that could not be written.
    pub registry_file_failures: Counter,
    /// Bytes of bodies held.
    pub body_memory_bytes: Gauge,
    /// Log lines lost.
    pub log_lines_dropped: Gauge,
}

fn seconds() -> Histogram {
    Histogram::new([0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("spareline");
        let new = seconds as fn() -> Histogram;
        let metrics = Self {
            registry: Mutex::default(),
            forgotten: AtomicU64::new(0),
            requests: Family::default(),
            requested: Mutex::default(),
            request_seconds: Family::new_with_constructor(new),
            first_content_seconds: Family::new_with_constructor(new),
            attempts: Family::default(),
            last_resorts: Family::default(),
            tokens: Family::default(),
            streams_without_usage: Family::default(),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            watch_connected: Gauge::default(),
            watch_sessions: Counter::default(),
            rejected_items: Counter::default(),
            verdicts: Family::default(),
            dispositions: Family::default(),
            spool_dropped: Counter::default(),
            spool_waiting: Gauge::default(),
            registry_revision: Gauge::default(),
            registry_age_seconds: Gauge::default(),
            registry_file_writes: Counter::default(),
            registry_file_failures: Counter::default(),
            body_memory_bytes: Gauge::default(),
            log_lines_dropped: Gauge::default(),
        };
        let r = &mut registry;
        r.register("requests", "Requests finished", metrics.requests.clone());
        r.register(
            "request_seconds",
            "From a request's head to its answer's end",
            metrics.request_seconds.clone(),
        );
        r.register(
            "first_content_seconds",
            "From a request's head to its answer's first byte",
            metrics.first_content_seconds.clone(),
        );
        r.register("attempts", "Attempts on channels, by outcome", metrics.attempts.clone());
        r.register(
            "last_resorts",
            "Attempts on what is out, because nothing else was left",
            metrics.last_resorts.clone(),
        );
        r.register("tokens", "Tokens as upstreams counted them", metrics.tokens.clone());
        r.register(
            "streams_without_usage",
            "Streams that ended well without token counts",
            metrics.streams_without_usage.clone(),
        );
        r.register("in_flight", "Requests in flight", metrics.in_flight.clone());
        r.register("connections", "Connections of callers", metrics.connections.clone());
        r.register("watch_connected", "Whether the watch is connected", metrics.watch_connected.clone());
        r.register("watch_sessions", "Watch sessions begun", metrics.watch_sessions.clone());
        r.register("rejected_items", "Registry items that could not be used", metrics.rejected_items.clone());
        r.register("verdicts", "Verdicts reached, by cause", metrics.verdicts.clone());
        r.register("dispositions", "What became of reported verdicts", metrics.dispositions.clone());
        r.register("spool_dropped", "Reports lost to a full spool", metrics.spool_dropped.clone());
        r.register("spool_waiting", "Reports waiting to be sent", metrics.spool_waiting.clone());
        r.register("registry_revision", "The registry revision in force", metrics.registry_revision.clone());
        r.register(
            "registry_age_seconds",
            "Since the registry was last known to be current; -1 where there is none",
            metrics.registry_age_seconds.clone(),
        );
        r.register(
            "registry_file_writes",
            "Copies of the registry written to disk",
            metrics.registry_file_writes.clone(),
        );
        r.register(
            "registry_file_failures",
            "Registry or channels files that could not be written or read",
            metrics.registry_file_failures.clone(),
        );
        r.register("body_memory_bytes", "Bytes of bodies held", metrics.body_memory_bytes.clone());
        r.register(
            "log_lines_dropped",
            "Log lines that nobody read in time",
            metrics.log_lines_dropped.clone(),
        );
        *metrics.registry.lock().unwrap_or_else(PoisonError::into_inner) = registry;
        metrics
    }
}

impl Metrics {
    /// Adds what is computed when somebody looks.
    pub fn collector(&self, collector: Box<dyn prometheus_client::collector::Collector>) {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner).register_collector(collector);
    }

    /// The text of `/metrics`.
    ///
    /// # Errors
    /// The encoder failed.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    /// The count of finished requests with these labels.
    fn requests_of(&self, labels: &RequestLabels) -> Counter {
        let mut requested = self.requested.lock().unwrap_or_else(PoisonError::into_inner);
        if !requested.contains(labels) {
            requested.insert(labels.clone());
        }
        self.requests.get_or_create_owned(labels)
    }

    /// Removes the series of the models that no group is `served` any more.
    pub fn forget_models(&self, served: impl Fn(&str, &str) -> bool) {
        let mut requested = self.requested.lock().unwrap_or_else(PoisonError::into_inner);
        let before = requested.len();
        requested.retain(|labels| {
            let kept = *labels.model == *OTHER || served(&labels.group, &labels.model);
            if !kept {
                self.requests.remove(labels);
            }
            kept
        });
        if requested.len() < before {
            self.forgotten.fetch_add(1, Ordering::Release);
        }
    }

    /// Removes the series of a channel that is no more.
    pub fn forget_channel(&self, channel: &Arc<str>) {
        for class in Class::ALL {
            self.attempts.remove(&AttemptLabels { channel: channel.clone(), outcome: class.as_str() });
        }
        self.attempts.remove(&AttemptLabels { channel: channel.clone(), outcome: "cancelled" });
        self.attempts.remove(&AttemptLabels { channel: channel.clone(), outcome: "internal" });
        self.streams_without_usage.remove(&ChannelLabel { channel: channel.clone() });
        self.last_resorts.remove(&ChannelLabel { channel: channel.clone() });
        for direction in ["input", "output"] {
            self.tokens.remove(&TokenLabels { channel: channel.clone(), direction });
        }
        self.forgotten.fetch_add(1, Ordering::Release);
    }
}
