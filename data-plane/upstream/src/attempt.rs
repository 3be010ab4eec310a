//! One attempt: send one request on one line, judge what comes back.
//!
//! * Plain: the whole body is read (bounded) and checked before anything goes to the caller. Other types than JSON
//!   (audio, images) are committed at their first byte.
//! * Stream: head and events are held until the first content (or as [`CommitMode`] says); until then every fault is
//!   a [`Failed`] and nothing has been passed on. Afterwards a [`Body`] passes the bytes on untouched and ends once.
//!
//! Cancel-safe: dropping the future, or the body, closes the upstream request. A stale pooled connection that dies before
//! the first response byte is replayed once on a fresh one, inside the attempt.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::Frame;
use spareline_core::classify::{Limit, Rules, Verdict};
use spareline_core::commit::{Finish, Usage};

use crate::budget::Budget;
use crate::clients::Line;
use crate::request::Outgoing;

/// Time limits of one attempt; zero is never a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// DNS, TCP, TLS.
    pub connect: Duration,
    /// Streams: to the first content. `None`: not armed (a request's second attempt after it fired): `response` runs.
    pub first_content: Option<Duration>,
    /// Plain: to the whole body. Streams without the former: to the first content.
    pub response: Duration,
    /// Streams after the commit: between bytes.
    pub idle: Duration,
    /// What is left of the request's deadline; ends phase one only.
    pub deadline: Option<Duration>,
}

/// When the first byte of a stream goes to the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitMode {
    /// At the first event with content.
    #[default]
    FirstContent,
    /// At a 2xx head.
    Headers,
    /// At the terminal event: all is held, at most 8 MiB.
    Assured,
}

/// One attempt's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Where to.
    pub line: &'a Line,
    /// The secret to send; `None`: no credential header at all.
    pub secret: Option<&'a str>,
    /// What to send.
    pub request: &'a Outgoing,
    /// The upstream's name of the model, where it differs from the caller's or where the caller gave none.
    pub upstream_model: Option<&'a str>,
    /// Time limits.
    pub limits: Limits,
    /// When a stream is committed.
    pub commit: CommitMode,
    /// Ask for usage where the caller did not (chat and completions streams); the extra chunk is filtered out again.
    pub request_usage: bool,
    /// The classifier's rules in force.
    pub rules: &'a Rules,
    /// Bounds what is held.
    pub budget: &'a Budget,
    /// The wall clock, for retry hints and the verdict.
    pub now: SystemTime,
}

/// A committed answer.
#[derive(Debug)]
pub struct Answer {
    /// The upstream's status: 2xx.
    pub status: StatusCode,
    /// The headers for the caller: filtered, and in agreement with the body.
    pub headers: HeaderMap,
    /// The bytes for the caller.
    pub body: Body,
    /// Token counts where they are known already (plain answers).
    pub usage: Usage,
    /// From the start of the attempt to the commit.
    pub first_content: Duration,
    /// Whether it is an event stream.
    pub stream: bool,
}

/// A failed attempt; nothing has gone to the caller.
#[derive(Debug)]
pub struct Failed {
    /// What it means.
    pub verdict: Box<Verdict>,
    /// The limit that fired.
    pub limit: Option<Limit>,
    /// The upstream's answer, where there was one: what a transparent verdict passes on.
    pub response: Option<Rejected>,
    /// The response head was never seen: the upstream gave not one byte.
    pub silent: bool,
    /// `body_memory` was used up: our own doing, answer 503 `overloaded`.
    pub overloaded: bool,
}

/// An upstream's refusal, whole or up to its bound.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Its status.
    pub status: StatusCode,
    /// Headers for the caller, filtered, in agreement with `body`.
    pub headers: HeaderMap,
    /// Decoded.
    pub body: Bytes,
}

/// How a committed body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The terminal event, or a finish reason and a clean end; plain bodies: the whole length.
    Complete,
    /// The upstream closed or reset in the middle.
    Broken,
    /// `idle_timeout`.
    Stalled,
    /// A clean end that says nothing of a finish.
    EndedWithoutFinish,
    /// The upstream sent an error event (passed on as it came).
    ErrorEvent,
    /// The caller left, or took nothing for too long: the body was dropped.
    CallerLeft,
}

/// What is known at a body's end.
#[derive(Clone, Debug)]
pub struct End {
    /// How it ended.
    pub ending: Ending,
    /// What it means, where the upstream is at fault.
    pub verdict: Option<Box<Verdict>>,
    /// The limit that fired.
    pub limit: Option<Limit>,
    /// Token counts.
    pub usage: Usage,
    /// The finish reason.
    pub finish: Option<Finish>,
    /// Body bytes received from the upstream.
    pub bytes: u64,
    /// Data events seen.
    pub events: u32,
}

/// A committed body. Dropping it before its end closes the upstream.
///
/// It never fails: a stream that breaks ends with one error event in the caller's dialect (never a made-up `[DONE]`); a
/// body that is not a stream ends with [`BodyError`], so that the connection is cut and the caller sees it.
#[derive(Debug)]
pub struct Body {}

/// A body that is not a stream broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's answer broke off")]
pub struct BodyError;

impl Body {
    /// Calls `f` exactly once: at the end, or when the body is dropped. Replaces an earlier one.
    pub fn on_end(&mut self, _f: impl FnOnce(End) + Send + 'static) {
        todo!()
    }

    /// Ends a stream now with an honest error event (shutdown); no effect once it ended, or on what is not a stream.
    pub fn interrupt_handle(&mut self) -> Interrupt {
        todo!()
    }
}

/// Cuts a committed stream from outside, with an honest error event.
#[derive(Clone, Debug)]
pub struct Interrupt {}

impl Interrupt {
    /// Now.
    pub fn interrupt(&self) {
        todo!()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        todo!()
    }
}

/// Sends and judges.
///
/// # Errors
/// The verdict on a failed attempt; the caller has seen nothing of it.
pub async fn attempt(_attempt: Attempt<'_>) -> Result<Answer, Box<Failed>> {
    todo!()
}
