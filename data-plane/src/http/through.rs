//! A stream over HTTP/1.1 on its way to the caller's socket, beside hyper.
//!
//! Hyper writes the head, with what is there by then, and the end. What comes between are small pieces, one by one, and
//! each of them costs hyper more than it costs to write it: so they are put into chunks here and written at once, all
//! that are ready in one write.
//!
//! Invariants: nothing is written here while hyper still holds something; hyper is given nothing before all that was
//! begun here has been written; a caller that takes nothing stops the upstream from being read.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spareline_upstream::attempt::BodyError;

use super::io::Connection;

/// So many bytes are written without looking for more.
const ENOUGH: usize = 16 << 10;

/// The body, and the socket it goes to.
#[derive(Debug)]
pub struct Through<B> {
    body: B,
    connection: Arc<Connection>,
    /// Taken from the body, in order.
    taken: VecDeque<Bytes>,
    /// The body has no more, and failed or not.
    over: Option<Result<(), BodyError>>,
    /// In chunks, of which `written` bytes are written.
    chunks: Vec<u8>,
    written: usize,
}

impl<B: Body<Data = Bytes, Error = BodyError> + Unpin> Through<B> {
    /// Only for an answer that hyper sends in chunks.
    pub(crate) fn new(body: B, connection: Arc<Connection>) -> Self {
        connection.unflushed();
        let (taken, chunks) = (VecDeque::new(), Vec::new());
        Self { body, connection, taken, over: None, chunks, written: 0 }
    }

    /// Takes what is ready.
    fn take(&mut self, cx: &mut Context<'_>) {
        let mut size = 0;
        while self.over.is_none() && size < ENOUGH {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => return,
                Poll::Ready(None) => self.over = Some(Ok(())),
                Poll::Ready(Some(Err(error))) => self.over = Some(Err(error)),
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        size += bytes.len();
                        self.taken.push_back(bytes);
                    }
                    if self.body.is_end_stream() {
                        self.over = Some(Ok(()));
                    }
                }
            }
        }
    }

    /// Writes what was begun.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        while self.written < self.chunks.len() {
            match ready!(self.connection.poll_write(cx, &self.chunks[self.written..])) {
                Ok(0) | Err(_) => return Poll::Ready(Err(BodyError)),
                Ok(n) => self.written += n,
            }
        }
        self.written = 0;
        self.chunks.clear();
        Poll::Ready(Ok(()))
    }
}

impl<B: Body<Data = Bytes, Error = BodyError> + Unpin> Body for Through<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if let Err(error) = ready!(this.poll_write(cx)) {
                return Poll::Ready(Some(Err(error)));
            }
            this.take(cx);
            if this.over.is_some() || !this.connection.is_flushed() {
                let next = this.taken.pop_front();
                if next.is_some() {
                    this.connection.unflushed();
                }
                return match (next, this.over) {
                    (Some(bytes), _) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                    (None, Some(Err(error))) => Poll::Ready(Some(Err(error))),
                    (None, Some(Ok(()))) => Poll::Ready(None),
                    (None, None) => Poll::Pending,
                };
            }
            if this.taken.is_empty() {
                return Poll::Pending;
            }
            for bytes in this.taken.drain(..) {
                put_chunk(&mut this.chunks, &bytes);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.over == Some(Ok(())) && self.taken.is_empty() && self.chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// One chunk; none for no bytes, which would be the last one.
fn put_chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let digits = (usize::BITS - bytes.len().leading_zeros()).div_ceil(4);
    out.reserve(bytes.len() + 20);
    for at in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(bytes.len() >> (4 * at)) & 15]);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
