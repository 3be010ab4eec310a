//! What an operator may set: one file (TOML), then `SPARELINE_PROXY_*` from the environment, then flags; later ones win.
//!
//! Invariants: every mistake is reported at once, each with its key and where it was set; a key nobody knows is a
//! mistake; nothing listens beyond loopback unless `insecure` says so, since neither the traffic port nor the watch
//! (which carries secrets) is protected by the transport yet. Policies are not here: they live in the registry.

mod environment;
mod keys;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use clap::Parser;
use figment::{
    Figment,
    providers::{Format as _, Toml},
};

use environment::Environment;
use keys::Keys;
pub use keys::Mistake;
use spareline_core::Secret;

/// The prefix of environment variables: `SPARELINE_PROXY_LISTEN` sets `listen`.
pub const ENV_PREFIX: &str = "SPARELINE_PROXY_";

/// How the program is called.
#[derive(Debug, Default, Parser)]
#[command(
    name = "spareline-proxy",
    version,
    about = "The sidecar: an OpenAI-compatible front that fails over"
)]
pub struct Flags {
    /// A TOML file with any of the keys.
    #[arg(long, value_name = "FILE", env = "SPARELINE_PROXY_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where the control plane's data-plane port is [default: http://127.0.0.1:7701].
    #[arg(long, value_name = "URL")]
    pub control_plane: Option<String>,
    /// Where callers connect; port 0 takes a free one [default: 127.0.0.1:8080].
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Option<String>,
    /// Where /healthz, /readyz, /metrics and /debug/registry answer [default: 127.0.0.1:8081].
    #[arg(long, value_name = "IP:PORT")]
    pub admin_listen: Option<String>,
    /// This proxy's name in the fleet, which must survive restarts [default: the machine's name and the port].
    #[arg(long, value_name = "NAME")]
    pub proxy_id: Option<String>,
    /// The group of callers that say nothing else [default: default].
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// All groups served, separated by commas [default: that one].
    #[arg(long, value_name = "GROUPS")]
    pub groups: Option<String>,
    /// Threads that carry traffic; 0 means one per core [default: 0].
    #[arg(long, value_name = "N")]
    pub workers: Option<String>,
    /// auto, json or pretty [default: auto].
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// A level, or a filter such as info,spareline_proxy=debug [default: info].
    #[arg(long, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Where to keep the registry over restarts [default: nowhere].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<String>,
    /// Serve from this file of channels, without a control plane.
    #[arg(long, value_name = "FILE")]
    pub standalone: Option<String>,
    /// Allow addresses beyond loopback, without transport security.
    #[arg(long)]
    pub insecure: bool,
    /// Read the configuration, say what is wrong with it, and leave.
    #[arg(long)]
    pub check_config: bool,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Pretty on a terminal, JSON elsewhere.
    Auto,
    /// One JSON object per line.
    Json,
    /// For eyes.
    Pretty,
}

/// Everything the proxy was told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where callers connect.
    pub listen: SocketAddr,
    /// The admin port.
    pub admin_listen: SocketAddr,
    /// The control plane's data-plane URL.
    pub control_plane: url::Url,
    /// This proxy's name in the fleet.
    pub proxy_id: String,
    /// The group of callers that say nothing else.
    pub group: Arc<str>,
    /// All groups served, `group` included; sorted, no doubles.
    pub groups: Vec<Arc<str>>,
    /// A request header that names the group; `None`: no header does.
    pub group_header: Option<http::HeaderName>,
    /// Zone, cluster and the like, matched by rollout selectors.
    pub labels: BTreeMap<String, String>,
    /// Threads that carry traffic, at least 1.
    pub workers: usize,
    /// How log lines look.
    pub log_format: LogFormat,
    /// A level or filter.
    pub log_level: String,
    /// The longest request body and the longest plain answer, in bytes, decoded.
    pub body_limit: usize,
    /// All bodies held at once, in bytes.
    pub body_memory: usize,
    /// Requests in flight; more are answered 503.
    pub max_in_flight: usize,
    /// Connections of callers; more are closed at once.
    pub max_connections: usize,
    /// From the first byte of a request head to its last, and the longest idle keep-alive.
    pub header_read_timeout: Duration,
    /// From the connection to its first byte.
    pub first_byte_timeout: Duration,
    /// A request body of which nothing comes.
    pub body_read_timeout: Duration,
    /// How long running requests may go on after SIGTERM.
    pub drain_timeout: Duration,
    /// Origins that browsers may call from; `*` means any; empty: no CORS at all.
    pub cors_origins: Vec<String>,
    /// Where the registry is kept over restarts; `None`: nowhere.
    pub state_dir: Option<PathBuf>,
    /// What the kept registry is sealed with; `None`: a key of our own in `state_dir`.
    pub state_key: Option<Secret>,
    /// A file of channels to serve from, without a control plane.
    pub standalone_file: Option<PathBuf>,
    /// Addresses beyond loopback are allowed.
    pub insecure: bool,
}

/// The configuration is not usable.
#[derive(Debug, thiserror::Error)]
#[error("{} in the configuration:{}", count(.0.len()), .0.iter().map(|m| format!("\n  {m}")).collect::<String>())]
pub struct Invalid(pub Vec<Mistake>);

fn count(n: usize) -> String {
    if n == 1 { "a mistake".to_owned() } else { format!("{n} mistakes") }
}

impl Config {
    /// Reads file, environment and flags.
    ///
    /// # Errors
    /// [`Invalid`] with every mistake found.
    pub fn load(flags: &Flags) -> Result<Self, Invalid> {
        let mut figment = Figment::new();
        if let Some(path) = &flags.config {
            if !path.is_file() {
                return Err(Invalid(vec![Mistake::new("config", format!("no file {}", path.display()))]));
            }
            let toml = Toml::file_exact(path);
            if let Err(e) = figment::Provider::data(&toml) {
                return Err(Invalid(vec![Mistake::new(&path.display().to_string(), e.kind.to_string())]));
            }
            figment = figment.merge(toml);
        }
        figment = figment.merge(Environment::of_process());
        Self::from_figment(with_flags(figment, flags))
    }

    /// Reads what has been merged.
    ///
    /// # Errors
    /// [`Invalid`] with every mistake found.
    pub fn from_figment(figment: Figment) -> Result<Self, Invalid> {
        let mut k = Keys::new(figment)?;
        let insecure = k.boolean("insecure", false);
        let listen = k.address("listen", "127.0.0.1:8080", insecure);
        let admin_listen = k.address("admin_listen", "127.0.0.1:8081", insecure);
        let control_plane = k.control_plane("control_plane", "http://127.0.0.1:7701", insecure);
        let group: Arc<str> = k.name("group", "default").into();
        let mut groups: Vec<Arc<str>> = k.list("groups").into_iter().map(Arc::from).collect();
        for bad in groups.iter().filter(|g| !keys::is_name(g)).cloned().collect::<Vec<_>>() {
            k.mistake("groups", format!("`{bad}` is not a group name"));
        }
        groups.push(group.clone());
        groups.sort_unstable();
        groups.dedup();
        let Some(control_plane) = control_plane else { return k.finish().and(Err(Invalid(Vec::new()))) };
        let config = Self {
            listen,
            admin_listen,
            control_plane,
            proxy_id: k.proxy_id("proxy_id", listen.port()),
            group,
            groups,
            group_header: k.header("group_header"),
            labels: k.map("labels"),
            workers: match k.number("workers", 0, 0, 1024) {
                0 => std::thread::available_parallelism().map_or(1, usize::from),
                n => n,
            },
            log_format: k.log_format("log_format"),
            log_level: k.log_level("log_level"),
            body_limit: k.size("body_limit", "32MiB", 1024, 1 << 30),
            body_memory: k.size("body_memory", "512MiB", 1 << 20, 1 << 40),
            max_in_flight: k.number("max_in_flight", 10_000, 1, 1_000_000),
            max_connections: k.number("max_connections", 20_000, 1, 1_000_000),
            header_read_timeout: k.duration("header_read_timeout", "75s"),
            first_byte_timeout: k.duration("first_byte_timeout", "75s"),
            body_read_timeout: k.duration("body_read_timeout", "60s"),
            drain_timeout: k.duration("drain_timeout", "30s"),
            cors_origins: k.list("cors_origins"),
            state_dir: k.path("state_dir"),
            state_key: k.secret("state_key", "state_key_file"),
            standalone_file: k.path("standalone_file"),
            insecure,
        };
        if config.listen == config.admin_listen && config.listen.port() != 0 {
            k.mistake("admin_listen", "is the same address as listen: callers and operators need two");
        }
        k.finish()?;
        Ok(config)
    }
}

fn with_flags(mut figment: Figment, flags: &Flags) -> Figment {
    let given = [
        ("control_plane", &flags.control_plane),
        ("listen", &flags.listen),
        ("admin_listen", &flags.admin_listen),
        ("proxy_id", &flags.proxy_id),
        ("group", &flags.group),
        ("groups", &flags.groups),
        ("workers", &flags.workers),
        ("log_format", &flags.log_format),
        ("log_level", &flags.log_level),
        ("state_dir", &flags.state_dir),
        ("standalone_file", &flags.standalone),
    ];
    for (key, value) in given {
        if let Some(value) = value {
            figment = figment.merge(figment::providers::Serialized::global(key, value));
        }
    }
    if flags.insecure {
        figment = figment.merge(figment::providers::Serialized::global("insecure", true));
    }
    figment
}
