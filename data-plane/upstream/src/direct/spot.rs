//! Connections to one host that nobody uses just now.
//!
//! Invariants: what lies here has finished its last answer and was not closed by the other end when it was last looked
//! at; nothing lies here longer than `idle`, give or take a second; a connection that its other end closed goes within
//! a second.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::tap::{Loan, Tap};

/// How often what lies here is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A connection: the end that takes requests, and the one that does the work whenever it is polled.
pub(super) struct Wire {
    pub(super) sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<Connection<TokioIo<Tap>, Full<Bytes>>>>,
    /// The driver's socket.
    pub(super) loan: Loan,
    /// The driver is done, and must not be polled again.
    over: bool,
}

impl Wire {
    pub(super) fn new(
        sender: SendRequest<Full<Bytes>>,
        driver: Connection<TokioIo<Tap>, Full<Bytes>>,
        loan: Loan,
    ) -> Self {
        Self { sender, driver: Box::pin(driver), loan, over: false }
    }

    /// Reads and writes what can be; answers whether there will be more to do.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        // What went wrong is told to whoever waits for the answer or the body.
        self.over = self.over || self.driver.as_mut().poll(cx).is_ready();
        !self.over
    }

    /// Whether it can take a request now.
    pub(super) fn is_idle(&mut self) -> bool {
        if self.over || self.sender.is_closed() {
            return false;
        }
        self.sender.is_ready() || (self.look() && self.sender.is_ready())
    }

    /// Looks whether the other end has closed it.
    fn look(&mut self) -> bool {
        // Nobody is to be woken: the next look comes, or the next request.
        self.drive(&mut Context::from_waker(Waker::noop()))
    }
}

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
    waiting: Vec<(Wire, Instant)>,
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
    pub(super) fn take(&self) -> Option<Wire> {
        if self.max_idle == 0 {
            return None;
        }
        let now = Instant::now();
        let mut state = self.lock();
        while let Some((mut wire, since)) = state.waiting.pop() {
            if now.duration_since(since) < self.idle && wire.look() && wire.sender.is_ready() {
                return Some(wire);
            }
        }
        None
    }

    /// Gives one back; it is closed where there are enough.
    pub(super) fn put(self: &Arc<Self>, wire: Wire) {
        let mut state = self.lock();
        if state.waiting.len() >= self.max_idle {
            return;
        }
        // Outside of a runtime, as when one is shut down, nobody could look after it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        state.waiting.push((wire, Instant::now()));
        if !std::mem::replace(&mut state.watched, true) {
            runtime.spawn(watch(Arc::downgrade(self)));
        }
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
        state.waiting.retain_mut(|(wire, since)| now.duration_since(*since) < spot.idle && wire.look());
        if state.waiting.is_empty() {
            state.waiting = Vec::new();
            state.watched = false;
            return;
        }
    }
}
