//! What waits to be sent: bounded, the oldest lost first, and counted when lost.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use prost_types::Timestamp;
use spareline_core::{
    Cause, Revision, Subject,
    convert::{cause_ref, duration_ref, subject_ref},
};
use spareline_proto::{dataplane::v1 as dp, registry::v1 as pb};
use tokio::sync::Notify;

use crate::metrics::Metrics;

/// Verdicts that may wait.
const CAPACITY: usize = 10_000;

/// A verdict on its way.
#[derive(Clone, Debug)]
pub struct Report {
    /// Made once.
    pub verdict_id: Arc<str>,
    /// What the evidence condemns.
    pub subject: Subject,
    /// Why.
    pub cause: Cause,
    /// The view the attempt was picked from.
    pub revision: Revision,
    /// The channel's spec.
    pub spec_revision: Revision,
    /// What was seen.
    pub evidence: pb::Evidence,
    /// A probe decides.
    pub confirm: bool,
    /// Which history `revision` belongs to.
    pub epoch: Arc<str>,
    /// Throttled until then, by the process's clock; `None`: no hint.
    pub back_at: Option<Duration>,
    /// When it was reached, by the process's clock.
    pub reached: Duration,
    /// When it was reached, for humans.
    pub observed: SystemTime,
}

/// The waiting room.
#[derive(Debug)]
pub struct Spool {
    waiting: Mutex<VecDeque<Report>>,
    count: AtomicUsize,
    health: AtomicBool,
    closed: AtomicBool,
    wake: Notify,
    metrics: Arc<Metrics>,
}

impl Report {
    /// As it goes on the wire, sent at `now`.
    #[must_use]
    pub fn to_wire(&self, now: Duration) -> dp::Verdict {
        let left = self.back_at.map(|at| at.saturating_sub(now));
        dp::Verdict {
            verdict_id: self.verdict_id.to_string(),
            subject: Some(subject_ref(&self.subject)),
            cause: cause_ref(self.cause).into(),
            observed_revision: self.revision.0,
            evidence: Some(self.evidence.clone()),
            observe_time: Some(Timestamp::from(self.observed)),
            spec_revision: self.spec_revision.0,
            retry_after: left.map(duration_ref),
            age: Some(duration_ref(now.saturating_sub(self.reached))),
            confirm: self.confirm,
        }
    }
}

impl Spool {
    /// Nothing waits.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            waiting: Mutex::default(),
            count: AtomicUsize::new(0),
            health: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            wake: Notify::new(),
            metrics,
        }
    }

    /// There is nobody to report to.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Adds a verdict.
    pub fn push(&self, report: Report) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        self.with(|waiting| {
            if waiting.len() >= CAPACITY {
                waiting.pop_front();
                self.metrics.spool_dropped.inc();
            }
            waiting.push_back(report);
        });
        self.wake.notify_one();
    }

    /// Takes back verdicts that a success has overtaken, where they were not sent yet.
    pub fn withdraw(&self, ids: &[Arc<str>]) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.with(|waiting| waiting.retain(|r| !ids.contains(&r.verdict_id)));
        }
    }

    /// A threshold was crossed: the tallies are to go now.
    pub fn tell_health(&self) {
        self.health.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first few of one epoch, which stay until [`done`](Self::done).
    pub(super) fn batch(&self, most: usize) -> Vec<Report> {
        self.with(|waiting| {
            let epoch = waiting.front().map(|r| r.epoch.clone());
            waiting.iter().take_while(|r| Some(&r.epoch) == epoch.as_ref()).take(most).cloned().collect()
        })
    }

    /// These were answered, or will never be.
    pub(super) fn done(&self, batch: &[Report]) {
        self.with(|waiting| waiting.retain(|r| batch.iter().all(|b| b.verdict_id != r.verdict_id)));
    }

    /// Whether the tallies are to go now; asks once.
    pub(super) fn health_wanted(&self) -> bool {
        self.health.swap(false, Ordering::Relaxed)
    }

    /// Something may have to be done.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    fn with<T>(&self, f: impl FnOnce(&mut VecDeque<Report>) -> T) -> T {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let result = f(&mut waiting);
        self.count.store(waiting.len(), Ordering::Relaxed);
        self.metrics.spool_waiting.set(i64::try_from(waiting.len()).unwrap_or(i64::MAX));
        result
    }
}
