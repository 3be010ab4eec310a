//! A private Postgres for a control plane without a database URL, and for tests.
//!
//! It runs the binaries found on this machine, listens on a Unix socket in its own directory only, never runs as root,
//! and dies with the process that started it, even when that one is killed. It keeps its data over restarts. It downloads
//! nothing and is not for sharing: a second process on the same directory is refused.

mod binaries;
mod cluster;
mod place;
mod testing;
mod user;

use std::path::PathBuf;

pub use cluster::Cluster;
pub use testing::TestDatabase;

/// What can go wrong with a private Postgres.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// No binaries.
    #[error(
        "no PostgreSQL server binaries were found: install the package `postgresql`, or pass a database URL"
    )]
    NoBinaries,
    /// The data was made by a version that is not installed.
    #[error("the data in {path} needs PostgreSQL {version}: install the package `postgresql-{version}`")]
    OtherVersion {
        /// Where the data lies.
        path: PathBuf,
        /// The major version that made it.
        version: String,
    },
    /// Another control plane uses the directory.
    #[error(
        "{0} is in use by another control plane: give this one a state directory of its own, or a database URL to share"
    )]
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

type Result<T> = std::result::Result<T, PostgresError>;

/// Names what was being done when the system refused.
fn io<T>(doing: impl std::fmt::Display, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|source| PostgresError::Io { doing: doing.to_string(), source })
}

#[cfg(test)]
mod tests;
