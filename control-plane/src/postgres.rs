//! A private Postgres for a control plane without a database URL, and for tests.
//!
//! It runs the binaries found on this machine, listens on a Unix socket in its own directory only, never runs as root,
//! and dies with the process that started it, even when that one is killed. It keeps its data over restarts. It downloads
//! nothing and is not for sharing: a second process on the same directory is refused.

use std::path::{Path, PathBuf};

use sqlx::postgres::PgConnectOptions;

/// What can go wrong with a private Postgres.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// No binaries.
    #[error(
        "no PostgreSQL server binaries were found: install the package `postgresql`, or pass a database URL"
    )]
    NoBinaries,
    /// Another control plane uses the directory.
    #[error("{0} is in use by another control plane")]
    InUse(PathBuf),
    /// Not a directory the server can live in.
    #[error("{path}: {problem}")]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// It did not come up.
    #[error("PostgreSQL did not start: {0}")]
    Start(String),
    /// The system refused something.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What it said.
        source: std::io::Error,
    },
}

/// A running private Postgres. Stops when dropped.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
}

impl Cluster {
    /// Starts the cluster of this state directory, creating it the first time. Blocking, up to some 10 s.
    ///
    /// When the unprivileged user may not go there (root's home), the data lies in `/var/lib/spareline-<hash>` or
    /// `/tmp/spareline-<hash>` instead, found again by the hash of the path.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub fn start(state_dir: &Path) -> Result<Cluster, PostgresError> {
        let _ = state_dir;
        todo!()
    }

    /// Starts a throwaway cluster without durability; its data is removed when it ends.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub fn start_temporary() -> Result<Cluster, PostgresError> {
        todo!()
    }

    /// How to connect to one of its databases (`postgres` is there from the start).
    pub fn options(&self, database: &str) -> PgConnectOptions {
        let _ = database;
        todo!()
    }

    /// The same as a URL, to hand to another process.
    pub fn url(&self, database: &str) -> String {
        let _ = database;
        todo!()
    }

    /// Where the data lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the server still runs.
    pub fn is_running(&mut self) -> bool {
        todo!()
    }

    /// Stops it and waits for its end. Blocking, normally 30 ms.
    pub fn stop(self) {}
}

/// A fresh, migrated database of this process's shared throwaway cluster, cloned from a template in some 50 ms. For tests.
#[derive(Debug)]
pub struct TestDatabase {
    /// How to connect to it.
    pub options: PgConnectOptions,
    /// The same as a URL.
    pub url: String,
}

impl TestDatabase {
    /// Makes one. The cluster is started once per process and ends with it.
    ///
    /// # Errors
    /// When there is no Postgres, or it refuses.
    pub async fn new() -> Result<TestDatabase, crate::store::StoreError> {
        todo!()
    }
}
