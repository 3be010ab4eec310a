//! What all threads of a proxy share. Each part has one owner that writes it: the control thread the view, the workers
//! health and overlays; everything here is read without waiting.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use spareline_core::{health::Health, overlay::Overlays, view::View};
use spareline_upstream::{Budget, attempt::Interrupt};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    failover::RetryBudgets,
    http::error::{ApiError, Code},
    log::Logger,
    metrics::Metrics,
    record::Recorder,
    report::Spool,
};

/// Shared by all threads.
pub struct Shared {
    /// What the operator said.
    pub config: Config,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Writes the endings of requests.
    pub recorder: Arc<Recorder>,
    /// Bounds the bodies held.
    pub budget: Budget,
    /// Soft evidence.
    pub health: Health,
    /// Hard evidence of our own.
    pub overlays: Overlays,
    /// What is to be reported.
    pub spool: Spool,
    /// Bounds retries where a policy says so.
    pub retries: RetryBudgets,
    /// Told when the process must not wait for anybody any more.
    pub gone: CancellationToken,
    /// Told whenever a registry was put in force.
    pub changed: Notify,
    view: ArcSwap<View>,
    ready: AtomicBool,
    alone: AtomicBool,
    draining: AtomicBool,
    cut: CancellationToken,
    in_flight: Arc<AtomicUsize>,
    streams: Mutex<HashMap<u64, Interrupt>>,
    next_stream: AtomicU64,
    started: Instant,
    /// When the registry was last heard to be current, and how long before that it was.
    confirmed: Mutex<Option<(Instant, Duration)>>,
    clock_offset_ms: AtomicI64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("revision", &self.view.load().revision()).finish_non_exhaustive()
    }
}

impl Shared {
    /// With an empty registry.
    #[must_use]
    pub fn new(config: Config, logger: Logger) -> Self {
        let metrics = Arc::new(Metrics::default());
        let seed = rand::random();
        Self {
            recorder: Recorder::new(logger, metrics.clone()),
            budget: Budget::new(config.body_memory),
            health: Health::default(),
            overlays: Overlays::default(),
            spool: Spool::new(metrics.clone()),
            retries: RetryBudgets::default(),
            gone: CancellationToken::new(),
            changed: Notify::new(),
            view: ArcSwap::from_pointee(View::empty(seed)),
            ready: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            cut: CancellationToken::new(),
            in_flight: Arc::new(AtomicUsize::new(0)),
            streams: Mutex::default(),
            next_stream: AtomicU64::new(0),
            started: Instant::now(),
            confirmed: Mutex::default(),
            clock_offset_ms: AtomicI64::new(0),
            metrics,
            config,
        }
    }

    /// Since the process started: the clock of everything that decides.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The same for a moment that was read already.
    pub fn at(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.started)
    }

    /// The registry in force.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Puts a registry in force: the next attempt of every request sees it.
    pub fn publish(&self, view: Arc<View>) {
        self.view.store(view.clone());
        self.ready.store(true, Ordering::Release);
        self.metrics.registry_revision.set(view.revision().0);
        self.health.reconcile(&view, self.now());
        self.overlays.reconcile(&view, self.now());
        self.changed.notify_one();
    }

    /// Whether a registry is in force.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// A resume was granted: what is held is in force, even where it never changed.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// The registry is known to be current now.
    pub fn confirm(&self) {
        self.confirmed_before(Duration::ZERO);
    }

    /// The registry is known to have been current so long ago.
    pub fn confirmed_before(&self, age: Duration) {
        *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), age));
    }

    /// For how long nobody has said that the registry is current; `None`: there is none.
    pub fn registry_age(&self) -> Option<Duration> {
        let confirmed = *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        confirmed.map(|(at, before)| at.elapsed() + before)
    }

    /// How far the server's clock was ahead of ours when it last told its time.
    pub fn clock_offset_ms(&self) -> i64 {
        self.clock_offset_ms.load(Ordering::Relaxed)
    }

    /// The server told its time.
    pub fn set_clock_offset_ms(&self, ahead: i64) {
        self.clock_offset_ms.store(ahead, Ordering::Relaxed);
    }

    /// Whether the control plane has been away for long.
    pub fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// Says whether the control plane has been away for long.
    pub fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    /// Whether this proxy should get traffic.
    ///
    /// # Errors
    /// Why not.
    pub fn readiness(&self) -> Result<(), &'static str> {
        if self.draining.load(Ordering::Relaxed) {
            Err("draining\n")
        } else if !self.is_ready() {
            Err("no registry yet\n")
        } else {
            Ok(())
        }
    }

    /// No new work: readiness goes off.
    pub fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Ends what still runs, honestly: streams with an error event, requests without an answer with 503.
    pub fn cut(&self) {
        self.cut.cancel();
        let streams: Vec<Interrupt> = {
            let mut held = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            held.drain().map(|(_, stream)| stream).collect()
        };
        streams.iter().for_each(Interrupt::interrupt);
    }

    /// Ends when [`cut`](Self::cut) was called.
    pub async fn cutting(&self) {
        self.cut.cancelled().await;
    }

    /// Whether [`cut`](Self::cut) was called.
    pub fn is_cut(&self) -> bool {
        self.cut.is_cancelled()
    }

    /// Remembers a running stream, so that a shutdown can end it honestly.
    pub fn remember_stream(&self, stream: Interrupt) -> u64 {
        let id = self.next_stream.fetch_add(1, Ordering::Relaxed);
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).insert(id, stream);
        id
    }

    /// It ended.
    pub fn forget_stream(&self, id: u64) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// A place among the requests in flight.
    ///
    /// # Errors
    /// 503 `overloaded` when there is none.
    pub fn admit(&self) -> Result<Place, ApiError> {
        if self.in_flight.fetch_add(1, Ordering::Relaxed) >= self.config.max_in_flight {
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            return Err(ApiError::new(Code::Overloaded, "too many requests at once, try again shortly")
                .retry_after(Duration::from_secs(1)));
        }
        Ok(Place(self.in_flight.clone()))
    }

    /// Brings the gauges that nobody keeps up to date.
    pub fn refresh_gauges(&self) {
        let m = &self.metrics;
        m.body_memory_bytes.set(i64::try_from(self.budget.used()).unwrap_or(i64::MAX));
        m.log_lines_dropped.set(i64::try_from(self.recorder.logger.dropped()).unwrap_or(i64::MAX));
        m.registry_age_seconds.set(self.registry_age().map_or(-1.0, |age| age.as_secs_f64()));
    }
}

/// A request's place among those in flight, given back when dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
