//! Series that one worker has looked up, so that a request does not look them up again: by its labels that costs a hash
//! over all of them and a lock that all threads share.
//!
//! Invariant: after [`Metrics::forget_channel`] or [`Metrics::forget_models`] no handle from before it is used any more, or its counts would go to a
//! series that nobody sees.

use std::sync::{Mutex, PoisonError, atomic::Ordering};

use prometheus_client::metrics::{counter::Counter, histogram::Histogram};
use spareline_core::commit::Usage;

use super::{AttemptLabels, Metrics, RequestLabels, TimingLabels, TokenLabels};

/// Handles kept per family; with more series in use than that, some are looked up again and again.
const KEPT: usize = 32;

/// The handles of one worker.
#[derive(Debug, Default)]
pub struct Handles(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// What [`Metrics`] had forgotten when these were looked up.
    forgotten: u64,
    requests: Few<RequestLabels, Counter>,
    timings: Few<TimingLabels, (Histogram, Histogram)>,
    attempts: Few<AttemptLabels, Counter>,
    tokens: Few<TokenLabels, Counter>,
}

/// A short list in place of a map.
#[derive(Debug)]
struct Few<K, V> {
    kept: Vec<(K, V)>,
    /// The next to make room.
    next: usize,
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self { kept: Vec::new(), next: 0 }
    }
}

impl<K, V> Few<K, V> {
    /// The value whose key `is` the one wanted. A key is made, and its value found, only where there is none: that costs.
    fn get(&mut self, is: impl Fn(&K) -> bool, key: impl FnOnce() -> K, find: impl FnOnce(&K) -> V) -> &V {
        let make = || {
            let key = key();
            let found = find(&key);
            (key, found)
        };
        let at = match self.kept.iter().position(|(known, _)| is(known)) {
            Some(at) => at,
            None if self.kept.len() < KEPT => {
                self.kept.push(make());
                self.kept.len() - 1
            }
            None => {
                let at = self.next;
                self.next = (at + 1) % KEPT;
                self.kept[at] = make();
                at
            }
        };
        &self.kept[at].1
    }
}

/// What a finished request is counted by.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    /// The caller's group.
    pub group: &'a str,
    /// The model, or [`OTHER`](super::OTHER).
    pub model: &'a str,
    /// The endpoint, or [`OTHER`](super::OTHER).
    pub endpoint: &'static str,
    /// The status sent.
    pub status: u16,
    /// How it ended.
    pub ending: &'static str,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// From head to end, in seconds.
    pub total: f64,
    /// From head to the answer's first byte, in seconds.
    pub first_content: Option<f64>,
    /// The channel that answered.
    pub channel: Option<&'a str>,
    /// Its tokens.
    pub usage: Usage,
}

impl Handles {
    /// Counts a finished request, its times and its tokens.
    pub fn finished(&self, metrics: &Metrics, it: &Finished<'_>) {
        let Finished { group, model, endpoint, status, ending, stream, .. } = *it;
        self.with(metrics, |known| {
            let requests = known.requests.get(
                |l| {
                    l.status == status
                        && l.ending == ending
                        && l.endpoint == endpoint
                        && *l.model == *model
                        && *l.group == *group
                },
                || RequestLabels { group: group.into(), model: model.into(), endpoint, status, ending },
                |labels| metrics.requests_of(labels),
            );
            requests.inc();
            let timing = TimingLabels { endpoint, stream };
            let (whole, first) = known.timings.get(
                |l| *l == timing,
                || timing.clone(),
                |timing| {
                    let whole = metrics.request_seconds.get_or_create_owned(timing);
                    (whole, metrics.first_content_seconds.get_or_create_owned(timing))
                },
            );
            whole.observe(it.total);
            if let Some(first_content) = it.first_content {
                first.observe(first_content);
            }
            let Some(channel) = it.channel else { return };
            for (direction, count) in [("input", it.usage.input), ("output", it.usage.output)] {
                let Some(count) = count else { continue };
                let tokens = known.tokens.get(
                    |l| l.direction == direction && *l.channel == *channel,
                    || TokenLabels { channel: channel.into(), direction },
                    |labels| metrics.tokens.get_or_create_owned(labels),
                );
                tokens.inc_by(count);
            }
        });
    }

    /// Counts an attempt.
    pub fn attempted(&self, metrics: &Metrics, channel: &str, outcome: &'static str) {
        self.with(metrics, |known| {
            let attempts = known.attempts.get(
                |l| l.outcome == outcome && *l.channel == *channel,
                || AttemptLabels { channel: channel.into(), outcome },
                |labels| metrics.attempts.get_or_create_owned(labels),
            );
            attempts.inc();
        });
    }

    fn with(&self, metrics: &Metrics, f: impl FnOnce(&mut Known)) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = metrics.forgotten.load(Ordering::Acquire);
        if known.forgotten != forgotten {
            *known = Known { forgotten, ..Known::default() };
        }
        f(&mut known);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_channel_that_was_forgotten_and_comes_back_is_counted_anew() {
        let (metrics, handles) = (Metrics::default(), Handles::default());
        let channel: Arc<str> = "a".into();
        let count = || handles.attempted(&metrics, &channel, "ok");
        let shown = || {
            metrics
                .encode()
                .unwrap()
                .lines()
                .any(|l| l.starts_with("spareline_attempts_total{") && l.ends_with(" 1"))
        };
        count();
        assert!(shown());
        metrics.forget_channel(&channel);
        assert!(!shown());
        count();
        assert!(shown(), "the old handle counts where nobody looks");
    }

    #[test]
    fn the_series_of_a_model_that_is_gone_go_with_it() {
        let (metrics, handles) = (Metrics::default(), Handles::default());
        let count = |group: &str, model: &str| {
            let it = Finished {
                group,
                model,
                endpoint: "chat_completions",
                status: 200,
                ending: "complete",
                stream: false,
                total: 0.1,
                first_content: None,
                channel: None,
                usage: Usage::default(),
            };
            handles.finished(&metrics, &it);
        };
        let shown = || {
            let text = metrics.encode().unwrap();
            text.lines()
                .filter(|l| l.starts_with("spareline_requests_total{"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        for (group, model) in [("a", "m"), ("a", "gone"), ("b", "m"), ("a", super::super::OTHER)] {
            count(group, model);
        }
        metrics.forget_models(|group, model| (group, model) == ("a", "m"));
        assert_eq!(shown().len(), 2, "{:?}", shown());
        count("a", "gone");
        assert!(
            shown().iter().any(|l| l.contains("gone")),
            "a request that was under way counts where it is seen"
        );
        metrics.forget_models(|_, _| false);
        assert_eq!(shown().len(), 1, "{:?}", shown());
    }

    #[test]
    fn more_series_than_are_kept_are_all_counted() {
        let (metrics, handles) = (Metrics::default(), Handles::default());
        for _ in 0..3 {
            for n in 0..2 * KEPT {
                handles.attempted(&metrics, &n.to_string(), "ok");
            }
        }
        let text = metrics.encode().unwrap();
        let right = text.lines().filter(|l| l.starts_with("spareline_attempts_total{") && l.ends_with(" 3"));
        assert_eq!(right.count(), 2 * KEPT);
    }
}
