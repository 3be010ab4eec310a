//! The database: a given one, or a private Postgres of our own; asked until it answers.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::AppError;
use crate::config::Config;
use crate::postgres::{Cluster, PostgresError};
use crate::store::{Store, StoreError, StoreOptions};

/// The name of our database in the private Postgres: the one that is there from the start.
const DATABASE: &str = "postgres";
/// Pauses between questions to a database that does not answer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// How often the private Postgres is looked after.
const WATCH: Duration = Duration::from_secs(1);

/// An open store, and what it needs to stay open.
pub(super) struct Database {
    store: Store,
    private: Option<Private>,
}

/// A private Postgres and who looks after it.
struct Private {
    stop: CancellationToken,
    task: JoinHandle<Option<Cluster>>,
}

impl Database {
    /// Opens it, however long that takes; `None` when stopped meanwhile.
    pub(super) async fn open(config: &Config, stop: CancellationToken) -> Result<Option<Self>, AppError> {
        let (options, private) = reach(config).await?;
        match open_until(options, stop).await {
            Ok(Some(store)) => Ok(Some(Self { store, private })),
            other => {
                end(private).await;
                other.map(|_| None).map_err(AppError::from)
            }
        }
    }

    /// Opens it now, or not at all.
    pub(super) async fn open_once(config: &Config) -> Result<Self, AppError> {
        let (options, private) = reach(config).await?;
        match open(options).await {
            Ok(store) => Ok(Self { store, private }),
            Err(error) => {
                end(private).await;
                Err(error.into())
            }
        }
    }

    pub(super) fn store(&self) -> Store {
        self.store.clone()
    }

    pub(super) async fn close(&mut self) {
        self.store.close().await;
        end(self.private.take()).await;
    }
}

impl Private {
    /// Starts it again whenever it is gone.
    fn look_after(mut cluster: Cluster, dir: PathBuf) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stopped.cancelled() => return Some(cluster),
                    () = tokio::time::sleep(WATCH) => {}
                }
                if cluster.is_running() {
                    continue;
                }
                tracing::error!(event = "database_lost", "the private Postgres is gone: starting it again");
                drop(cluster);
                cluster = loop {
                    match start(dir.clone()).await {
                        Ok(cluster) => break cluster,
                        Err(error) => {
                            tracing::error!(event = "database_unavailable", %error, "it does not start")
                        }
                    }
                    tokio::select! {
                        () = stopped.cancelled() => return None,
                        () = tokio::time::sleep(PAUSES.1) => {}
                    }
                };
                tracing::info!(event = "database_started", "the private Postgres runs again");
            }
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        if let Ok(Some(cluster)) = self.task.await {
            let _ = tokio::task::spawn_blocking(move || cluster.stop()).await;
        }
    }
}

/// Where the database is; starts the private one.
async fn reach(config: &Config) -> Result<(StoreOptions, Option<Private>), AppError> {
    let (connect, private) = match &config.database_url {
        Some(url) => (StoreOptions::from_url(url.expose())?.connect, None),
        None => {
            let dir = config.state_dir.clone();
            let cluster = start(dir.clone()).await?;
            let connect = cluster.options(DATABASE);
            tracing::info!(event = "database_started", dir = %cluster.dir().display(), "a private Postgres runs");
            (connect, Some(Private::look_after(cluster, dir)))
        }
    };
    let registry = config.database_connections / 2;
    let options = StoreOptions {
        registry_connections: registry,
        report_connections: config.database_connections - registry,
        ..StoreOptions::new(connect)
    };
    Ok((options, private))
}

async fn start(dir: PathBuf) -> Result<Cluster, PostgresError> {
    let started = tokio::task::spawn_blocking(move || Cluster::start(&dir)).await;
    started.unwrap_or_else(|why| Err(PostgresError::Start(why.to_string())))
}

async fn end(private: Option<Private>) {
    if let Some(private) = private {
        private.stop().await;
    }
}

/// Asks until the database answers. A refusal that time does not heal ends it.
async fn open_until(options: StoreOptions, stop: CancellationToken) -> Result<Option<Store>, StoreError> {
    let mut pause = PAUSES.0;
    let mut attempts = 0_u32;
    loop {
        let opened = tokio::select! {
            () = stop.cancelled() => return Ok(None),
            opened = open(options.clone()) => opened,
        };
        let error = match opened {
            Ok(store) => return Ok(Some(store)),
            Err(error) if error.is_unavailable() => error,
            Err(error) => return Err(error),
        };
        attempts += 1;
        let retry_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(event = "database_unavailable", attempts, retry_ms, %error, "the database does not answer: asking again");
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn open(options: StoreOptions) -> Result<Store, StoreError> {
    // The migrator's future cannot be moved between threads.
    let runtime = tokio::runtime::Handle::current();
    let migrated =
        tokio::task::spawn_blocking(move || runtime.block_on(Store::migrate(&options)).map(|()| options));
    let options =
        migrated.await.map_err(|why| StoreError::Corrupt(format!("the migration panicked: {why}")))??;
    Store::connect(options).await
}
