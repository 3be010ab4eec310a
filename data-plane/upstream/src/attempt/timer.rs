//! The one limit that runs at a time in phase one.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use spareline_core::classify::Limit;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Limits;

pub(super) struct Timer {
    sleep: Pin<Box<Sleep>>,
    limit: Limit,
    /// When the request's deadline is over.
    deadline: Option<Instant>,
}

impl Timer {
    /// From the start of the attempt.
    pub(super) fn phase_one(started: Instant, limits: &Limits, stream: bool) -> Self {
        let (limit, wait) = match limits.first_content {
            Some(wait) if stream => (Limit::FirstContent, wait),
            _ => (Limit::Response, limits.response),
        };
        let deadline = limits.deadline.and_then(|left| started.checked_add(left));
        let (limit, at) = first(deadline, started, limit, wait);
        Self { sleep: Box::pin(sleep_until(at)), limit, deadline }
    }

    /// Another limit from `from` on; the deadline stays.
    pub(super) fn arm(&mut self, from: Instant, limit: Limit, wait: Duration) {
        let (limit, at) = first(self.deadline, from, limit, wait);
        self.limit = limit;
        self.sleep.as_mut().reset(at);
    }

    /// What comes first: the future's output, or the limit that fired. The future is pinned by the caller: taken by value
    /// it would lie in the caller's own future three times over.
    pub(super) async fn run<F: Future>(&mut self, mut future: Pin<&mut F>) -> Result<F::Output, Limit> {
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.sleep.as_mut().poll(cx).map(|()| Err(self.limit)),
        })
        .await
    }
}

/// What fires first: a limit, or the request's deadline.
fn first(deadline: Option<Instant>, from: Instant, limit: Limit, wait: Duration) -> (Limit, Instant) {
    let at = from.checked_add(wait).unwrap_or_else(|| from + Duration::from_secs(86_400 * 365));
    match deadline {
        Some(deadline) if deadline < at => (Limit::Deadline, deadline),
        _ => (limit, at),
    }
}
