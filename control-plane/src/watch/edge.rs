//! One session's task: moves messages between the transport, the sans-I/O session and the world.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spareline_core::Revision;
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::dataplane::v1::watch_request::Message as Said;
use spareline_proto::dataplane::v1::watch_response::Message;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};
use uuid::Uuid;

use super::session::{Open, Received, ServerSession, Target};
use super::{Guard, Inner};
use crate::metrics::Metrics;
use crate::refuse::refused;
use crate::store::{MAX_NAME, Store};
use crate::world::{GroupSet, Viewer, World};

/// How long a client may take to say hello.
const HELLO: Duration = Duration::from_secs(10);
/// How long a session waits for the first world.
const FIRST_WORLD: Duration = Duration::from_secs(5);
/// How long a proxy that is ahead of us is kept waiting.
const AHEAD: Duration = Duration::from_secs(2);
/// How long a Goodbye may take to leave.
const GOODBYE: Duration = Duration::from_secs(1);
/// How long a snapshot keeps others waiting.
const SNAPSHOT_TURN: Duration = Duration::from_secs(5);
/// Most labels, groups or features.
const MAX_LIST: usize = 256;

type Sender = mpsc::Sender<Result<dp::WatchResponse, Status>>;

/// Runs one session to its end.
pub(super) async fn run(inner: Arc<Inner>, inbound: Streaming<dp::WatchRequest>, sender: Sender) {
    if let Err(status) = serve(&inner, inbound, &sender).await {
        tracing::debug!(event = "watch_refused", code = ?status.code(), message = status.message());
        let _ = tokio::time::timeout(GOODBYE, sender.send(Err(status))).await;
    }
}

async fn serve(
    inner: &Inner,
    mut inbound: Streaming<dp::WatchRequest>,
    sender: &Sender,
) -> Result<(), Status> {
    let opening = async {
        let hello = hello(&mut inbound).await?;
        open(inner, hello).await
    };
    let (session, session_id, groups, world) = tokio::select! {
        opened = opening => opened?,
        () = inner.stop.cancelled() => return Err(Status::unavailable("shutting down")),
        () = sender.closed() => return Ok(()),
    };
    let node = session.node().clone();
    let held = session.applied().cloned();
    tracing::info!(
        event = "watch_opened",
        session_id = %session_id,
        proxy_id = %node.proxy_id,
        instance_id = %node.instance_id,
        build = %node.build,
        "proxy {} watches", node.proxy_id
    );
    let _counted = Counted::new(inner);
    let guard = inner.presence.open(session_id, node.clone(), groups.clone(), held);
    let opened = Instant::now();
    let mut edge = Edge {
        inner,
        target: target(inner, &node, &groups, &world),
        worlds: inner.worlds.since(&world),
        groups,
        session,
        guard,
        inbound: Some(inbound),
        sent: None,
        wants_snapshot: false,
        turn: None,
    };
    let result = edge.drive(sender).await;
    tracing::info!(
        event = "watch_closed",
        session_id = %session_id,
        proxy_id = %node.proxy_id,
        age_ms = u64::try_from(opened.elapsed().as_millis()).unwrap_or(u64::MAX),
        why = match &result { Ok(why) => *why, Err(status) => status.message() },
        "proxy {} no longer watches", node.proxy_id
    );
    result.map(|_| ())
}

/// The first message.
async fn hello(inbound: &mut Streaming<dp::WatchRequest>) -> Result<dp::Hello, Status> {
    let first = tokio::time::timeout(HELLO, inbound.message())
        .await
        .map_err(|_| Status::deadline_exceeded("the first message, hello, did not come within 10 s"))?;
    let said = first.map_err(|status| garbage(&status))?.and_then(|request| request.message);
    let Some(Said::Hello(hello)) = said else {
        return Err(Status::invalid_argument("the first message must be hello"));
    };
    let node = hello.node.as_ref().ok_or_else(|| Status::invalid_argument("hello.node is required"))?;
    for (field, name) in [("proxy_id", &node.proxy_id), ("instance_id", &node.instance_id)] {
        if name.is_empty() || name.len() > MAX_NAME {
            let problem = format!("hello.node.{field} must have 1 to {MAX_NAME} bytes");
            return Err(Status::invalid_argument(problem));
        }
    }
    check_node(node).map_err(Status::invalid_argument)?;
    Ok(hello)
}

/// What goes into the table of proxies must fit there: one that does not would hold up everybody's position.
fn check_node(node: &dp::Node) -> Result<(), &'static str> {
    let labels = node.labels.iter().flat_map(|(name, value)| [name, value]);
    let names = node.groups.iter().chain(&node.features).chain(labels);
    let mut all = names.chain([&node.proxy_id, &node.instance_id, &node.build]);
    if node.labels.len() > MAX_LIST || node.groups.len() > MAX_LIST || node.features.len() > MAX_LIST {
        return Err("hello.node may have at most 256 labels, groups and features each");
    }
    if all.any(|name| name.len() > MAX_NAME || name.contains('\0')) {
        return Err("hello.node: no text may be longer than 256 bytes or hold a NUL");
    }
    Ok(())
}

async fn open(
    inner: &Inner,
    hello: dp::Hello,
) -> Result<(Box<ServerSession>, Uuid, GroupSet, Arc<World>), Status> {
    let ready = tokio::time::timeout(FIRST_WORLD, inner.worlds.ready()).await;
    let Ok(Some(mut world)) = ready else {
        return Err(Status::unavailable("this replica has not loaded the registry yet"));
    };
    let node = hello.node.clone().unwrap_or_default();
    let node = &node;
    let groups = GroupSet::new(&node.groups);
    let session_id = Uuid::now_v7();
    let mut waited = false;
    loop {
        let target = target(inner, node, &groups, &world);
        let now = inner.started.elapsed();
        let id = session_id.to_string();
        // The generator is a thread's: it must be gone before the next await.
        let opened = ServerSession::open(hello.clone(), &target, &inner.settings, id, now, &mut rand::rng());
        match opened {
            Open::Session(session) => return Ok((session, session_id, groups, world)),
            Open::Refused(why) => return Err(Status::invalid_argument(why)),
            Open::Ahead if waited => return Err(Status::unavailable("this replica is behind: try again")),
            Open::Ahead => {
                let held = hello.held.as_ref().map_or(0, |held| held.revision);
                world = catch_up(inner, &world, held).await?;
                waited = true;
            }
        }
    }
}

/// The proxy holds more than this replica has seen: another replica was quicker, or history went back.
async fn catch_up(inner: &Inner, world: &World, held: i64) -> Result<Arc<World>, Status> {
    let head = Store::bounded(inner.store.head()).await.map_err(crate::refuse::of_store)?;
    if head.epoch.to_string() == *world.epoch && head.revision < held {
        inner.worlds.metrics().history_lost.set(1);
        tracing::error!(
            event = "history_lost",
            head_revision = head.revision,
            held_revision = held,
            epoch = %world.epoch,
            "a proxy holds revision {held}, the database ends at {}: run `spareline-control new-epoch` once it \
             holds what you want",
            head.revision
        );
        let message = format!(
            "the registry's history ends at revision {}, before the {held} held: it was restored or lost commits; \
             keep serving, an operator has to run `spareline-control new-epoch`",
            head.revision
        );
        return Err(refused(Code::FailedPrecondition, "history_lost", message));
    }
    let world = inner.worlds.at_least(Revision(held), AHEAD).await;
    world.ok_or_else(|| Status::unavailable("this replica is behind: try again"))
}

fn target(inner: &Inner, node: &dp::Node, groups: &GroupSet, world: &World) -> Target {
    let viewer = Viewer { groups, proxy_id: &node.proxy_id, labels: &node.labels };
    Target {
        epoch: world.epoch.clone(),
        revision: world.revision,
        items: inner.worlds.view(&viewer, world),
        allow_empty: world.had_channels,
    }
}

/// An open session, among the metrics.
struct Counted<'a>(&'a Metrics);

impl<'a> Counted<'a> {
    fn new(inner: &'a Inner) -> Self {
        let metrics = inner.worlds.metrics();
        metrics.watch_sessions.inc();
        metrics.watches.inc();
        Self(metrics)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.watch_sessions.dec();
    }
}

struct Edge<'a> {
    inner: &'a Inner,
    session: Box<ServerSession>,
    groups: GroupSet,
    target: Target,
    worlds: watch::Receiver<Option<Arc<World>>>,
    guard: Guard,
    /// `None` once the client has half-closed: it listens, but answers no more.
    inbound: Option<Streaming<dp::WatchRequest>>,
    /// Where the frame last sent leads.
    sent: Option<dp::Position>,
    /// A snapshot may be next, which needs a turn.
    wants_snapshot: bool,
    turn: Option<(OwnedSemaphorePermit, Instant)>,
}

impl Edge<'_> {
    /// Until the end; says why it ended.
    async fn drive(&mut self, sender: &Sender) -> Result<&'static str, Status> {
        let stop = self.inner.stop.clone();
        // Whether the session may have something to say.
        let mut eager = true;
        loop {
            let deadline = self.inner.started + self.session.deadline();
            let needs_turn = eager && self.wants_snapshot && self.turn.is_none();
            tokio::select! {
                biased;
                () = sender.closed() => return Ok("the proxy left"),
                () = stop.cancelled() => {
                    self.goodbye(sender, "shutting down").await;
                    return Ok("shutting down");
                }
                () = self.guard.superseded() => {
                    self.goodbye(sender, "a newer session of this proxy is open").await;
                    return Ok("superseded");
                }
                said = next(&mut self.inbound) => match said {
                    Ok(Some(request)) => {
                        self.received(request)?;
                        eager = true;
                    }
                    Ok(None) => self.inbound = None,
                    Err(status) => return Err(garbage(&status)),
                },
                changed = self.worlds.changed() => {
                    if changed.is_err() {
                        return Err(Status::unavailable("shutting down"));
                    }
                    let world = self.worlds.borrow_and_update().clone();
                    if let Some(world) = world {
                        self.target = target(self.inner, self.session.node(), &self.groups, &world);
                    }
                    eager = true;
                }
                () = tokio::time::sleep_until(deadline), if !eager => eager = true,
                permit = self.inner.snapshots.clone().acquire_owned(), if needs_turn => {
                    self.turn = permit.ok().map(|permit| (permit, Instant::now() + SNAPSHOT_TURN));
                }
                () = turn_over(&self.turn), if self.turn.is_some() => {
                    self.turn = None;
                    self.wants_snapshot = false;
                }
                slot = sender.reserve(), if eager && !needs_turn => {
                    let Ok(slot) = slot else { return Ok("the proxy left") };
                    match self.poll() {
                        Some(message) => slot.send(Ok(message)),
                        None => eager = false,
                    }
                    if self.session.is_over() {
                        return Ok("asked to reconnect");
                    }
                }
            }
        }
    }

    fn poll(&mut self) -> Option<dp::WatchResponse> {
        let now = self.inner.started.elapsed();
        let clock = prost_types::Timestamp::from(SystemTime::now());
        let message = self.session.poll(&self.target, clock, now, &mut rand::rng())?;
        match &message.message {
            Some(Message::Welcome(welcome)) => self.wants_snapshot = !welcome.resumed,
            Some(Message::Snapshot(chunk)) if chunk.last => {
                self.sent = chunk.position.clone();
                self.no_snapshot();
            }
            Some(Message::Update(update)) => self.sent = update.position.clone(),
            _ => {}
        }
        Some(message)
    }

    fn no_snapshot(&mut self) {
        self.wants_snapshot = false;
        self.turn = None;
    }

    fn received(&mut self, request: dp::WatchRequest) -> Result<(), Status> {
        let now = self.inner.started.elapsed();
        let received = self.session.received(request, now);
        match received.map_err(|error| Status::invalid_argument(error.to_string()))? {
            Received::Acked { applied, .. }
                if applied.epoch.len() > MAX_NAME || applied.epoch.contains('\0') =>
            {
                return Err(Status::invalid_argument("ack.applied.epoch is not an epoch"));
            }
            Received::Acked { applied, rejections } => {
                let node = self.session.node();
                for rejection in &rejections {
                    tracing::warn!(
                        event = "item_rejected",
                        proxy_id = %node.proxy_id,
                        item = ?rejection.item.as_ref().and_then(|item| item.kind.as_ref()),
                        version = rejection.version,
                        reason = %rejection.message,
                        "proxy {} cannot use an item and keeps what it had", node.proxy_id
                    );
                }
                let agrees = |p: &&dp::Position| p.epoch == applied.epoch && p.digest == applied.digest;
                let agrees_at = self.sent.as_ref().filter(agrees).map(|p| p.revision);
                self.guard.acked(applied, &self.session.rejections(), agrees_at);
            }
            Received::Resync(why) => {
                tracing::warn!(
                    event = "resync_asked",
                    proxy_id = %self.session.node().proxy_id,
                    why = %why,
                    "proxy {} asks for a snapshot", self.session.node().proxy_id
                );
                self.wants_snapshot = true;
            }
            Received::ResyncTooSoon => tracing::debug!(
                event = "resync_too_soon",
                proxy_id = %self.session.node().proxy_id,
            ),
        }
        Ok(())
    }

    /// The orderly end; a client that takes nothing is not waited for.
    async fn goodbye(&mut self, sender: &Sender, why: &str) {
        let message = self.session.goodbye(why, Duration::ZERO);
        let _ = tokio::time::timeout(GOODBYE, sender.send(Ok(message))).await;
    }
}

/// The proxy's next message; never, once it has half-closed.
async fn next(inbound: &mut Option<Streaming<dp::WatchRequest>>) -> Result<Option<dp::WatchRequest>, Status> {
    match inbound {
        Some(inbound) => inbound.message().await,
        None => std::future::pending().await,
    }
}

async fn turn_over(turn: &Option<(OwnedSemaphorePermit, Instant)>) {
    match turn {
        Some((_, until)) => tokio::time::sleep_until(*until).await,
        None => std::future::pending().await,
    }
}

/// What cannot be decoded is the client's fault, whatever the transport calls it.
fn garbage(status: &Status) -> Status {
    match status.code() {
        Code::Internal | Code::OutOfRange | Code::ResourceExhausted | Code::InvalidArgument => {
            Status::invalid_argument(format!("not a message of this service: {}", status.message()))
        }
        _ => status.clone(),
    }
}
