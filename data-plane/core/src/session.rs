//! The proxy's half of the registry watch, without I/O: messages in, actions out.
//!
//! Invariants: a frame is applied whole or not at all; revisions never go backwards within an epoch; a digest that
//! differs asks for a resync at most once a minute; a fall from channels to none is refused unless it is flagged; the
//! back-off starts over only once a frame was applied. The edge dials when told to, passes on what arrives, does what
//! it is told, and says when the connection ended.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::dataplane::v1::watch_request::Message as Request;
use spareline_proto::dataplane::v1::watch_response::Message as Response;

use crate::backoff::FullJitter;
use crate::convert;
use crate::ids::Revision;
use crate::items::{Delta, Items};
use crate::view::{Clock, Rejection, View};

/// How long without a control plane until the proxy counts as alone.
pub const ALONE_AFTER: Duration = Duration::from_secs(60);

/// A checkpoint that disagrees leads to a resync at most this often.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);
/// How long the server may take to welcome us.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(30);
/// Where the server does not say.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// One proxy's watch, over all its connections.
#[derive(Debug)]
pub struct ClientSession {
    node: dp::Node,
    view: Arc<View>,
    link: Link,
    backoff: FullJitter,
    ready: bool,
    /// When a control plane was last heard from; at first, when this began.
    heard: Duration,
    /// What the last goodbye asked for.
    not_before: Duration,
    resynced: Option<Duration>,
}

#[derive(Debug)]
enum Link {
    Down {
        dial_at: Duration,
    },
    /// Hello is sent.
    Opening {
        since: Duration,
    },
    Up(Box<Up>),
    /// The edge was told to hang up.
    Closing,
}

/// One welcomed session.
#[derive(Debug)]
struct Up {
    heartbeat: Duration,
    /// Updates may follow: a resume was granted, or a snapshot came.
    synced: bool,
    frame: u64,
    staged: Option<Staged>,
}

/// A snapshot that has not come whole yet.
#[derive(Debug)]
struct Staged {
    frame: u64,
    items: Items,
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

// === impl ClientSession ===

impl ClientSession {
    /// A proxy that serves from `view`: empty, or last known good. It may dial at once.
    pub fn new(node: dp::Node, view: Arc<View>, now: Duration) -> Self {
        let ready = !view.epoch().is_empty();
        Self {
            node,
            view,
            link: Link::Down { dial_at: now },
            backoff: FullJitter::reconnect(),
            ready,
            heard: now,
            not_before: now,
            resynced: None,
        }
    }

    /// When to dial; `None` while connected.
    pub fn dial_at(&self) -> Option<Duration> {
        match self.link {
            Link::Down { dial_at } => Some(dial_at),
            _ => None,
        }
    }

    /// The stream is open: what to send first.
    pub fn connected(&mut self, now: Duration) -> dp::WatchRequest {
        self.link = Link::Opening { since: now };
        let held = self.ready.then(|| self.position());
        request(Request::Hello(dp::Hello { node: Some(self.node.clone()), held }))
    }

    /// A message arrived.
    pub fn received(&mut self, message: dp::WatchResponse, now: Duration) -> Vec<Action> {
        if matches!(self.link, Link::Down { .. } | Link::Closing) {
            return Vec::new();
        }
        self.heard = now;
        let done = match (message.message, &self.link) {
            (Some(Response::Welcome(welcome)), Link::Opening { .. }) => Ok(self.welcomed(welcome)),
            (Some(Response::Goodbye(goodbye)), _) => Err(self.goodbye(goodbye, now)),
            (_, Link::Opening { .. }) => Err(Why::Protocol("something else came before the welcome")),
            (Some(Response::Snapshot(chunk)), _) => self.snapshot(chunk, now),
            (Some(Response::Update(update)), _) => self.update(update, now),
            (Some(Response::Checkpoint(checkpoint)), _) => Ok(self.checkpoint(&checkpoint, now)),
            (Some(Response::Welcome(_)), _) => Err(Why::Protocol("a second welcome")),
            (None, _) => Err(Why::Protocol("an empty message")),
        };
        done.unwrap_or_else(|why| self.close(why))
    }

    /// Call when [`next_timer`](Self::next_timer) is reached.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        match self.next_timer() {
            Some(timer) if timer <= now => self.close(Why::Silent(now.saturating_sub(self.heard))),
            _ => Vec::new(),
        }
    }

    /// When to call [`tick`](Self::tick) at the latest; `None` while disconnected.
    pub fn next_timer(&self) -> Option<Duration> {
        match &self.link {
            Link::Opening { since } => Some(*since + WELCOME_TIMEOUT),
            // Three missed, and the +-10 % that the server spreads them by.
            Link::Up(up) => Some(self.heard + up.heartbeat.mul_f64(3.3)),
            Link::Down { .. } | Link::Closing => None,
        }
    }

    /// The connection ended or could not be made.
    pub fn disconnected(&mut self, now: Duration, rng: &mut impl Rng) {
        let dial_at = now.max(self.not_before) + self.backoff.next(rng);
        self.link = Link::Down { dial_at };
    }

    /// In force.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// What is served, as the control plane knows it.
    pub fn position(&self) -> dp::Position {
        dp::Position {
            epoch: self.view.epoch().to_string(),
            revision: self.view.revision().0,
            digest: self.view.items().digest(),
        }
    }

    /// Whether a control plane has welcomed us and the connection stands.
    pub fn is_connected(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    /// Whether a registry is in force: a snapshot was applied, or one was restored.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// No control plane for [`ALONE_AFTER`].
    pub fn is_alone(&self, now: Duration) -> bool {
        now.saturating_sub(self.heard) >= ALONE_AFTER
    }

    fn close(&mut self, why: Why) -> Vec<Action> {
        self.link = Link::Closing;
        vec![Action::Close(why)]
    }

    fn welcomed(&mut self, welcome: dp::Welcome) -> Vec<Action> {
        let heartbeat = convert::duration(welcome.heartbeat_interval.as_ref()).filter(|h| !h.is_zero());
        self.link = Link::Up(Box::new(Up {
            heartbeat: heartbeat.unwrap_or(HEARTBEAT),
            synced: welcome.resumed && self.ready,
            frame: 0,
            staged: None,
        }));
        vec![Action::Welcomed(welcome)]
    }

    fn goodbye(&mut self, goodbye: dp::Goodbye, now: Duration) -> Why {
        let after = convert::duration(goodbye.reconnect_after.as_ref()).unwrap_or_default();
        self.not_before = now + after.min(Duration::from_secs(300));
        Why::Goodbye(goodbye.why)
    }

    fn snapshot(&mut self, chunk: dp::SnapshotChunk, now: Duration) -> Result<Vec<Action>, Why> {
        let Link::Up(up) = &mut self.link else { return Ok(Vec::new()) };
        let mut staged = match up.staged.take() {
            Some(staged) if staged.frame == chunk.frame => staged,
            _ if chunk.frame <= up.frame => return Err(Why::Protocol("a frame that is not new")),
            _ => Staged { frame: chunk.frame, items: Items::default() },
        };
        let part = Delta::of(chunk.channels, chunk.credentials, chunk.statuses, chunk.policies);
        staged.items = staged.items.apply(&part);
        if !chunk.last {
            up.staged = Some(staged);
            return Ok(Vec::new());
        }
        let position = chunk.position.ok_or(Why::Protocol("a snapshot without a position"))?;
        if position.epoch.is_empty() {
            return Err(Why::Protocol("a position without an epoch"));
        }
        self.forwards(&position)?;
        if staged.items.channel_count() == 0 && self.view.items().channel_count() > 0 && !chunk.allow_empty {
            return Err(Why::Emptied);
        }
        let clock = Clock { server_time: chunk.server_time, now };
        let revision = Revision(position.revision);
        let (view, rejections) = self.view.replace(&staged.items, &position.epoch, revision, clock);
        let delta = self.view.items().diff(view.items());
        Ok(self.publish(view, rejections, delta, staged.frame, true))
    }

    fn update(&mut self, update: dp::Update, now: Duration) -> Result<Vec<Action>, Why> {
        let Link::Up(up) = &self.link else { return Ok(Vec::new()) };
        if !up.synced {
            return Err(Why::Protocol("an update without a view to apply it to"));
        }
        if update.frame <= up.frame {
            return Err(Why::Protocol("a frame that is not new"));
        }
        let position = update.position.clone().ok_or(Why::Protocol("an update without a position"))?;
        if *position.epoch != **self.view.epoch() {
            return Err(Why::Protocol("an update of another epoch"));
        }
        self.forwards(&position)?;
        let (frame, allow_empty) = (update.frame, update.allow_empty);
        let clock = Clock { server_time: update.server_time, now };
        let delta = Delta::from_update(update);
        let (view, rejections) = self.view.apply(&delta, Revision(position.revision), clock);
        if view.items().channel_count() == 0 && self.view.items().channel_count() > 0 && !allow_empty {
            return Err(Why::Emptied);
        }
        Ok(self.publish(view, rejections, delta, frame, false))
    }

    fn forwards(&self, position: &dp::Position) -> Result<(), Why> {
        let held = self.view.revision();
        if *position.epoch == **self.view.epoch() && position.revision < held.0 {
            return Err(Why::Backwards { held, offered: Revision(position.revision) });
        }
        Ok(())
    }

    fn publish(
        &mut self,
        view: View,
        rejections: Vec<Rejection>,
        delta: Delta,
        frame: u64,
        snapshot: bool,
    ) -> Vec<Action> {
        if let Link::Up(up) = &mut self.link {
            up.frame = frame;
            up.synced = true;
        }
        self.ready = true;
        self.backoff.reset();
        let before = std::mem::replace(&mut self.view, Arc::new(view));
        let ack = dp::Ack {
            frame,
            applied: Some(self.position()),
            rejections: rejections.iter().map(Rejection::to_wire).collect(),
        };
        let published = Published { view: self.view.clone(), before, delta, snapshot, rejections };
        vec![Action::Publish(Box::new(published)), Action::Send(request(Request::Ack(ack)))]
    }

    fn checkpoint(&mut self, checkpoint: &dp::Checkpoint, now: Duration) -> Vec<Action> {
        let synced = matches!(&self.link, Link::Up(up) if up.synced);
        let Some(theirs) = checkpoint.position.as_ref().filter(|_| synced) else { return Vec::new() };
        let ours = self.position();
        // Below ours: our ack is still on its way.
        if theirs.epoch != ours.epoch || theirs.revision < ours.revision {
            return Vec::new();
        }
        if *theirs == ours {
            self.backoff.reset();
            return Vec::new();
        }
        if self.resynced.is_some_and(|at| now.saturating_sub(at) < RESYNC_INTERVAL) {
            return Vec::new();
        }
        self.resynced = Some(now);
        let why = format!("digest {:016x} at {} is not {:016x}", ours.digest, ours.revision, theirs.digest);
        let warning = Action::Warn(format!("asking for a snapshot: {why}"));
        vec![warning, Action::Send(request(Request::Resync(dp::Resync { why })))]
    }
}

fn request(message: Request) -> dp::WatchRequest {
    dp::WatchRequest { message: Some(message) }
}
