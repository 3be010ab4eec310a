//! Throwaway databases: one cluster per process, one database per test, cloned from a migrated template.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::sync::OnceCell;

use super::Cluster;
use crate::store::{Store, StoreError, StoreOptions};

const TEMPLATE: &str = "spareline_template";

/// Started once per process; it ends with the process, and its data with it.
static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A fresh database of this process's shared throwaway cluster. For tests.
#[derive(Clone, Debug)]
pub struct TestDatabase {
    /// How to connect to it.
    pub options: PgConnectOptions,
    /// The same as a URL.
    pub url: String,
    /// Its name.
    pub name: String,
}

impl TestDatabase {
    /// A migrated one, cloned from a template in some 50 ms.
    ///
    /// # Errors
    /// When there is no Postgres, or it refuses.
    pub async fn new() -> Result<TestDatabase, StoreError> {
        TestDatabase::make(Some(TEMPLATE)).await
    }

    /// An empty one.
    ///
    /// # Errors
    /// When there is no Postgres, or it refuses.
    pub async fn empty() -> Result<TestDatabase, StoreError> {
        TestDatabase::make(None).await
    }

    /// A store on it. Call it again for another control plane's.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn store(&self) -> Result<Store, StoreError> {
        Store::connect(StoreOptions::new(self.options.clone())).await
    }

    async fn make(template: Option<&str>) -> Result<TestDatabase, StoreError> {
        let cluster = CLUSTER.get_or_try_init(start).await?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        let template = template.unwrap_or("template0");
        let mut conn = PgConnection::connect_with(&cluster.options("postgres")).await?;
        conn.execute(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")))
            .await?;
        conn.close().await?;
        Ok(TestDatabase { options: cluster.options(&name), url: cluster.url(&name), name })
    }
}

async fn start() -> Result<Cluster, StoreError> {
    let started = tokio::task::spawn_blocking(Cluster::start_temporary).await;
    let cluster = match started {
        Ok(Ok(cluster)) => cluster,
        Ok(Err(e)) => return Err(StoreError::Precondition(e.to_string())),
        Err(e) => return Err(StoreError::Precondition(e.to_string())),
    };
    let mut conn = PgConnection::connect_with(&cluster.options("postgres")).await?;
    conn.execute(AssertSqlSafe(format!("CREATE DATABASE {TEMPLATE}"))).await?;
    conn.close().await?;
    Store::migrate(&StoreOptions::new(cluster.options(TEMPLATE))).await?;
    Ok(cluster)
}
