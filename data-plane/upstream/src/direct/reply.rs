//! The body of an answer, which reads the connection itself and hands out what comes as it came.
//!
//! Invariants: the connection is given back as soon as the end is known, before the caller has it, so that its next request
//! finds it there; an end that is not the one the head has told is an error; dropped before its end, it closes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use super::chunks::Next;
use super::extent::Extent;
use super::head::Head;
use super::spot::Spot;
use super::wire::Wire;
use crate::source::Broken;

pub(crate) struct Reply {
    /// `None`: nothing is to come; given back, or broken.
    wire: Option<Box<Wire>>,
    extent: Extent,
    keep: bool,
    home: Arc<Spot>,
}

impl Reply {
    /// The answer of this head, the rest of which `wire` brings.
    pub(super) fn answer(head: Head, mut wire: Box<Wire>, home: Arc<Spot>) -> Response<Self> {
        let Head { status, version, headers, extent, keep } = head;
        if let Extent::Length(length) = extent {
            wire.expect(length);
        }
        let mut reply = Self { wire: Some(wire), extent, keep, home };
        reply.end_here();
        let mut response = Response::new(reply);
        *response.status_mut() = status;
        *response.version_mut() = version;
        *response.headers_mut() = headers;
        response
    }

    /// Gives the connection back if the end has come already.
    fn end_here(&mut self) {
        if self.wire.as_mut().is_some_and(|wire| self.extent.ends_here(&mut wire.came)) {
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some(mut wire) = self.wire.take()
            && self.keep
            && wire.rest()
        {
            self.home.put(wire);
        }
    }

    fn broken(&mut self) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.wire = None;
        Poll::Ready(Some(Err(Broken)))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = &mut *self;
        loop {
            let Some(wire) = &mut this.wire else { return Poll::Ready(None) };
            match this.extent.next(&mut wire.came) {
                Next::Data(bytes) => {
                    this.end_here();
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Next::End => this.end(),
                Next::Bad => return this.broken(),
                Next::More => match ready!(wire.poll_more(cx)) {
                    Ok(1..) => {}
                    Ok(_) if matches!(this.extent, Extent::UntilClose) => this.wire = None,
                    Ok(_) | Err(_) => return this.broken(),
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.wire.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.wire.is_some() { self.extent.size_hint() } else { SizeHint::with_exact(0) }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}
