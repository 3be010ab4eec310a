//! The control plane's half of the registry watch, without I/O.
//!
//! Level-triggered: a session remembers the view it last sent and makes a difference when the edge can take a frame,
//! so any number of changes becomes one frame and nothing can overflow. At most one frame is unacknowledged. A rejected
//! version is not sent again within the session, but for a snapshot that was asked for.

mod chunks;
mod rejected;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use rand::{Rng, RngExt as _};
use spareline_core::convert::duration_ref;
use spareline_core::ids::Revision;
use spareline_core::items::{ItemKey, Items};
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::dataplane::v1::watch_request::Message as Request;
use spareline_proto::dataplane::v1::watch_response::Message;

use chunks::Chunks;
use rejected::Rejected;

/// The largest frame, in bytes; a snapshot comes in chunks of this, and a larger update as a snapshot.
const MAX_FRAME: usize = 1024 * 1024;
/// A proxy gets a snapshot on request at most this often.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);

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
    settings: Settings,
    welcome: Option<dp::Welcome>,
    /// The proxy came from this epoch, or was brought into it.
    epoch: Arc<str>,
    /// The view last sent, what was rejected of it included.
    sent: Items,
    /// Whether `sent` is what the proxy has, or is on its way there; else a snapshot follows.
    synced: bool,
    frames: u64,
    flight: Option<Flight>,
    rejected: Rejected,
    acked: Option<dp::Position>,
    resync: Option<Duration>,
    heartbeat_at: Duration,
    ends_at: Duration,
    over: bool,
}

/// A frame that is not acknowledged yet.
#[derive(Debug)]
struct Flight {
    frame: u64,
    revision: Revision,
    /// The items it brings; `None`: all, it is a snapshot.
    keys: Option<Vec<ItemKey>>,
    /// What is still to be sent of a snapshot.
    chunks: Option<Chunks>,
}

// === impl ServerSession ===

impl ServerSession {
    /// Opens a session with what the proxy said first.
    pub fn open(
        hello: dp::Hello,
        target: &Target,
        settings: &Settings,
        session_id: String,
        now: Duration,
        rng: &mut impl Rng,
    ) -> Open {
        let Some(node) = hello.node else { return Open::Refused("hello.node is required") };
        if node.proxy_id.is_empty() {
            return Open::Refused("hello.node.proxy_id is required");
        }
        let held = hello.held.filter(|held| held.epoch == *target.epoch);
        if held.as_ref().is_some_and(|held| held.revision > target.revision.0) {
            return Open::Ahead;
        }
        let resumed = held.as_ref().is_some_and(|held| held.digest == target.items.digest());
        let enabled_features =
            settings.features.iter().filter(|f| node.features.contains(f)).cloned().collect();
        let welcome = dp::Welcome {
            session_id,
            replica_id: settings.replica_id.clone(),
            heartbeat_interval: Some(duration_ref(settings.heartbeat)),
            resumed,
            enabled_features,
        };
        Open::Session(Box::new(Self {
            node,
            settings: settings.clone(),
            welcome: Some(welcome),
            epoch: if held.is_some() { target.epoch.clone() } else { Arc::from("") },
            sent: if resumed { target.items.clone() } else { Items::default() },
            synced: resumed,
            frames: 0,
            flight: None,
            rejected: Rejected::default(),
            acked: held.filter(|_| resumed),
            resync: None,
            heartbeat_at: now + spread(settings.heartbeat, rng),
            ends_at: now + spread(settings.max_age, rng),
            over: false,
        }))
    }

    /// Who it is.
    pub fn node(&self) -> &dp::Node {
        &self.node
    }

    /// The next message, given what the proxy should have now. `None`: nothing until the world changes, the proxy says
    /// something, or [`deadline`](Self::deadline). Call it whenever the transport can take a message, until `None`.
    pub fn poll(
        &mut self,
        target: &Target,
        server_time: prost_types::Timestamp,
        now: Duration,
        rng: &mut impl Rng,
    ) -> Option<dp::WatchResponse> {
        let message = self.next(target, server_time, now, rng)?;
        self.heartbeat_at = now + spread(self.settings.heartbeat, rng);
        Some(dp::WatchResponse { message: Some(message) })
    }

    fn next(
        &mut self,
        target: &Target,
        server_time: prost_types::Timestamp,
        now: Duration,
        rng: &mut impl Rng,
    ) -> Option<Message> {
        if self.over {
            return None;
        }
        if let Some(welcome) = self.welcome.take() {
            return Some(Message::Welcome(welcome));
        }
        if let Some(chunk) = self.next_chunk(server_time) {
            return Some(chunk);
        }
        if self.flight.is_none() {
            if now >= self.ends_at {
                self.over = true;
                let reconnect_after = Some(duration_ref(Duration::from_millis(rng.random_range(0..1000))));
                return Some(Message::Goodbye(dp::Goodbye {
                    reconnect_after,
                    why: "session age".to_owned(),
                }));
            }
            if let Some(frame) = self.frame(target, server_time, now) {
                return Some(frame);
            }
        }
        (now >= self.heartbeat_at).then(|| self.checkpoint(server_time))
    }

    /// A frame that brings the proxy what it should have, if it lacks anything.
    fn frame(&mut self, target: &Target, time: prost_types::Timestamp, now: Duration) -> Option<Message> {
        if !self.synced || self.epoch != target.epoch {
            return self.snapshot(target, time);
        }
        let last = self.acked.as_ref().map_or(0, |p| p.revision);
        if target.revision.0 < last {
            // Another replica's past; ours will catch up.
            return None;
        }
        let delta = self.sent.diff(&target.items);
        // Nothing new for this proxy: it learns of the revision with the next heartbeat.
        if delta.is_empty() && (target.revision.0 == last || now < self.heartbeat_at) {
            return None;
        }
        let mut update = delta.to_update();
        if update.encoded_len() > MAX_FRAME {
            return self.snapshot(target, time);
        }
        let keys = delta.items().filter_map(|i| i.key()).chain(delta.removed.iter().cloned()).collect();
        self.frames += 1;
        let flight = Flight { frame: self.frames, revision: target.revision, keys: Some(keys), chunks: None };
        update.frame = self.frames;
        update.position = Some(position(target));
        update.allow_empty = target.items.channel_count() == 0;
        update.server_time = Some(time);
        self.sent = target.items.clone();
        self.flight = Some(flight);
        Some(Message::Update(update))
    }

    fn snapshot(&mut self, target: &Target, time: prost_types::Timestamp) -> Option<Message> {
        // Empty by a change of the epoch the proxy comes from, or because somebody says so.
        let empty = target.items.channel_count() == 0;
        let allow_empty = empty && (target.allow_empty || self.epoch == target.epoch);
        self.frames += 1;
        let chunks = Chunks::new(self.frames, position(target), &target.items, allow_empty);
        self.flight =
            Some(Flight { frame: self.frames, revision: target.revision, keys: None, chunks: Some(chunks) });
        self.sent = target.items.clone();
        self.epoch = target.epoch.clone();
        self.synced = true;
        self.next_chunk(time)
    }

    fn next_chunk(&mut self, time: prost_types::Timestamp) -> Option<Message> {
        let flight = self.flight.as_mut()?;
        let (chunk, last) = flight.chunks.as_mut()?.next(time)?;
        if last {
            flight.chunks = None;
        }
        Some(Message::Snapshot(chunk))
    }

    fn checkpoint(&self, server_time: prost_types::Timestamp) -> Message {
        Message::Checkpoint(dp::Checkpoint { position: self.acked.clone(), server_time: Some(server_time) })
    }

    /// A message of the proxy.
    ///
    /// # Errors
    /// It broke the protocol.
    pub fn received(&mut self, message: dp::WatchRequest, now: Duration) -> Result<Received, ProtocolError> {
        match message.message.ok_or(ProtocolError("an empty message"))? {
            Request::Hello(_) => Err(ProtocolError("a second hello")),
            Request::Ack(ack) => self.acknowledged(ack),
            Request::Resync(resync) => {
                if self.resync.is_some_and(|at| now.saturating_sub(at) < RESYNC_INTERVAL) {
                    return Ok(Received::ResyncTooSoon);
                }
                self.resync = Some(now);
                self.synced = false;
                Ok(Received::Resync(resync.why))
            }
        }
    }

    fn acknowledged(&mut self, ack: dp::Ack) -> Result<Received, ProtocolError> {
        let whole = |flight: &Flight| flight.frame == ack.frame && flight.chunks.is_none();
        let Some(flight) = self.flight.take_if(|flight| whole(flight)) else {
            return Err(ProtocolError("an ack of a frame that is not in flight"));
        };
        self.rejected.settle(flight.keys, ack.rejections.clone(), &self.sent);
        let digest = self.rejected.digest_of(&self.sent);
        self.acked =
            Some(dp::Position { epoch: self.epoch.to_string(), revision: flight.revision.0, digest });
        Ok(Received::Acked { applied: ack.applied.unwrap_or_default(), rejections: ack.rejections })
    }

    /// When to call [`poll`](Self::poll) at the latest.
    pub fn deadline(&self) -> Duration {
        self.heartbeat_at.min(if self.flight.is_none() { self.ends_at } else { Duration::MAX })
    }

    /// Whether a `Goodbye` was sent: end the stream.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// What the proxy acknowledged, or resumed from.
    pub fn applied(&self) -> Option<&dp::Position> {
        self.acked.as_ref()
    }

    /// What the proxy could not use, as of now.
    pub fn rejections(&self) -> Vec<dp::Rejection> {
        self.rejected.iter().cloned().collect()
    }

    /// The orderly end on shutdown; nothing may follow it.
    pub fn goodbye(&mut self, why: &str, reconnect_after: Duration) -> dp::WatchResponse {
        self.over = true;
        let goodbye =
            dp::Goodbye { reconnect_after: Some(duration_ref(reconnect_after)), why: why.to_owned() };
        dp::WatchResponse { message: Some(Message::Goodbye(goodbye)) }
    }
}

fn position(target: &Target) -> dp::Position {
    dp::Position {
        epoch: target.epoch.to_string(),
        revision: target.revision.0,
        digest: target.items.digest(),
    }
}

/// +-10 %, so that a fleet does not beat as one.
fn spread(duration: Duration, rng: &mut impl Rng) -> Duration {
    duration.mul_f64(rng.random_range(0.9..=1.1))
}
