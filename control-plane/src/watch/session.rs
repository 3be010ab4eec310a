//! The control plane's half of the registry watch, without I/O.
//!
//! Level-triggered: a session remembers the view it last sent and makes a difference when the edge can take a frame,
//! so any number of changes becomes one frame and nothing can overflow. At most one frame is unacknowledged. A rejected
//! version is not sent again within the session, but for a snapshot that was asked for.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use spareline_core::ids::Revision;
use spareline_core::items::Items;
use spareline_proto::dataplane::v1 as dp;

/// What a proxy should have.
#[derive(Clone, Debug)]
pub struct Target {
    /// The history `revision` belongs to.
    pub epoch: Arc<str>,
    /// How far it got.
    pub revision: Revision,
    /// The view, already narrowed to the proxy's groups.
    pub items: Items,
    /// A view without channels is meant, also for a proxy that comes from another epoch with channels.
    pub allow_empty: bool,
}

/// How sessions are run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Something is sent at least this often, +-10 %.
    pub heartbeat: Duration,
    /// The oldest a session gets, +-10 %.
    pub max_age: Duration,
    /// For logs on both sides.
    pub replica_id: String,
    /// Optional behaviours of this build.
    pub features: Vec<String>,
}

/// What to make of a `Hello`.
#[derive(Debug)]
pub enum Open {
    /// A session.
    Session(Box<ServerSession>),
    /// The proxy is ahead of our world in the same epoch: re-read the head; still ahead of that = `history_lost`
    /// (FAILED_PRECONDITION), else wait 2 s, then UNAVAILABLE.
    Ahead,
    /// INVALID_ARGUMENT.
    Refused(&'static str),
}

/// What a message from the proxy meant.
#[derive(Clone, Debug, PartialEq)]
pub enum Received {
    /// A frame is applied.
    Acked {
        /// What is being served now.
        applied: dp::Position,
        /// What was not applied.
        rejections: Vec<dp::Rejection>,
    },
    /// A snapshot will follow.
    Resync(String),
    /// It asked for one too soon after the last.
    ResyncTooSoon,
}

/// The proxy broke the protocol: INVALID_ARGUMENT, with this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProtocolError(pub &'static str);

/// One proxy's session.
#[derive(Debug)]
pub struct ServerSession {
    node: dp::Node,
}

impl ServerSession {
    /// Opens a session with what the proxy said first.
    pub fn open(
        _hello: dp::Hello,
        _target: &Target,
        _settings: &Settings,
        _session_id: String,
        _now: Duration,
        _rng: &mut impl Rng,
    ) -> Open {
        todo!()
    }

    /// Who it is.
    pub fn node(&self) -> &dp::Node {
        &self.node
    }

    /// The next message, given what the proxy should have now. `None`: nothing until the world changes, the proxy says
    /// something, or [`deadline`](Self::deadline). Call it whenever the transport can take a message, until `None`.
    pub fn poll(
        &mut self,
        _target: &Target,
        _server_time: prost_types::Timestamp,
        _now: Duration,
        _rng: &mut impl Rng,
    ) -> Option<dp::WatchResponse> {
        todo!()
    }

    /// A message of the proxy.
    ///
    /// # Errors
    /// It broke the protocol.
    pub fn received(
        &mut self,
        _message: dp::WatchRequest,
        _now: Duration,
    ) -> Result<Received, ProtocolError> {
        todo!()
    }

    /// When to call [`poll`](Self::poll) at the latest.
    pub fn deadline(&self) -> Duration {
        todo!()
    }

    /// Whether a `Goodbye` was sent: end the stream.
    pub fn is_over(&self) -> bool {
        todo!()
    }

    /// What the proxy is known to serve: acknowledged, or unchanged since then.
    pub fn applied(&self) -> Option<&dp::Position> {
        todo!()
    }

    /// What the proxy could not use, as of now.
    pub fn rejections(&self) -> &[dp::Rejection] {
        todo!()
    }

    /// The orderly end on shutdown; nothing may follow it.
    pub fn goodbye(&mut self, _why: &str, _reconnect_after: Duration) -> dp::WatchResponse {
        todo!()
    }
}
