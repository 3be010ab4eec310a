//! The one limit that runs at a time in phase one.

use std::pin::Pin;
use std::time::Duration;

use spareline_core::classify::Limit;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Limits;

pub(super) struct Timer {
    sleep: Pin<Box<Sleep>>,
    limit: Limit,
    /// When the request's deadline is over; zero duration of the limit means it is over too.
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
        let mut timer = Self { sleep: Box::pin(sleep_until(started)), limit, deadline };
        timer.arm(started, limit, wait);
        timer
    }

    /// Another limit from `from` on; the deadline stays.
    pub(super) fn arm(&mut self, from: Instant, limit: Limit, wait: Duration) {
        let at = from.checked_add(wait).unwrap_or_else(|| from + Duration::from_secs(86_400 * 365));
        let (limit, at) = match self.deadline {
            Some(deadline) if deadline < at => (Limit::Deadline, deadline),
            _ => (limit, at),
        };
        self.limit = limit;
        self.sleep.as_mut().reset(at);
    }

    /// When it fires.
    pub(super) fn at(&self) -> Instant {
        self.sleep.deadline()
    }

    /// What comes first: the future's output, or the limit that fired.
    pub(super) async fn run<F: Future>(&mut self, future: F) -> Result<F::Output, Limit> {
        tokio::select! {
            biased;
            output = future => Ok(output),
            () = self.sleep.as_mut() => Err(self.limit),
        }
    }
}
