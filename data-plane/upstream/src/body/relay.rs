//! A committed body that is not looked into: audio, images, and what was too big to hold.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::SizeHint;
use spareline_core::classify::{Evidence, Limit, Transport, Verdict};
use spareline_core::commit::Usage;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{BodyError, End, Ending};
use crate::budget::Reservation;
use crate::judge::Facts;
use crate::source::Source;

pub(crate) struct Relay {
    held: VecDeque<Bytes>,
    reservation: Option<Reservation>,
    source: Source,
    /// When `response_timeout` is over.
    deadline: Instant,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    waiting_since: Option<Instant>,
    facts: Arc<Facts>,
    bytes: u64,
    ended: Option<End>,
    _permit: OwnedSemaphorePermit,
}

impl Relay {
    pub(crate) fn new(
        held: VecDeque<Bytes>,
        reservation: Reservation,
        source: Source,
        (deadline, idle): (Instant, Duration),
        facts: Arc<Facts>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let bytes = held.iter().map(|bytes| bytes.len() as u64).sum();
        let timer = Box::pin(sleep_until(deadline));
        Self {
            held,
            reservation: Some(reservation),
            source,
            deadline,
            idle,
            timer,
            waiting_since: None,
            facts,
            bytes,
            ended: None,
            _permit: permit,
        }
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(bytes) = self.held.pop_front() {
            if self.held.is_empty() {
                self.reservation = None;
            }
            return Poll::Ready(Some(Ok(bytes)));
        }
        match self.source.poll_next(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.bytes += bytes.len() as u64;
                self.waiting_since = None;
                Poll::Ready(Some(Ok(bytes)))
            }
            Poll::Ready(None) => {
                self.end(Ending::Complete, None, None);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => {
                let verdict = self.facts.judge(Evidence::Transport(Transport::Reset { sent: true }));
                self.end(Ending::Broken, None, Some(verdict));
                Poll::Ready(Some(Err(BodyError)))
            }
            Poll::Pending => {
                let since = *self.waiting_since.get_or_insert_with(Instant::now);
                let idle_at = since + self.idle;
                let (limit, at) = if self.deadline <= idle_at {
                    (Limit::Response, self.deadline)
                } else {
                    (Limit::Idle, idle_at)
                };
                if self.timer.deadline() != at {
                    self.timer.as_mut().reset(at);
                }
                std::task::ready!(self.timer.as_mut().poll(cx));
                let verdict = self.facts.judge(Evidence::Transport(Transport::Timeout(limit)));
                self.end(Ending::Stalled, Some(limit), Some(verdict));
                Poll::Ready(Some(Err(BodyError)))
            }
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let held: u64 = self.held.iter().map(|bytes| bytes.len() as u64).sum();
        match self.source.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(held + rest),
            None => SizeHint::default(),
        }
    }

    pub(super) fn ended(&mut self) -> Option<End> {
        self.ended.take()
    }

    pub(super) fn left(&mut self) -> End {
        self.end(Ending::CallerLeft, None, None);
        self.ended.take().unwrap_or_else(|| End::whole(0, Usage::default()))
    }

    fn end(&mut self, ending: Ending, limit: Option<Limit>, verdict: Option<Box<Verdict>>) {
        self.ended = Some(End {
            ending,
            verdict,
            limit,
            usage: Usage::default(),
            finish: None,
            bytes: self.bytes,
            events: 0,
        });
    }
}
