//! Connections to one host that nobody uses just now.
//!
//! Invariants: what lies here has finished its last answer and was not closed by the other end when it was last looked
//! at; nothing lies here longer than `idle`, give or take a second; a connection that its other end closed goes within
//! a second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::wire::Wire;

/// How often what lies here is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Idle connections to one host.
#[derive(Debug)]
pub(crate) struct Spot {
    idle: Duration,
    max_idle: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last one in is the first one out.
    waiting: Vec<(Box<Wire>, Instant)>,
    /// A task looks after them.
    watched: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl Spot {
    pub(super) fn new(idle: Duration, max_idle: usize) -> Self {
        Self { idle, max_idle, state: Mutex::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// One that is alive, as far as can be seen from here.
    pub(super) fn take(&self) -> Option<Box<Wire>> {
        if self.max_idle == 0 {
            return None;
        }
        let now = Instant::now();
        let mut state = self.lock();
        while let Some((wire, since)) = state.waiting.pop() {
            if now.duration_since(since) < self.idle && wire.is_quiet() {
                return Some(wire);
            }
        }
        None
    }

    /// Gives one back; it is closed where there are enough.
    pub(super) fn put(self: &Arc<Self>, wire: Box<Wire>) {
        let mut state = self.lock();
        if state.waiting.len() >= self.max_idle {
            return;
        }
        if !state.watched {
            // Outside of a runtime, as when one is shut down, nobody could look after it.
            let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
            state.watched = true;
            runtime.spawn(watch(Arc::downgrade(self)));
        }
        state.waiting.push((wire, Instant::now()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what is closed at its other end, and what has lain for too long; ends with the last one.
async fn watch(spot: Weak<Spot>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(spot) = spot.upgrade() else { return };
        let now = Instant::now();
        let mut state = spot.lock();
        state.waiting.retain(|(wire, since)| now.duration_since(*since) < spot.idle && wire.is_quiet());
        if state.waiting.is_empty() {
            state.waiting = Vec::new();
            state.watched = false;
            return;
        }
    }
}
