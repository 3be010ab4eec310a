//! The proxy's half of the registry watch, without I/O: messages in, actions out.
//!
//! Invariants: a frame is applied whole or not at all; revisions never go backwards within an epoch; a digest that
//! differs asks for a resync at most once a minute; a fall from channels to none is refused unless it is flagged; the
//! back-off starts over only once a frame was applied. The edge dials when told to, passes on what arrives, does what
//! it is told, and says when the connection ended.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use spareline_proto::dataplane::v1 as dp;

use crate::ids::Revision;
use crate::items::Delta;
use crate::view::{Rejection, View};

/// How long without a control plane until the proxy counts as alone.
pub const ALONE_AFTER: Duration = Duration::from_secs(60);

/// One proxy's watch, over all its connections.
#[derive(Debug)]
pub struct ClientSession {
    node: dp::Node,
    view: Arc<View>,
}

/// What the edge has to do, in order.
#[derive(Debug)]
pub enum Action {
    /// Send this.
    Send(dp::WatchRequest),
    /// Put this view in force.
    Publish(Box<Published>),
    /// A session began.
    Welcomed(dp::Welcome),
    /// Hang up, then call [`ClientSession::disconnected`].
    Close(Why),
    /// Something to log as a warning.
    Warn(String),
}

/// A new view.
#[derive(Debug)]
pub struct Published {
    /// In force from now on.
    pub view: Arc<View>,
    /// In force until now.
    pub before: Arc<View>,
    /// What was asked for, rejected items included.
    pub delta: Delta,
    /// Whether it came as a snapshot.
    pub snapshot: bool,
    /// What was not applied.
    pub rejections: Vec<Rejection>,
}

/// Why to hang up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Three heartbeats were missed.
    #[error("nothing heard for {0:?}")]
    Silent(Duration),
    /// The server said goodbye.
    #[error("the server ended the session: {0}")]
    Goodbye(String),
    /// The server broke the protocol.
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    /// The registry fell from channels to none, unflagged.
    #[error("refused a registry without channels")]
    Emptied,
    /// A revision below the one in force, in the same epoch.
    #[error("refused revision {offered} after {held} of the same epoch")]
    Backwards {
        /// In force.
        held: Revision,
        /// What came.
        offered: Revision,
    },
}

impl ClientSession {
    /// A proxy that serves from `view`: empty, or last known good. It may dial at once.
    pub fn new(node: dp::Node, view: Arc<View>, _now: Duration) -> Self {
        Self { node, view }
    }

    /// When to dial; `None` while connected.
    pub fn dial_at(&self) -> Option<Duration> {
        todo!()
    }

    /// The stream is open: what to send first.
    pub fn connected(&mut self, _now: Duration) -> dp::WatchRequest {
        let _ = &self.node;
        todo!()
    }

    /// A message arrived.
    pub fn received(&mut self, _message: dp::WatchResponse, _now: Duration, _rng: &mut impl Rng) -> Vec<Action> {
        todo!()
    }

    /// Call when [`next_timer`](Self::next_timer) is reached.
    pub fn tick(&mut self, _now: Duration) -> Vec<Action> {
        todo!()
    }

    /// When to call [`tick`](Self::tick) at the latest; `None` while disconnected.
    pub fn next_timer(&self) -> Option<Duration> {
        todo!()
    }

    /// The connection ended or could not be made. `history_lost`: the server said that we are ahead of it.
    pub fn disconnected(&mut self, _now: Duration, _rng: &mut impl Rng) {
        todo!()
    }

    /// In force.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Whether a control plane was welcomed and is heard from.
    pub fn is_connected(&self) -> bool {
        todo!()
    }

    /// Whether a registry is in force: a frame was applied, or a resume granted, or one was restored.
    pub fn is_ready(&self) -> bool {
        todo!()
    }

    /// No control plane for [`ALONE_AFTER`].
    pub fn is_alone(&self, _now: Duration) -> bool {
        todo!()
    }
}
