//! One request on one connection, driven by whoever waits for it.
//!
//! Two ends of the connection are polled here in one task: the driver, with the task's waker, and what the driver feeds
//! (the answer's head, then its body), without one, always after the driver. So the driver needs not wake anybody for
//! what the task is about to look at anyway. The latter are polled outside of the task's budget, which would otherwise
//! say "later" to a waker that wakes nobody.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::task::coop::unconstrained;

use super::Error;
use super::lent::Lent;
use super::spot::{Spot, Wire};

/// Sends a request and waits for the head of its answer. Dropping the future closes the connection.
pub(super) async fn exchange(
    mut wire: Wire,
    request: Request<Full<Bytes>>,
    home: Arc<Spot>,
) -> Result<Response<Reply>, Error> {
    let head = {
        let mut answer = pin!(unconstrained(wire.sender.send_request(request)));
        poll_fn(|cx| {
            let more = wire.drive(cx);
            match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Poll::Ready(answer.map_err(Error::Wire)),
                Poll::Pending if more => Poll::Pending,
                Poll::Pending => Poll::Ready(Err(Error::Gone(gone()))),
            }
        })
        .await?
    };
    let (parts, incoming) = head.into_parts();
    Ok(Response::from_parts(parts, Reply { incoming, lent: Lent::begin(&wire.loan), wire: Some(wire), home }))
}

fn gone() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// The body of an answer. Read to its end, it gives the connection back; dropped before that, it closes it.
pub(crate) struct Reply {
    incoming: Incoming,
    /// Reads in place of the driver, which has seen the head alone.
    lent: Option<Lent>,
    /// `None`: given back, or broken.
    wire: Option<Wire>,
    home: Arc<Spot>,
}

impl Reply {
    /// What has arrived already.
    fn arrived(&mut self) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let incoming = &mut self.incoming;
        let next = pin!(unconstrained(poll_fn(|cx| Pin::new(&mut *incoming).poll_frame(cx))));
        next.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Whether nothing is to come, as far as is known without waiting; then the connection is given back.
    pub(crate) fn ends_here(&mut self) -> bool {
        if self.lent.as_mut().is_some_and(Lent::ends_here) {
            let end = Pin::new(&mut *self).poll_frame(&mut Context::from_waker(Waker::noop()));
            return matches!(end, Poll::Ready(None));
        }
        false
    }

    /// All was read.
    fn give_back(&mut self) {
        if let Some(mut wire) = self.wire.take()
            && wire.is_idle()
        {
            self.home.put(wire);
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = super::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(lent) = &mut self.lent {
            match ready!(lent.poll_next(cx)) {
                Some(Ok(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Err(_)) => {
                    (self.lent, self.wire) = (None, None);
                    return Poll::Ready(Some(Err(gone().into())));
                }
                // The driver has the end before it now.
                None => self.lent = None,
            }
        }
        let mut next = self.arrived();
        if next.is_pending()
            && let Some(wire) = &mut self.wire
        {
            let more = wire.drive(cx);
            next = self.arrived();
            if next.is_pending() && !more {
                self.wire = None;
                return Poll::Ready(Some(Err(gone().into())));
            }
        }
        match next {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(frame))),
            Poll::Ready(Some(Err(error))) => {
                self.wire = None;
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                self.give_back();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // An answer without a body is never asked for one.
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}
