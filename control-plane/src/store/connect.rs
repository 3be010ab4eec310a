//! Pools, time limits, migrations.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection, PgPool, Row};
use tokio::sync::{Semaphore, watch};

use super::combine::Combiner;
use super::secrets::SecretKey;
use super::{Result, StoreError};

/// How long a connection may take to answer before it is given up for a new one.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// How long a writer may pause between two statements: a stopped or vanished one keeps all others waiting.
const IDLE_WRITER: &str = "2s";
/// Writers of one process at the database at once: they would wait for each other there anyway, and a replica that is stopped
/// or cut off would leave a whole queue of them in front of everybody else, each for as long as above.
const WRITERS: usize = 1;
/// How long a writer waits for its turn in this process.
pub(super) const TURN: Duration = Duration::from_secs(5);
/// How long the work of a background task may take, over all its statements.
const BOUND: Duration = Duration::from_secs(20);

/// How to reach the database.
#[derive(Clone)]
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

impl std::fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The connect options hold the password and would show it.
        f.debug_struct("StoreOptions")
            .field("host", &self.connect.get_host())
            .field("database", &self.connect.get_database())
            .field("registry_connections", &self.registry_connections)
            .field("report_connections", &self.report_connections)
            .field("acquire_timeout", &self.acquire_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .finish()
    }
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
        // The parser's own error could quote the URL, password and all.
        let wrong = || StoreError::invalid("database_url", "is not a postgres:// URL");
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(wrong());
        }
        let connect: PgConnectOptions = url.parse().map_err(|_| wrong())?;
        Ok(StoreOptions::new(connect))
    }

    fn limited(&self) -> PgConnectOptions {
        let timeout = format!("{}ms", self.statement_timeout.as_millis());
        self.connect.clone().application_name("spareline-control").options([
            ("statement_timeout", timeout.as_str()),
            // A writer that dies between two statements frees the head by itself.
            ("idle_in_transaction_session_timeout", IDLE_WRITER),
        ])
    }

    fn pool(&self, connections: u32) -> PgPool {
        PgPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(self.acquire_timeout)
            .idle_timeout(Duration::from_secs(300))
            // In place of the driver's own tests, which wait for ever: a connection whose peer fell silent would keep its
            // place in the pool, until none is left.
            .test_before_acquire(false)
            .before_acquire(|conn, _| Box::pin(alive(conn)))
            .after_release(|conn, _| Box::pin(at_rest(conn)))
            .connect_lazy_with(self.limited())
    }
}

/// Whether a connection answers, and soon.
async fn alive(conn: &mut PgConnection) -> std::result::Result<bool, sqlx::Error> {
    Ok(matches!(tokio::time::timeout(SIGN_OF_LIFE, conn.ping()).await, Ok(Ok(()))))
}

/// Whether a connection answers, and is in no transaction. The driver forgets a transaction whose caller left while it was being
/// begun; whoever got such a connection next would write into it, and nothing of that would ever be committed.
async fn at_rest(conn: &mut PgConnection) -> std::result::Result<bool, sqlx::Error> {
    // One simple statement: alone, it is a transaction of its own and begins with it.
    let query = sqlx::raw_sql("SELECT statement_timestamp() = transaction_timestamp()").fetch_one(conn);
    match tokio::time::timeout(SIGN_OF_LIFE, query).await {
        Ok(Ok(row)) => Ok(row.try_get(0).unwrap_or(false)),
        _ => Ok(false),
    }
}

/// Refuses a pooler that deals out sessions by the transaction: LISTEN, locks, prepared statements and time limits would belong
/// to whoever comes next.
async fn sessions_are_ours(options: &StoreOptions, conn: &mut PgConnection) -> Result<()> {
    let second = PgConnection::connect_with(&options.connect);
    let mut second = tokio::time::timeout(options.acquire_timeout, second)
        .await
        .map_err(|_| StoreError::Unavailable(sqlx::Error::PoolTimedOut))??;
    let mut met = Vec::new();
    for first in [true, false, false, true, true, false] {
        // Simple, since nothing may be left behind in a session that is not ours.
        let query = sqlx::raw_sql("SELECT pg_backend_pid()");
        let row = query.fetch_one(if first { &mut *conn } else { &mut second }).await?;
        met.push((first, row.try_get(0)?));
    }
    second.close().await?;
    if kept_apart(&met) { Ok(()) } else { Err(StoreError::Pooled) }
}

/// Whether two connections, which asked in turns, each met one session of its own all the time.
fn kept_apart(met: &[(bool, i32)]) -> bool {
    met.iter().all(|one| met.iter().all(|other| (one.0 == other.0) == (one.1 == other.1)))
}

/// The database. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(super) registry: PgPool,
    pub(super) reports: PgPool,
    pub(super) options: StoreOptions,
    pub(super) key: SecretKey,
    pub(super) committed: watch::Sender<i64>,
    pub(super) combiner: Arc<Combiner>,
    pub(super) writers: Arc<Semaphore>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Store {
    /// Brings the schema up to date: safe for any number of control planes at once, and a no-op on a newer schema.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the database cannot be reached, [`StoreError::Pooled`], [`StoreError::Migrate`].
    pub async fn migrate(options: &StoreOptions) -> Result<()> {
        // A connection of its own, closed whatever happens: a failed migration keeps its lock on the connection. No
        // statement timeout: waiting for another migrator counts as a statement.
        let mut conn =
            tokio::time::timeout(options.acquire_timeout, PgConnection::connect_with(&options.connect))
                .await
                .map_err(|_| StoreError::Unavailable(sqlx::Error::PoolTimedOut))??;
        sessions_are_ours(options, &mut conn).await?;
        let mut migrator = sqlx::migrate!("../migrations");
        migrator.set_ignore_missing(true);
        let done = migrator.run(&mut conn).await;
        let closed = conn.close().await;
        done?;
        closed?;
        Ok(())
    }

    /// Connects to a migrated database.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it cannot be reached.
    pub async fn connect(options: StoreOptions) -> Result<Store> {
        let registry = options.pool(options.registry_connections);
        let reports = options.pool(options.report_connections);
        let key: Vec<u8> = sqlx::query_scalar("SELECT value FROM settings WHERE name = 'secret_key'")
            .fetch_one(&registry)
            .await?;
        let (committed, _) = watch::channel(0);
        Ok(Store {
            registry,
            reports,
            options,
            key: SecretKey::new(key),
            committed,
            combiner: Arc::default(),
            writers: Arc::new(Semaphore::new(WRITERS)),
        })
    }

    /// The newest revision this process committed: wakes the follower without the detour over NOTIFY.
    pub fn committed(&self) -> watch::Receiver<i64> {
        self.committed.subscribe()
    }

    /// Asks the database for its clock: proof that it answers.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn ping(&self) -> Result<time::OffsetDateTime> {
        Ok(sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&self.registry).await?)
    }

    /// The result of some work on the database, or that it does not answer: nothing waits for ever for a silent peer.
    ///
    /// # Errors
    /// As the work's; `Unavailable` after 20 s.
    pub async fn bounded<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(BOUND, work).await.unwrap_or_else(|_| Err(StoreError::silent()))
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.registry.close().await;
        self.reports.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::kept_apart;

    #[test]
    fn a_pooler_by_transaction_is_told_from_sessions() {
        let turns = [true, false, false, true, true, false];
        let apart = |pids: [i32; 6]| kept_apart(&turns.into_iter().zip(pids).collect::<Vec<_>>());
        assert!(apart([7, 8, 8, 7, 7, 8]));
        // The session used last, all of them in turn, any.
        for pids in [[7; 6], [7, 8, 7, 8, 7, 8], [7, 8, 9, 7, 8, 9], [7, 8, 8, 7, 9, 8]] {
            assert!(!apart(pids), "{pids:?}");
        }
    }
}
