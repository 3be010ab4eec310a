//! Phase one of a stream: held until it may be committed, or until it fails.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use spareline_core::Class;
use spareline_core::classify::{Evidence, Limit, StreamFault, Transport, Verdict};
use spareline_core::commit::Usage;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::timer::Timer;
use super::{ASSURED_LIMIT, Answer, Body, CommitMode, Failed, HOLD_EVENTS, HOLD_LIMIT, Run};
use crate::body::StreamBody;
use crate::body::stream::GRACE;
use crate::headers::to_caller;
use crate::source::Source;

/// What may still follow an error event that is passed on: so much time, so many bytes.
const REST_WAIT: Duration = Duration::from_millis(500);
const REST_BYTES: u64 = 64 * 1024;

impl Run<'_> {
    /// `first`: bytes that were read already.
    pub(super) async fn hold(
        self,
        status: StatusCode,
        source: Source,
        first: Option<Bytes>,
        usage_added: bool,
        permit: OwnedSemaphorePermit,
        mut timer: Timer,
    ) -> Result<Answer, Box<Failed>> {
        let idle = self.attempt.limits.idle;
        let reservation = self.attempt.budget.empty();
        let facts = self.facts.clone();
        let mut stream = Box::new(StreamBody::new(source, facts, reservation, idle, usage_added, permit));
        let mut next = first;
        let assured = self.attempt.commit == CommitMode::Assured;
        if self.attempt.commit == CommitMode::Headers {
            if let Some(bytes) = next {
                stream.take(bytes);
            }
            return Ok(self.commit(status, stream));
        }
        loop {
            let polled = match next.take() {
                Some(bytes) => Ok(Some(Ok(bytes))),
                None => timer.run(pin!(stream.next())).await,
            };
            match polled {
                // All has been said; only a terminal event is missing.
                Err(_) if assured && stream.judge.finish().is_some() && !stream.saw_error() => {
                    stream.at_end();
                }
                Err(limit) => return Err(self.wire(Transport::Timeout(limit))),
                Ok(Some(Err(_))) => return Err(self.wire(Transport::Reset { sent: true })),
                Ok(Some(Ok(bytes))) => {
                    if !stream.reserve(bytes.len()) {
                        return Err(self.overloaded());
                    }
                    stream.take(bytes);
                }
                Ok(None) => stream.at_end(),
            }
            match self.look(&stream) {
                Look::Hold => {}
                Look::Commit => return Ok(self.commit(status, stream)),
                Look::Fault(fault) => {
                    let other = self.no_stream(status, &stream);
                    return Err(
                        other.unwrap_or_else(|| self.failed(self.facts.judge(Evidence::Stream(fault))))
                    );
                }
                Look::Error => return Err(self.error_event(status, stream).await),
            }
            if assured && stream.judge.content() {
                let finished = stream.judge.finish().is_some();
                timer.arm(Instant::now(), Limit::Idle, if finished { idle.min(GRACE) } else { idle });
            }
        }
    }

    /// What to do with what is held.
    fn look(&self, stream: &StreamBody) -> Look {
        let assured = self.attempt.commit == CommitMode::Assured;
        let content = stream.judge.content();
        if stream.error_first || (assured && stream.saw_error()) {
            return Look::Error;
        }
        if stream.is_closing() {
            let answered = content || stream.judge.may_end_without_content();
            return match (answered, stream.closed_badly()) {
                (true, false) => Look::Commit,
                // What came before the cut is content; phase two ends it honestly.
                (true, true) if !assured => Look::Commit,
                (true, true) => Look::Fault(StreamFault::Cut),
                (false, _) if stream.cut_mid_event() => Look::Fault(StreamFault::Cut),
                (false, _) => Look::Fault(StreamFault::Empty),
            };
        }
        let bound = if assured { ASSURED_LIMIT } else { HOLD_LIMIT } as u64;
        let full = stream.bytes() > bound || (!assured && stream.judge.events() >= HOLD_EVENTS);
        if full || (content && !assured) { Look::Commit } else { Look::Hold }
    }

    fn commit(self, status: StatusCode, stream: Box<StreamBody>) -> Answer {
        let mut headers = to_caller(&self.facts.headers);
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        headers.entry(http::header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
        headers.insert(http::header::CONTENT_TYPE, self.content_type());
        Answer {
            status,
            headers,
            body: Body::stream(stream),
            usage: Usage::default(),
            first_content: self.started.elapsed(),
            stream: true,
        }
    }

    /// The upstream's own where it says event stream.
    fn content_type(&self) -> HeaderValue {
        let own = self.facts.headers.get(http::header::CONTENT_TYPE).cloned();
        own.filter(|value| {
            value.to_str().is_ok_and(|text| text.to_ascii_lowercase().starts_with("text/event-stream"))
        })
        .unwrap_or(HeaderValue::from_static("text/event-stream"))
    }

    /// An error or a page under the name of an event stream: what it is says more than that there were no events.
    fn no_stream(&self, status: StatusCode, stream: &StreamBody) -> Option<Box<Failed>> {
        if stream.judge.events() > 0 {
            return None;
        }
        let body = stream.held();
        if !matches!(body.trim_ascii_start().first(), Some(b'{' | b'[' | b'<')) {
            return None;
        }
        let mut failed = self.no_answer(status, &body)?;
        if let Some(rejected) = &mut failed.response {
            rejected.headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Some(failed)
    }

    /// An error event in place of an answer. Where it is the request's own fault it is passed on, with what little follows.
    async fn error_event(&self, status: StatusCode, mut stream: Box<StreamBody>) -> Box<Failed> {
        let verdict: Box<Verdict> = match stream.error() {
            Some(verdict) => verdict,
            None => self.facts.judge(Evidence::Stream(StreamFault::Cut)),
        };
        let transparent = verdict.class == Class::Transparent;
        if transparent && !stream.is_closing() {
            let limit = stream.bytes() + REST_BYTES;
            let rest = async {
                while let Some(Ok(bytes)) = stream.next().await {
                    stream.take(bytes);
                    if stream.is_closing() || stream.bytes() > limit {
                        break;
                    }
                }
            };
            let _ = timeout(REST_WAIT, rest).await;
        }
        let mut failed = self.failed(verdict);
        if transparent {
            failed.response = Some(self.said(status, stream.held()));
        }
        failed
    }
}

enum Look {
    Hold,
    Commit,
    Fault(StreamFault),
    Error,
}
