//! The server: two listeners, one store, and everything that runs over it.
//!
//! Both listeners are open from the start. Until the database answers, every call is answered UNAVAILABLE, and the
//! log says so; it is asked again for ever. `listening` is logged once calls are really served. A stop signal tells every watch
//! Goodbye, lets running calls end within `shutdown_timeout`, then ends; a second signal ends at once.

mod database;
mod gate;
mod listeners;
mod services;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::metrics::Metrics;
use crate::postgres::PostgresError;
use database::Database;
use gate::Gate;
use listeners::{Listener, serve};
use services::Services;

/// Why the server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// An address is taken, or not ours.
    #[error("{key}: cannot listen on {address}: {source}")]
    Listen {
        /// The configuration's key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The private Postgres cannot run here.
    #[error("{0}")]
    Postgres(#[from] PostgresError),
    /// The private Postgres belongs to a control plane that runs.
    #[error(
        "a control plane is running on {0}: stop it first, and start it again when the new epoch has begun"
    )]
    Running(std::path::PathBuf),
    /// The database answers, but cannot be used.
    #[error("the database cannot be used: {0}")]
    Store(#[from] crate::store::StoreError),
    /// A listener failed.
    #[error("a listener failed: {0}")]
    Serve(#[from] tonic::transport::Error),
    /// Reflection could not be built from our own descriptors.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// A task of ours panicked.
    #[error("a task ended on its own: {0}")]
    Task(String),
}

/// The server, with both addresses taken.
pub struct App {
    config: Config,
    admin: Listener,
    data: Listener,
}

impl App {
    /// Takes both addresses; must run inside the runtime that will serve.
    ///
    /// # Errors
    /// [`AppError::Listen`].
    pub fn bind(config: Config) -> Result<Self, AppError> {
        let admin = Listener::bind("admin_listen", config.admin_listen)?;
        let data = Listener::bind("data_listen", config.data_listen)?;
        Ok(Self { config, admin, data })
    }

    /// Where operators are served.
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin.address
    }

    /// Where proxies are served.
    pub fn data_addr(&self) -> SocketAddr {
        self.data.address
    }

    /// Serves until `stop`, then ends in order.
    ///
    /// # Errors
    /// Whatever keeps it from serving. A database that cannot be reached does not: it is asked again.
    pub async fn run(self, stop: CancellationToken) -> Result<(), AppError> {
        let Self { config, admin, data } = self;
        let replica =
            config.replica_id.clone().unwrap_or_else(|| format!("control-{}", uuid::Uuid::new_v4().simple()));
        let (admin_addr, data_addr) = (admin.address.to_string(), data.address.to_string());
        tracing::info!(
            event = "starting",
            admin_addr,
            data_addr,
            replica_id = replica,
            build = crate::BUILD,
            "starting"
        );

        // Ends what serves, once the tasks over the store have been told to stop.
        let closing = CancellationToken::new();
        let metrics = Arc::<Metrics>::default();
        let (admin_gate, data_gate) =
            (Gate::closed(metrics.clone(), true), Gate::closed(metrics.clone(), false));
        let mut servers = JoinSet::new();
        servers.spawn(serve(admin, admin_gate.clone(), closing.clone()));
        servers.spawn(serve(data, data_gate.clone(), closing.clone()));

        let database = Database::open(&config, stop.clone()).await;
        let result = match database {
            Ok(Some(mut database)) => {
                let gates = [admin_gate, data_gate];
                let result =
                    match Services::start(replica.clone(), database.store(), gates, metrics, stop.clone())
                        .await
                    {
                        Ok(Some(mut services)) => {
                            tracing::info!(
                                event = "listening",
                                admin_addr,
                                data_addr,
                                replica_id = replica,
                                "serving"
                            );
                            let result = services.stopped().await;
                            services.end(config.shutdown_timeout).await;
                            result
                        }
                        Ok(None) => Ok(()),
                        Err(error) => Err(error),
                    };
                close(&closing, &mut servers, config.shutdown_timeout).await;
                database.close().await;
                result
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        // Where the database never came, nothing has closed the listeners yet.
        close(&closing, &mut servers, config.shutdown_timeout).await;
        tracing::info!(event = "stopped", "stopped");
        result
    }
}

/// Ends the listeners: running calls have until `limit`.
async fn close(closing: &CancellationToken, servers: &mut JoinSet<Result<(), AppError>>, limit: Duration) {
    closing.cancel();
    let all = async {
        while let Some(ended) = servers.join_next().await {
            if let Ok(Err(error)) = ended {
                tracing::warn!(event = "listener_failed", %error, "a listener failed");
            }
        }
    };
    if tokio::time::timeout(limit, all).await.is_err() {
        tracing::warn!(event = "shutdown_forced", "calls that still ran were cut off");
        servers.abort_all();
    }
}

/// Starts a new epoch in the configured database, and says which. A private Postgres must not be in use.
///
/// # Errors
/// Whatever keeps it from the database; it is asked only once.
pub async fn new_epoch(config: &Config) -> Result<crate::store::Head, AppError> {
    let mut database = Database::open_once(config).await.map_err(|error| match error {
        AppError::Postgres(PostgresError::InUse(_)) => AppError::Running(config.state_dir.clone()),
        other => other,
    })?;
    let head = database.store().new_epoch("new-epoch").await;
    database.close().await;
    Ok(head?)
}

/// Cancels `stop` at the first SIGTERM or SIGINT, and `force` at the second.
///
/// # Errors
/// Where the system does not let signals be handled.
pub fn on_signals(stop: CancellationToken, force: CancellationToken) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for token in [stop, force] {
            let name = tokio::select! { _ = terminate.recv() => "SIGTERM", _ = interrupt.recv() => "SIGINT" };
            tracing::info!(event = "stopping", signal = name, "stopping");
            token.cancel();
        }
    });
    Ok(())
}
