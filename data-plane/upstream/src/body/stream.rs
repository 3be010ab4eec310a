//! An event stream: held while it is judged, then passed on untouched, ended exactly once.
//!
//! The same scanner and judge see every byte once, before and after the commit. The bytes are not copied, except where the
//! extra usage chunk that only we asked for has to be taken out again.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use spareline_core::classify::{Evidence, Limit, StreamFault, Transport, Verdict};
use spareline_core::commit::{Judge, Step};
use spareline_core::sse::{Flow, Scanner};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{End, Ending};
use crate::budget::Reservation;
use crate::error_event::error_event;
use crate::judge::Facts;
use crate::source::Source;

/// After a finish reason (or an error event): how long more is waited for before the body ends all the same.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

pub(crate) struct StreamBody {
    pub(crate) source: Option<Source>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) judge: Judge,
    scanner: Scanner,
    /// Seen, not yet taken by the caller.
    held: VecDeque<Bytes>,
    reservation: Option<Reservation>,
    /// The usage chunk is ours alone: bytes of the event that is not yet complete.
    filter: Option<BytesMut>,
    /// The upstream's own error event.
    error: Option<Box<Verdict>>,
    /// That event came before any content.
    pub(crate) error_first: bool,
    cut: bool,
    bytes: u64,
    idle: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    waiting_since: Option<Instant>,
    closing: Option<(Ending, Option<Limit>, Option<Box<Verdict>>)>,
    ended: Option<End>,
    permit: Option<OwnedSemaphorePermit>,
}

impl StreamBody {
    pub(crate) fn new(
        source: Source,
        facts: Arc<Facts>,
        reservation: Reservation,
        idle: Duration,
        filter_usage: bool,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            source: Some(source),
            facts,
            judge: Judge::new(),
            scanner: Scanner::new(),
            held: VecDeque::new(),
            reservation: Some(reservation),
            filter: filter_usage.then(BytesMut::new),
            error: None,
            error_first: false,
            cut: false,
            bytes: 0,
            idle,
            timer: None,
            waiting_since: None,
            closing: None,
            ended: None,
            permit: Some(permit),
        }
    }

    // === before the commit ===

    /// The next bytes of the upstream.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, crate::source::Broken>> {
        match &mut self.source {
            Some(source) => source.next().await,
            None => None,
        }
    }

    /// Takes the budget for what is held; false where there is none left.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        self.reservation.as_mut().is_none_or(|reservation| reservation.grow(bytes))
    }

    /// Bytes seen so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is held, in one piece.
    pub(crate) fn held(&self) -> Bytes {
        let parts: Vec<&[u8]> = self.held.iter().map(|bytes| &bytes[..]).collect();
        Bytes::from(parts.concat())
    }

    /// The upstream's own error event.
    pub(crate) fn error(&mut self) -> Option<Box<Verdict>> {
        let closed = self.closing.as_mut().and_then(|(_, _, verdict)| verdict.take());
        self.error.take().or(closed)
    }

    pub(crate) fn saw_error(&self) -> bool {
        self.error.is_some() || matches!(self.closing, Some((Ending::ErrorEvent, ..)))
    }

    /// Whether the end is known already.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether it ended inside an event.
    pub(crate) fn cut_mid_event(&self) -> bool {
        self.cut
    }

    // === at any time ===

    /// Looks at a chunk and queues it for the caller.
    pub(crate) fn take(&mut self, chunk: Bytes) {
        self.bytes += chunk.len() as u64;
        if self.filter.is_some() {
            self.take_filtered(&chunk);
            return;
        }
        let (seen, last) = self.scan(&chunk, false);
        if !last {
            self.held.push_back(chunk);
            return;
        }
        // Line ends after the terminal event still belong to it; anything else would be a second answer.
        let blank = chunk[seen..].iter().all(|byte| matches!(byte, b'\n' | b'\r'));
        self.held.push_back(if blank { chunk } else { chunk.slice(..seen) });
        self.close_after_terminal();
    }

    /// As [`Self::take`], event by event, without those that hold nothing but counts.
    fn take_filtered(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while !rest.is_empty() {
            let before = self.judge.events();
            let (seen, last) = self.scan(rest, true);
            let (part, after) = rest.split_at(seen);
            rest = after;
            let pending = self.filter.get_or_insert_default();
            pending.extend_from_slice(part);
            let complete = last || self.judge.events() > before;
            if complete {
                let bytes = pending.split().freeze();
                if last || !self.judge.usage_only() {
                    self.held.push_back(bytes);
                }
            }
            if last {
                self.close_after_terminal();
                return;
            }
        }
    }

    /// Feeds the judge. Answers how much was looked at, and whether that ends with the terminal event.
    fn scan(&mut self, chunk: &[u8], one: bool) -> (usize, bool) {
        let Self { scanner, judge, facts, error, error_first, .. } = self;
        let context = facts.context();
        let mut last = false;
        let seen = scanner.push(chunk, |event| {
            let content = judge.content();
            match judge.event(event, &context) {
                Step::Terminal { .. } => last = true,
                Step::Error(verdict) => {
                    *error_first |= error.is_none() && !content;
                    error.get_or_insert_with(|| facts.scrubbed(verdict));
                    last = judge.terminal();
                }
                Step::Nothing | Step::Content => {}
            }
            if last || one { Flow::Stop } else { Flow::Continue }
        });
        (seen, last)
    }

    fn close_after_terminal(&mut self) {
        if self.scanner.expects_lf() {
            // The other half of the CRLF is still under way; its value is known.
            self.held.push_back(Bytes::from_static(b"\n"));
        }
        if let Some(source) = self.source.take() {
            source.drain();
        }
        match self.error.take() {
            Some(verdict) => self.close(Ending::ErrorEvent, None, Some(verdict)),
            None => self.close(Ending::Complete, None, None),
        }
    }

    /// The upstream's body ended in order.
    pub(crate) fn at_end(&mut self) {
        let cut = self.scanner.mid_event();
        self.cut = cut;
        let Self { scanner, judge, facts, error, error_first, .. } = self;
        let context = facts.context();
        scanner.finish(|event| {
            let content = judge.content();
            if let Step::Error(verdict) = judge.event(event, &context) {
                *error_first |= error.is_none() && !content;
                error.get_or_insert_with(|| facts.scrubbed(verdict));
            }
            Flow::Continue
        });
        if let Some(rest) = self.filter.take().filter(|rest| !rest.is_empty() && !self.judge.usage_only()) {
            self.held.push_back(rest.freeze());
        }
        if let Some(verdict) = self.error.take() {
            self.close(Ending::ErrorEvent, None, Some(verdict));
        } else if self.judge.may_end() {
            self.close(Ending::Complete, None, None);
        } else {
            let verdict = self.facts.judge(Evidence::Stream(StreamFault::Cut));
            self.break_off(Ending::EndedWithoutFinish, None, Some(verdict), "it ended without a finish", cut);
        }
    }

    /// Whether the end that is known is not a complete answer.
    pub(crate) fn closed_badly(&self) -> bool {
        self.closing.as_ref().is_some_and(|(ending, ..)| *ending != Ending::Complete)
    }

    /// From outside: the process ends.
    pub(super) fn cut(&mut self) {
        if self.closing.is_none() {
            let cut = self.scanner.mid_event();
            self.break_off(Ending::Broken, None, None, "the proxy is shutting down", cut);
        }
    }

    fn break_off(
        &mut self,
        ending: Ending,
        limit: Option<Limit>,
        verdict: Option<Box<Verdict>>,
        why: &str,
        mid_event: bool,
    ) {
        if let Some(rest) = self.filter.take().filter(|rest| !rest.is_empty()) {
            self.held.push_back(rest.freeze());
        }
        let message = format!("the upstream's stream was interrupted: {why}");
        self.held.push_back(error_event(self.facts.endpoint, &message, mid_event, self.judge.events()));
        self.close(ending, limit, verdict);
    }

    fn close(&mut self, ending: Ending, limit: Option<Limit>, verdict: Option<Box<Verdict>>) {
        self.source = None;
        self.permit = None;
        self.closing = Some((ending, limit, verdict));
    }

    // === after the commit ===

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.held.pop_front() {
                if self.held.is_empty() {
                    self.reservation = None;
                    self.note_end();
                }
                return Poll::Ready(Some(bytes));
            }
            if self.closing.is_some() {
                self.note_end();
                return Poll::Ready(None);
            }
            let polled = match &mut self.source {
                Some(source) => source.poll_next(cx),
                None => Poll::Ready(None),
            };
            match polled {
                Poll::Ready(Some(Ok(chunk))) => {
                    self.waiting_since = None;
                    self.take(chunk);
                }
                Poll::Ready(Some(Err(_))) => self.broke(),
                Poll::Ready(None) => self.at_end(),
                Poll::Pending => std::task::ready!(self.poll_silence(cx)),
            }
        }
    }

    /// Ready where the silence has lasted too long; the end is then set.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let said_all = self.error.is_some() || self.judge.finish().is_some();
        let at = since + if said_all { self.idle.min(GRACE) } else { self.idle };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        // A timer that is set too early is set again when it fires: cheaper than once per chunk.
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        loop {
            std::task::ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= at {
                break;
            }
            timer.as_mut().reset(at);
        }
        if said_all {
            self.at_end();
            return Poll::Ready(());
        }
        let verdict = self.facts.judge(Evidence::Transport(Transport::Timeout(Limit::Idle)));
        let why = format!("nothing came for {} s ({})", self.idle.as_secs_f64(), Limit::Idle.as_str());
        let cut = self.scanner.mid_event();
        self.break_off(Ending::Stalled, Some(Limit::Idle), Some(verdict), &why, cut);
        Poll::Ready(())
    }

    fn broke(&mut self) {
        if let Some(verdict) = self.error.take() {
            // It has said why already.
            self.close(Ending::ErrorEvent, None, Some(verdict));
            return;
        }
        let verdict = self.facts.judge(Evidence::Transport(Transport::Reset { sent: true }));
        let cut = self.scanner.mid_event();
        self.break_off(Ending::Broken, None, Some(verdict), "the connection broke", cut);
    }

    fn note_end(&mut self) {
        if let Some((ending, limit, verdict)) = self.closing.take() {
            self.ended = Some(self.end(ending, limit, verdict));
        }
    }

    pub(super) fn ended(&mut self) -> Option<End> {
        self.ended.take()
    }

    /// The caller left.
    pub(super) fn left(&mut self) -> End {
        let verdict = self.error.take();
        self.end(Ending::CallerLeft, None, verdict)
    }

    fn end(&self, ending: Ending, limit: Option<Limit>, verdict: Option<Box<Verdict>>) -> End {
        End {
            ending,
            verdict,
            limit,
            usage: self.judge.usage(),
            finish: self.judge.finish(),
            bytes: self.bytes,
            events: self.judge.events(),
        }
    }
}
