//! Connections: one pool per way through the network, shared by the channels that do not differ in it, kept across
//! registry updates of unchanged channels and dropped with the last channel that used it.
//!
//! A [`Clients`] is cheap, and one per worker thread is meant to be possible: [`Clients::sibling`] shares the limits
//! on connections, not the pools.

use std::sync::Arc;
use std::time::Duration;

use spareline_core::ChannelId;

use crate::target::Target;

/// Bounds for all pools.
#[derive(Clone, Debug)]
pub struct ClientsConfig {
    /// Idle connections are closed after this; below what upstreams usually keep (**15 s**; some close at 20 s).
    pub pool_idle: Duration,
    /// Idle connections kept per host (**64**).
    pub pool_max_idle_per_host: usize,
    /// Most requests at once per channel where it does not say (**1024**).
    pub max_connections: u32,
}

/// The lines in use and their pools.
#[derive(Debug)]
pub struct Clients {}

/// One channel, ready to be spoken to.
#[derive(Debug)]
pub struct Line {}

/// Why a channel cannot be spoken to: its network options do not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// `proxy_url` is not usable.
    #[error("proxy_url is not a usable proxy URL")]
    Proxy,
    /// `ca_pem` holds no usable certificate.
    #[error("ca_pem holds no usable certificate")]
    Certificates,
    /// The TLS or HTTP client could not be made.
    #[error("cannot make a client: {0}")]
    Client(String),
}

impl Default for ClientsConfig {
    fn default() -> Self {
        Self { pool_idle: Duration::from_secs(15), pool_max_idle_per_host: 64, max_connections: 1024 }
    }
}

impl Clients {
    /// No lines yet.
    pub fn new(_config: ClientsConfig) -> Self {
        todo!()
    }

    /// For another worker thread: pools of its own, the same limits on connections.
    pub fn sibling(&self) -> Self {
        todo!()
    }

    /// The line of a channel. Cheap (a lock and a map lookup) while its revision is the one already known; otherwise
    /// `make` is asked for the target and the line is built, on the same pool where the network options are unchanged.
    ///
    /// # Errors
    /// The network options do not work.
    pub fn line(
        &self,
        _channel: ChannelId,
        _revision: i64,
        _make: impl FnOnce() -> Target,
    ) -> Result<Arc<Line>, LineError> {
        todo!()
    }

    /// Drops the lines of channels that are no more, and the pools that nobody uses any more.
    pub fn retain(&self, _live: impl Fn(ChannelId) -> bool) {
        todo!()
    }
}

impl Line {
    /// What it was made from.
    pub fn target(&self) -> &Target {
        todo!()
    }
}
