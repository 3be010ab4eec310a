//! What `/metrics` on the admin port shows of this replica. No labels: nothing here grows with the fleet or the registry.

use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use prometheus_client::registry::Registry;

/// All of them. Clones of the handles inside share their values.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    /// Whether the database answered when it was last asked.
    pub database_up: Gauge,
    /// Times the database was lost.
    pub database_losses: Counter,
    /// Whether the database's history does not hold what was already published: `new-epoch` is to be run.
    pub history_lost: Gauge,
    /// Revision of the registry that proxies are served.
    pub world_revision: Gauge,
    /// Open watch sessions.
    pub watch_sessions: Gauge,
    /// Watch sessions opened.
    pub watches: Counter,
    /// Calls that ended because the database did not answer in time.
    pub calls_unanswered: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("spareline_control")),
            database_up: Gauge::default(),
            database_losses: Counter::default(),
            history_lost: Gauge::default(),
            world_revision: Gauge::default(),
            watch_sessions: Gauge::default(),
            watches: Counter::default(),
            calls_unanswered: Counter::default(),
        };
        let mut registry = metrics.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register("database_up", "Whether the database answers", metrics.database_up.clone());
        registry.register("database_losses", "Times the database was lost", metrics.database_losses.clone());
        registry.register(
            "history_lost",
            "Whether the database lost what was already published; spareline-control new-epoch mends it",
            metrics.history_lost.clone(),
        );
        registry.register(
            "world_revision",
            "Revision of the registry that proxies are served",
            metrics.world_revision.clone(),
        );
        registry.register("watch_sessions", "Open watch sessions", metrics.watch_sessions.clone());
        registry.register("watches", "Watch sessions opened", metrics.watches.clone());
        registry.register(
            "calls_unanswered",
            "Calls that the database did not answer in time",
            metrics.calls_unanswered.clone(),
        );
        drop(registry);
        metrics
    }
}

impl Metrics {
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
}
