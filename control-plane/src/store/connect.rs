//! Pools, time limits, migrations.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::watch;

use super::Result;

/// How to reach the database.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Where it is.
    pub connect: PgConnectOptions,
    /// Most connections for the registry: admin, world, prober.
    pub registry_connections: u32,
    /// Most connections for reports and the fleet's positions.
    pub report_connections: u32,
    /// How long a call waits for a connection.
    pub acquire_timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
}

impl StoreOptions {
    /// The defaults: 8 and 8 connections, 3 s, 10 s.
    pub fn new(connect: PgConnectOptions) -> StoreOptions {
        StoreOptions {
            connect,
            registry_connections: 8,
            report_connections: 8,
            acquire_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(10),
        }
    }

    /// From a `postgres://` URL.
    ///
    /// # Errors
    /// When it is not one.
    pub fn from_url(url: &str) -> Result<StoreOptions> {
        let connect: PgConnectOptions = url
            .parse()
            .map_err(|e: sqlx::Error| super::StoreError::invalid("database_url", e.to_string()))?;
        Ok(StoreOptions::new(connect))
    }
}

/// The database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) registry: PgPool,
    pub(super) reports: PgPool,
    pub(super) options: StoreOptions,
    pub(super) key: super::secrets::SecretKey,
    pub(super) committed: watch::Sender<i64>,
}

impl Store {
    /// Brings the schema up to date: safe for any number of control planes at once, and a no-op on a newer schema.
    ///
    /// # Errors
    /// [`super::StoreError::Unavailable`] when the database cannot be reached, [`super::StoreError::Migrate`].
    pub async fn migrate(options: &StoreOptions) -> Result<()> {
        let _ = options;
        todo!()
    }

    /// Connects to a migrated database.
    ///
    /// # Errors
    /// [`super::StoreError::Unavailable`] when it cannot be reached.
    pub async fn connect(options: StoreOptions) -> Result<Store> {
        let _ = options;
        todo!()
    }

    /// The newest revision this process committed: wakes the follower without the detour over NOTIFY.
    pub fn committed(&self) -> watch::Receiver<i64> {
        self.committed.subscribe()
    }

    /// Asks the database for its clock: proof that it answers.
    ///
    /// # Errors
    /// [`super::StoreError::Unavailable`].
    pub async fn ping(&self) -> Result<time::OffsetDateTime> {
        todo!()
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.registry.close().await;
        self.reports.close().await;
    }
}
