//! Series that one worker has looked up, so that a request does not look them up again: by its labels that costs a hash
//! over all of them and a lock that all threads share.
//!
//! Invariant: after [`Metrics::forget_channel`] no handle from before it is used any more, or its counts would go to a
//! series that nobody sees.

use std::sync::{Mutex, PoisonError, atomic::Ordering};

use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

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

impl<K: PartialEq, V: Clone> Few<K, V> {
    fn get(&mut self, key: K, find: impl FnOnce(&K) -> V) -> &V {
        let at = match self.kept.iter().position(|(known, _)| *known == key) {
            Some(at) => at,
            None => {
                let value = find(&key);
                let found = (key, value);
                if self.kept.len() < KEPT {
                    self.kept.push(found);
                    self.kept.len() - 1
                } else {
                    let at = self.next;
                    self.next = (at + 1) % KEPT;
                    self.kept[at] = found;
                    at
                }
            }
        };
        &self.kept[at].1
    }
}

impl Handles {
    /// Counts a finished request and its times, in seconds.
    pub fn finished(
        &self,
        metrics: &Metrics,
        labels: RequestLabels,
        timing: TimingLabels,
        (total, first_content): (f64, Option<f64>),
    ) {
        self.with(metrics, |known| {
            known.requests.get(labels, |labels| metrics.requests.get_or_create_owned(labels)).inc();
            let (whole, first) = known.timings.get(timing, |timing| {
                let whole = metrics.request_seconds.get_or_create_owned(timing);
                (whole, metrics.first_content_seconds.get_or_create_owned(timing))
            });
            whole.observe(total);
            if let Some(first_content) = first_content {
                first.observe(first_content);
            }
        });
    }

    /// Counts an attempt.
    pub fn attempted(&self, metrics: &Metrics, labels: AttemptLabels) {
        self.with(metrics, |known| {
            known.attempts.get(labels, |labels| metrics.attempts.get_or_create_owned(labels)).inc();
        });
    }

    /// Counts tokens.
    pub fn tokens(&self, metrics: &Metrics, labels: TokenLabels, count: u64) {
        self.with(metrics, |known| {
            known.tokens.get(labels, |labels| metrics.tokens.get_or_create_owned(labels)).inc_by(count);
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
        let count = || {
            let labels = AttemptLabels { channel: channel.clone(), outcome: "ok" };
            handles.attempted(&metrics, labels);
        };
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
    fn more_series_than_are_kept_are_all_counted() {
        let (metrics, handles) = (Metrics::default(), Handles::default());
        for _ in 0..3 {
            for n in 0..2 * KEPT {
                let labels = TokenLabels { channel: n.to_string().into(), direction: "input" };
                handles.tokens(&metrics, labels, 1);
            }
        }
        let text = metrics.encode().unwrap();
        let right = text.lines().filter(|l| l.starts_with("spareline_tokens_total{") && l.ends_with(" 3"));
        assert_eq!(right.count(), 2 * KEPT);
    }
}
