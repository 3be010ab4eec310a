//! Which proxies have a session here, and what they said they serve.
//!
//! The sessions are kept in memory and written to the database once a second, all in one batch, for the other replicas
//! and for whoever asks later. Nothing here is waited for by a session: a lost database only delays the rows. Rows of
//! open sessions are refreshed so often that a reader can tell a live one (seen within 35 s) from a dead replica's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spareline_proto::dataplane::v1 as dp;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::store::{ProxyRow, Store, StoreError};
use crate::world::GroupSet;

/// How often what changed is written.
const WRITE: Duration = Duration::from_secs(1);
/// How often an open session is written although nothing changed.
const REFRESH: Duration = Duration::from_secs(10);
/// Two instances with one proxy id for so long are two proxies, not a restart.
const DUPLICATE_AFTER: Duration = Duration::from_secs(40);
/// Proxies not seen for so long are forgotten.
const FORGET: Duration = Duration::from_secs(7 * 24 * 3600);

/// The sessions of this replica. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Presence(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    replica_id: String,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<Uuid, Session>,
    ended: Vec<Uuid>,
    openings: u64,
}

#[derive(Debug)]
struct Session {
    node: Arc<dp::Node>,
    groups: GroupSet,
    applied: Option<dp::Position>,
    rejections: Arc<[dp::Rejection]>,
    /// The revision up to which it is known to serve what it should.
    agrees_at: Option<i64>,
    opened: u64,
    opened_at: Instant,
    written: Option<Instant>,
    dirty: bool,
    warned: bool,
    superseded: CancellationToken,
}

/// One open session, for readers.
#[derive(Clone, Debug)]
pub struct LocalSession {
    /// Its id.
    pub session_id: Uuid,
    /// As the proxy introduced itself.
    pub node: Arc<dp::Node>,
    /// The groups it serves.
    pub groups: GroupSet,
    /// What it last said it serves.
    pub applied: Option<dp::Position>,
    /// Items it refuses.
    pub rejections: Arc<[dp::Rejection]>,
    /// The revision up to which it served exactly what it should, when it last said so.
    pub agrees_at: Option<i64>,
    /// Order of opening.
    pub opened: u64,
}

/// Keeps a session listed; dropping it ends the session.
#[derive(Debug)]
pub struct Guard {
    presence: Presence,
    session_id: Uuid,
    superseded: CancellationToken,
}

// === impl Presence ===

impl Presence {
    /// No sessions yet.
    pub fn new(replica_id: impl Into<String>) -> Self {
        let (changed, _) = watch::channel(0);
        Self(Arc::new(Shared { replica_id: replica_id.into(), state: Mutex::default(), changed }))
    }

    /// This replica's name.
    pub fn replica_id(&self) -> &str {
        &self.0.replica_id
    }

    /// Lists a session. An older one of the same process of the same proxy is a ghost, and is told to end.
    pub fn open(
        &self,
        session_id: Uuid,
        node: dp::Node,
        groups: GroupSet,
        held: Option<dp::Position>,
    ) -> Guard {
        let superseded = CancellationToken::new();
        let mut state = self.locked();
        for session in state.sessions.values() {
            if session.node.proxy_id == node.proxy_id && session.node.instance_id == node.instance_id {
                session.superseded.cancel();
            }
        }
        state.openings += 1;
        let session = Session {
            node: Arc::new(node),
            groups,
            applied: held,
            rejections: Arc::default(),
            agrees_at: None,
            opened: state.openings,
            opened_at: Instant::now(),
            written: None,
            dirty: true,
            warned: false,
            superseded: superseded.clone(),
        };
        state.sessions.insert(session_id, session);
        drop(state);
        self.changed();
        Guard { presence: self.clone(), session_id, superseded }
    }

    /// All open sessions.
    pub fn sessions(&self) -> Vec<LocalSession> {
        let state = self.locked();
        let session = |(id, s): (&Uuid, &Session)| LocalSession {
            session_id: *id,
            node: s.node.clone(),
            groups: s.groups.clone(),
            applied: s.applied.clone(),
            rejections: s.rejections.clone(),
            agrees_at: s.agrees_at,
            opened: s.opened,
        };
        state.sessions.iter().map(session).collect()
    }

    /// Changes whenever a session opens, answers or ends.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Writes positions to the database until `stop`, and once more after it.
    pub async fn run(self, store: Store, stop: CancellationToken) {
        let mut tick = tokio::time::interval(WRITE);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut forget_at = Instant::now() + REFRESH;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.cancelled() => break,
            }
            self.write(&store).await;
            if Instant::now() >= forget_at {
                forget_at = Instant::now() + Duration::from_secs(3600);
                if let Err(error) = Store::bounded(store.forget_proxies(FORGET)).await {
                    tracing::debug!(event = "forget_proxies_failed", error = %error);
                }
            }
        }
        self.write(&store).await;
    }

    /// Writes what changed since the last time. What cannot be written stays for the next time.
    async fn write(&self, store: &Store) {
        let ended = std::mem::take(&mut self.locked().ended);
        if !ended.is_empty()
            && let Err(error) = Store::bounded(store.end_sessions(&ended)).await
        {
            tracing::debug!(event = "positions_not_written", error = %error);
            self.locked().ended.extend(ended);
            return;
        }
        let (new, known): (Vec<_>, Vec<_>) = self.due(Instant::now()).into_iter().partition(|(_, new)| *new);
        let new: Vec<_> = new.into_iter().map(|(row, _)| row).collect();
        let known: Vec<_> = known.into_iter().map(|(row, _)| row).collect();
        if let Err(error) = Store::bounded(store.open_sessions(&new)).await {
            return self.not_written(&error, &new, &known);
        }
        if known.is_empty() {
            return;
        }
        match Store::bounded(store.put_proxies(&known)).await {
            Ok(elsewhere) if elsewhere.is_empty() => {}
            Ok(elsewhere) => tracing::debug!(
                event = "proxy_elsewhere",
                proxy_ids = %elsewhere.join(","),
                "newer sessions of these proxies are open at another replica"
            ),
            Err(error) => self.not_written(&error, &[], &known),
        }
    }

    /// They are due again; a session whose first row it was still has to take it from whoever has it.
    fn not_written(&self, error: &StoreError, new: &[ProxyRow], known: &[ProxyRow]) {
        tracing::debug!(event = "positions_not_written", error = %error);
        let mut state = self.locked();
        for (row, first) in new.iter().map(|row| (row, true)).chain(known.iter().map(|row| (row, false))) {
            if let Some(session) = row.session_id.and_then(|id| state.sessions.get_mut(&id)) {
                session.dirty = true;
                if first {
                    session.written = None;
                }
            }
        }
    }

    /// The rows to write now, and whether each is a session's first; where one proxy id has several sessions, the
    /// newest stands for it.
    fn due(&self, now: Instant) -> Vec<(ProxyRow, bool)> {
        let mut state = self.locked();
        let mut newest: HashMap<String, (u64, Arc<dp::Node>)> = HashMap::new();
        for session in state.sessions.values() {
            let entry = newest.entry(session.node.proxy_id.clone());
            let entry = entry.or_insert((session.opened, session.node.clone()));
            if entry.0 < session.opened {
                *entry = (session.opened, session.node.clone());
            }
        }
        let mut rows = Vec::new();
        for (id, session) in &mut state.sessions {
            let Some((opened, node)) = newest.get(&session.node.proxy_id) else { continue };
            if *opened != session.opened {
                warn_duplicate(session, node, now);
                continue;
            }
            if session.dirty || session.written.is_none_or(|at| now - at >= REFRESH) {
                session.dirty = false;
                let new = session.written.replace(now).is_none();
                let row = ProxyRow {
                    node: (*session.node).clone(),
                    session_id: Some(*id),
                    replica_id: self.0.replica_id.clone(),
                    applied: session.applied.clone(),
                    rejections: session.rejections.to_vec(),
                    last_seen_at: OffsetDateTime::UNIX_EPOCH,
                };
                rows.push((row, new));
            }
        }
        rows
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.0.changed.send_modify(|n| *n = n.wrapping_add(1));
    }
}

/// A restart leaves the old session behind for a moment; two that live on are two proxies with one name.
fn warn_duplicate(session: &mut Session, other: &dp::Node, now: Instant) {
    if session.warned || now - session.opened_at < DUPLICATE_AFTER || session.superseded.is_cancelled() {
        return;
    }
    session.warned = true;
    tracing::warn!(
        event = "duplicate_proxy_id",
        proxy_id = %other.proxy_id,
        instance_id = %session.node.instance_id,
        other_instance_id = %other.instance_id,
        "two live proxies call themselves {}: give each its own proxy id", other.proxy_id
    );
}

// === impl Guard ===

impl Guard {
    /// What the proxy now serves. `agrees_at`: the revision for which that is exactly what it should serve.
    pub fn acked(&self, applied: dp::Position, rejections: &[dp::Rejection], agrees_at: Option<i64>) {
        let mut state = self.presence.locked();
        if let Some(session) = state.sessions.get_mut(&self.session_id) {
            session.applied = Some(applied);
            session.agrees_at = agrees_at.or(session.agrees_at);
            if *session.rejections != *rejections {
                session.rejections = rejections.into();
            }
            session.dirty = true;
        }
        drop(state);
        self.presence.changed();
    }

    /// Resolves when a newer session of the same process is open.
    pub async fn superseded(&self) {
        self.superseded.cancelled().await;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut state = self.presence.locked();
        state.sessions.remove(&self.session_id);
        state.ended.push(self.session_id);
        drop(state);
        self.presence.changed();
    }
}

#[cfg(test)]
mod tests;
