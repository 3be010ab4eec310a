//! A committed body: what goes to the caller after the commit, and the one ending it has.

mod relay;
pub(crate) mod stream;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Frame, SizeHint};
use spareline_core::classify::{Limit, Verdict};
use spareline_core::commit::{Finish, Usage};

use crate::budget::Reservation;

pub(crate) use relay::Relay;
pub(crate) use stream::StreamBody;

/// How a committed body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The terminal event, or a finish reason and a clean end; plain bodies: the whole length.
    Complete,
    /// The upstream closed or reset in the middle; or it was cut from here ([`Interrupt`]: then without a verdict).
    Broken,
    /// `idle_timeout`, or for bodies that are no streams `response_timeout`.
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
/// A stream never fails: when it breaks, it ends with one error event in the caller's dialect (never a made-up `[DONE]`). A
/// body that is not a stream ends with [`BodyError`], so that the connection is cut and the caller sees it.
pub struct Body {
    inner: Inner,
    on_end: Option<Box<dyn FnOnce(End) + Send>>,
    interrupt: Option<Interrupt>,
}

/// Most bytes of a whole answer that are handed over at once: the next piece is asked for when the caller has taken enough
/// of what came before.
const PIECE: usize = 64 * 1024;

enum Inner {
    Whole(Whole),
    Relay(Box<Relay>),
    Stream(Box<StreamBody>),
    Ended,
}

/// An answer that is wholly here; it counts as held until the caller has taken it.
struct Whole {
    rest: Bytes,
    length: usize,
    usage: Usage,
    _reservation: Reservation,
}

/// A body that is not a stream broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's answer broke off")]
pub struct BodyError;

/// Cuts a committed stream from outside, with an honest error event.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    shared: Arc<Cut>,
}

#[derive(Debug, Default)]
struct Cut {
    now: AtomicBool,
    waker: AtomicWaker,
}

// === impl Interrupt ===

impl Interrupt {
    /// Now.
    pub fn interrupt(&self) {
        self.shared.now.store(true, Ordering::Release);
        self.shared.waker.wake();
    }

    fn is_due(&self, cx: &Context<'_>) -> bool {
        self.shared.waker.register(cx.waker());
        self.shared.now.load(Ordering::Acquire)
    }
}

// === impl Body ===

impl Body {
    /// A whole answer.
    pub(crate) fn whole(bytes: Bytes, usage: Usage, reservation: Reservation) -> Self {
        let length = bytes.len();
        Self::new(Inner::Whole(Whole { rest: bytes, length, usage, _reservation: reservation }))
    }

    pub(crate) fn relay(relay: Relay) -> Self {
        Self::new(Inner::Relay(Box::new(relay)))
    }

    pub(crate) fn stream(stream: Box<StreamBody>) -> Self {
        Self::new(Inner::Stream(stream))
    }

    fn new(inner: Inner) -> Self {
        Self { inner, on_end: None, interrupt: None }
    }

    /// Calls `f` exactly once: at the end, or when the body is dropped. Replaces an earlier one.
    pub fn on_end(&mut self, f: impl FnOnce(End) + Send + 'static) {
        self.on_end = Some(Box::new(f));
    }

    /// Ends a stream early with an honest error event (shutdown); no effect once it ended, or on what is not a stream.
    pub fn interrupt_handle(&mut self) -> Interrupt {
        self.interrupt.get_or_insert_default().clone()
    }

    /// Reports the end, and lets go of everything.
    fn finish(&mut self, end: End) {
        self.inner = Inner::Ended;
        if let Some(on_end) = self.on_end.take() {
            on_end(end);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match &mut this.inner {
            Inner::Ended => Poll::Ready(None),
            Inner::Whole(whole) => {
                let piece = whole.rest.split_to(whole.rest.len().min(PIECE));
                if whole.rest.is_empty() {
                    let end = End::whole(whole.length, whole.usage);
                    this.finish(end);
                }
                Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
            }
            Inner::Relay(relay) => {
                let polled = std::task::ready!(relay.poll_next(cx));
                if let Some(end) = relay.ended() {
                    this.finish(end);
                }
                Poll::Ready(polled.map(|result| result.map(Frame::data)))
            }
            Inner::Stream(stream) => {
                if this.interrupt.as_ref().is_some_and(|interrupt| interrupt.is_due(cx)) {
                    stream.cut();
                }
                let polled = std::task::ready!(stream.poll_next(cx));
                if let Some(end) = stream.ended() {
                    this.finish(end);
                }
                Poll::Ready(polled.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Ended => true,
            Inner::Whole(whole) => whole.rest.is_empty(),
            Inner::Relay(_) | Inner::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Ended => SizeHint::with_exact(0),
            Inner::Whole(whole) => SizeHint::with_exact(whole.rest.len() as u64),
            Inner::Relay(relay) => relay.size_hint(),
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let end = match &mut self.inner {
            Inner::Ended => return,
            // Nothing to send is never asked for.
            Inner::Whole(whole) if whole.length == 0 => End::whole(0, whole.usage),
            Inner::Whole(whole) => {
                End { ending: Ending::CallerLeft, ..End::whole(whole.length, whole.usage) }
            }
            Inner::Relay(relay) => relay.left(),
            Inner::Stream(stream) => stream.left(),
        };
        self.finish(end);
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.inner {
            Inner::Whole(..) => "Body(whole)",
            Inner::Relay(_) => "Body(relay)",
            Inner::Stream(_) => "Body(stream)",
            Inner::Ended => "Body(ended)",
        })
    }
}

impl End {
    pub(crate) fn whole(bytes: usize, usage: Usage) -> Self {
        Self {
            ending: Ending::Complete,
            verdict: None,
            limit: None,
            usage,
            finish: None,
            bytes: bytes as u64,
            events: 0,
        }
    }
}
