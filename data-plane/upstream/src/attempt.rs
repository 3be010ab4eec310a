//! One attempt: send one request on one line, judge what comes back.
//!
//! * Plain: the whole body is read (bounded) and checked before anything goes to the caller. Other types than JSON
//!   (audio, images) are committed at their first byte.
//! * Stream: head and events are held until the first content (or as [`CommitMode`] says); until then every fault is
//!   a [`Failed`] and nothing has been passed on. Afterwards a [`Body`] passes the bytes on untouched and ends once.
//!
//! What is asked for beside the caller's wishes must not cost an answer: an upstream that refuses `stream_options` which we
//! put in is asked once more without, inside the attempt, and is not asked for usage again.
//!
//! Cancel-safe: dropping the future, or the body, closes the upstream request. A stale pooled connection that dies before
//! the first response byte is replayed once on a fresh one, inside the attempt.

mod hold;
mod plain;
mod refused;
mod send;
#[cfg(test)]
mod tests;
mod timer;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use memchr::memmem;
use spareline_core::classify::{Evidence, Limit, Rules, StreamFault, Transport, Verdict};
use spareline_core::commit::Usage;
use spareline_core::{Class, Scope, Secret};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

pub use crate::body::{Body, BodyError, End, Ending, Interrupt};
use crate::budget::{Budget, Reservation};
use crate::clients::Line;
use crate::headers::to_caller;
use crate::judge::Facts;
use crate::request::{self, Outgoing};
use crate::source::{Incoming, Source};
use crate::transport::Fault;
use timer::Timer;

/// Most bytes of a plain answer that are held and checked.
pub const PLAIN_LIMIT: usize = 32 * 1024 * 1024;
/// Most bytes held of a stream before its first content; at the bound it is committed.
pub const HOLD_LIMIT: usize = 1024 * 1024;
/// Most events held of a stream before its first content; at the bound it is committed.
pub const HOLD_EVENTS: u32 = 256;
/// Most bytes held of an assured stream; at the bound it is committed, and what follows is phase two.
pub const ASSURED_LIMIT: usize = 8 * 1024 * 1024;

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
    /// Set once the upstream's head came: who drops the future learns here whether the upstream was silent.
    pub heard: Option<&'a std::sync::atomic::AtomicBool>,
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
    /// Its status; 2xx where an error came in the form of a success.
    pub status: StatusCode,
    /// Headers for the caller, filtered, in agreement with `body`.
    pub headers: HeaderMap,
    /// Decoded, and without our secret where the upstream quoted it.
    pub body: Bytes,
}

/// Sends and judges.
///
/// # Errors
/// The verdict on a failed attempt; the caller has seen nothing of it.
pub async fn attempt(attempt: Attempt<'_>) -> Result<Answer, Box<Failed>> {
    let started = Instant::now();
    let timer = Timer::phase_one(started, &attempt.limits, attempt.request.stream);
    Run::new(&attempt, started).run(timer).await
}

/// One attempt under way.
struct Run<'a> {
    attempt: &'a Attempt<'a>,
    started: Instant,
    head_seen: bool,
    facts: Arc<Facts>,
}

impl<'a> Run<'a> {
    fn new(attempt: &'a Attempt<'a>, started: Instant) -> Self {
        let target = attempt.line.target();
        let facts = Facts {
            provider: target.provider,
            vendor: target.vendor.clone(),
            endpoint: attempt.request.endpoint,
            stream: attempt.request.stream,
            status: 0,
            headers: HeaderMap::new(),
            rules: attempt.rules.clone(),
            now: attempt.now,
            secret: attempt.secret.map(Secret::new),
        };
        Self { attempt, started, head_seen: false, facts: Arc::new(facts) }
    }

    async fn run(self, mut timer: Timer) -> Result<Answer, Box<Failed>> {
        let Attempt { line, secret, request, upstream_model, request_usage, .. } = *self.attempt;
        let request_usage = request_usage && !line.refuses_usage();
        let Ok(built) = request::build(line, request, secret, upstream_model, request_usage) else {
            return Err(self.failed(self.facts.judge(Evidence::Internal)));
        };
        let Ok(held) = self.rewritten(&built) else { return Err(self.overloaded()) };
        let permit = self.permit(&mut timer).await?;
        let usage_added = built.usage_added;
        let generation = line.pool().generation();
        let response = match timer.run(pin!(send::send(self.attempt, built))).await {
            Err(limit) => {
                line.unheard(generation);
                return Err(self.wire(Transport::Timeout(limit)));
            }
            Ok(Err(Fault::Wire(transport))) => return Err(self.wire(transport)),
            Ok(Err(Fault::EgressProxy)) => return Err(self.egress_proxy()),
            Ok(Ok(response)) => response,
        };
        drop(held);
        line.heard();
        let (attempt, started) = (self.attempt, self.started);
        match self.received(response, usage_added, permit, timer).await {
            Err(failed) if usage_added && is_about_usage(&failed) => {
                line.refused_usage();
                let timer = Timer::phase_one(started, &attempt.limits, request.stream);
                Box::pin(Run::new(attempt, started).run(timer)).await
            }
            result => result,
        }
    }

    /// The head is there.
    async fn received(
        mut self,
        response: http::Response<Incoming>,
        usage_added: bool,
        permit: OwnedSemaphorePermit,
        mut timer: Timer,
    ) -> Result<Answer, Box<Failed>> {
        self.head_seen = true;
        if let Some(heard) = self.attempt.heard {
            heard.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        let (parts, body) = response.into_parts();
        let facts = Arc::make_mut(&mut self.facts);
        facts.status = parts.status.as_u16();
        facts.headers = parts.headers;
        let kind = Kind::of(&self.facts.headers);
        if !parts.status.is_success() {
            return Err(Box::pin(self.refused(parts.status, body, &mut timer)).await);
        }
        if kind == Kind::EventStream && self.takes_events() {
            let Some(source) = Source::decoded(body, &mut Arc::make_mut(&mut self.facts).headers) else {
                return Err(self.failed(self.facts.judge(Evidence::Stream(StreamFault::NotAStream))));
            };
            return Box::pin(self.hold(parts.status, source, None, usage_added, permit, timer)).await;
        }
        if kind == Kind::Opaque && !self.wants_json() {
            return Box::pin(self.opaque(parts.status, body, permit, &mut timer)).await;
        }
        self.plain(parts.status, body, usage_added, permit, timer).await
    }

    /// Room for a body that was written anew, beside the caller's own. `Err`: there is none.
    fn rewritten(&self, built: &request::Built) -> Result<Option<Reservation>, ()> {
        match &built.body {
            Some(body) if body.as_ptr() != self.attempt.request.body.as_ptr() => {
                self.attempt.budget.reserve(body.len()).map(Some).ok_or(())
            }
            _ => Ok(None),
        }
    }

    /// A place among the channel's connections. That it takes too long is our own limit's doing: nobody is blamed.
    async fn permit(&self, timer: &mut Timer) -> Result<OwnedSemaphorePermit, Box<Failed>> {
        if let Some(permit) = self.attempt.line.permit_now() {
            return Ok(permit);
        }
        let wait = tokio::time::timeout(self.attempt.limits.connect, self.attempt.line.permit());
        let limit = match timer.run(pin!(wait)).await {
            Ok(Ok(Some(permit))) => return Ok(permit),
            Ok(Ok(None) | Err(_)) => Limit::Connect,
            Err(limit) => limit,
        };
        let mut failed = self.wire(Transport::Timeout(limit));
        failed.verdict.scope = Scope::None;
        failed.silent = false;
        Err(failed)
    }

    /// Whether an event stream is a fitting answer: where one was asked for, and where the proxy does not know the forms
    /// of asking.
    fn takes_events(&self) -> bool {
        use spareline_core::Endpoint::{Audio, Images};
        self.facts.stream || matches!(self.facts.endpoint, None | Some(Audio | Images))
    }

    /// Whether the endpoint answers with nothing but JSON (or a stream of it).
    fn wants_json(&self) -> bool {
        use spareline_core::Endpoint::{Audio, Images};
        !matches!(self.facts.endpoint, None | Some(Audio | Images))
    }

    /// Whether a JSON answer will not do: a stream was asked for where streams exist.
    fn insists_on_stream(&self) -> bool {
        use spareline_core::Endpoint::{ChatCompletions, Completions, Messages, Responses};
        self.facts.stream
            && matches!(self.facts.endpoint, Some(ChatCompletions | Completions | Messages | Responses))
    }

    // === failures ===

    /// What the upstream said, as it may be passed on.
    fn said(&self, status: StatusCode, body: Bytes) -> Rejected {
        Rejected { status, headers: to_caller(&self.facts.headers), body: self.facts.redacted(body) }
    }

    fn failed(&self, verdict: Box<Verdict>) -> Box<Failed> {
        let verdict = self.facts.scrubbed(verdict);
        Box::new(Failed { verdict, limit: None, response: None, silent: !self.head_seen, overloaded: false })
    }

    fn wire(&self, transport: Transport) -> Box<Failed> {
        let mut failed = self.failed(self.facts.judge(Evidence::Transport(transport)));
        if let Transport::Timeout(limit) = transport {
            failed.limit = Some(limit);
        }
        failed
    }

    fn egress_proxy(&self) -> Box<Failed> {
        let headers = HeaderMap::new();
        self.failed(self.facts.judge(Evidence::Response { status: 407, headers: &headers, body: b"" }))
    }

    fn overloaded(&self) -> Box<Failed> {
        let mut failed = self.failed(self.facts.judge(Evidence::Internal));
        failed.overloaded = true;
        failed.silent = false;
        failed
    }
}

/// Whether a request was refused for its `stream_options`.
fn is_about_usage(failed: &Failed) -> bool {
    let names = |word: &str| {
        let body = failed.response.as_ref().map(|said| &said.body[..]);
        body.is_some_and(|body| memmem::find(body, word.as_bytes()).is_some())
    };
    failed.verdict.class == Class::Transparent && (names("stream_options") || names("include_usage"))
}

/// What a content type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Json,
    EventStream,
    /// Nothing that can be judged: audio, images, plain text.
    Opaque,
    /// HTML, or nothing said: to be looked at.
    Unclear,
}

impl Kind {
    fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = value.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        let is = |word: &str| kind.eq_ignore_ascii_case(word);
        let lower_ends = |word: &str| {
            kind.len() >= word.len()
                && kind.get(kind.len() - word.len()..).is_some_and(|end| end.eq_ignore_ascii_case(word))
        };
        if is("text/event-stream") {
            Self::EventStream
        } else if is("application/json") || lower_ends("+json") || lower_ends("/json") {
            Self::Json
        } else if kind.is_empty() || is("text/html") || is("application/xhtml+xml") {
            Self::Unclear
        } else {
            Self::Opaque
        }
    }
}
