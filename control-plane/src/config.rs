//! The control plane's configuration: one file, the environment, flags.
//!
//! A key is looked up in the flags, then in the environment (`SPARELINE_CONTROL_<KEY>`, for `database_url` also
//! `DATABASE_URL`), then in the TOML file; the first that has it wins. Loading never stops at the first mistake: every
//! value that cannot be used and every key that nobody knows is reported at once, with its name and where it stands.
//! Values are not repeated in messages where they may hold a password.
//!
//! This module reads no clock, opens no socket and touches no database.

mod sources;
mod value;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use sources::Sources;

/// Every key there is, once: flags, environment and the documented example are checked against this list. Upper-cased behind
/// `SPARELINE_CONTROL_` in the environment, with dashes as a flag.
pub(crate) const KEYS: [&str; 10] = [
    "admin_listen",
    "data_listen",
    "database_url",
    "state_dir",
    "insecure",
    "log_format",
    "log_filter",
    "replica_id",
    "shutdown_timeout",
    "database_connections",
];

/// What the control plane needs to know before it starts.
#[derive(Clone)]
pub struct Config {
    /// Where operators are served: channels, policies, rollouts, the fleet, health, reflection, `/metrics` and the like.
    pub admin_listen: SocketAddr,
    /// Where proxies are served: the registry watch, reports, health.
    pub data_listen: SocketAddr,
    /// A Postgres to use; `None`: a private one in `state_dir`.
    pub database_url: Option<DatabaseUrl>,
    /// Where the private Postgres lives.
    pub state_dir: PathBuf,
    /// Whether addresses other than loopback are allowed, although nothing is encrypted yet.
    pub insecure: bool,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which log lines are written, as in `RUST_LOG`.
    pub log_filter: String,
    /// This replica's name in logs, sessions and leases; `None`: made up at each start.
    pub replica_id: Option<String>,
    /// How long running calls may take to end after a stop signal; at most an hour.
    pub shutdown_timeout: Duration,
    /// Most connections to the database, 2 to 1000: half of them for the registry, half for reports.
    pub database_connections: u32,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Pretty on a terminal, JSON lines elsewhere.
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Pretty,
}

/// A database URL. It may hold a password, so it prints as `<redacted>`.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// The URL itself, for the database client only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The key, or the file where it could not be read at all.
    pub key: String,
    /// Where the value stands.
    pub source: String,
    /// What is wrong with it.
    pub problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.key, self.problem, self.source)
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "mistake" } else { "mistakes" };
        write!(f, "{} {plural} in the configuration:", self.0.len())?;
        self.0.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
    }
}

impl std::error::Error for Mistakes {}

impl Config {
    /// Reads the configuration from its sources.
    ///
    /// # Errors
    /// All mistakes at once, in the order file, environment and flags name them.
    pub fn load(sources: Sources) -> Result<Self, Mistakes> {
        let usual_state_dir = sources.usual_state_dir();
        let mut found = sources.read();
        let config = Self {
            admin_listen: found.or("admin_listen", SocketAddr::from(([127, 0, 0, 1], 7700)), value::address),
            data_listen: found.or("data_listen", SocketAddr::from(([127, 0, 0, 1], 7701)), value::address),
            database_url: found.get("database_url", value::database_url).map(DatabaseUrl),
            state_dir: found.or("state_dir", usual_state_dir, value::path),
            insecure: found.or("insecure", false, value::boolean),
            log_format: found.or("log_format", LogFormat::Auto, value::log_format),
            log_filter: found.or("log_filter", "info".to_owned(), value::log_filter),
            replica_id: found.get("replica_id", value::word),
            shutdown_timeout: found.or("shutdown_timeout", Duration::from_secs(10), |text| {
                value::duration(text, Duration::ZERO..=Duration::from_secs(3600))
            }),
            database_connections: found.or("database_connections", 16, |text| value::number(text, 2..=1000)),
        };
        for (key, address) in [("admin_listen", config.admin_listen), ("data_listen", config.data_listen)] {
            if !address.ip().is_loopback() && !config.insecure {
                found.mistake(key, "is not a loopback address: nothing is encrypted or authenticated here, so this needs `insecure = true`");
            }
        }
        if config.admin_listen == config.data_listen && config.admin_listen.port() != 0 {
            found.mistake(
                "data_listen",
                "is the same address as admin_listen: operators and proxies need two",
            );
        }
        found.finish()?;
        Ok(config)
    }
}
