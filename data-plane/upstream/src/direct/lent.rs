//! The body of an event stream that reads its connection's socket itself; see [`tap`](super::tap).

use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};

use super::chunks::{Chunks, Next};
use super::tap::{EMPTY, Loan};
use crate::source::Broken;

/// The room for one read. Events are small, and every open stream has one of these.
const ROOM: usize = 8 * 1024;

/// Dropped before its end, it closes the connection.
#[derive(Debug)]
pub(super) struct Lent {
    loan: Loan,
    chunks: Chunks,
    came: BytesMut,
    over: bool,
}

impl Lent {
    /// `None`: the body is not lent, the library reads it.
    pub(super) fn begin(loan: &Loan) -> Option<Self> {
        let came = loan.begin()?;
        Some(Self { loan: loan.clone(), chunks: Chunks::Size, came, over: false })
    }

    /// The next bytes; never empty ones.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            if self.over {
                return Poll::Ready(None);
            }
            match self.chunks.next(&mut self.came) {
                Next::Data(bytes) => return Poll::Ready(Some(Ok(bytes))),
                Next::End => self.end(),
                Next::Bad => return self.broken(),
                Next::More => {
                    if self.came.capacity() - self.came.len() < ROOM / 2 {
                        self.came.reserve(ROOM);
                    }
                    match ready!(self.loan.poll_read(cx, &mut self.came)) {
                        Ok(0) | Err(_) => return self.broken(),
                        Ok(_) => {}
                    }
                }
            }
        }
    }

    /// Whether the end has come already, and nothing else.
    pub(super) fn ends_here(&mut self) -> bool {
        let left = match self.chunks {
            Chunks::Size => Some(&self.came[..]),
            Chunks::DataEnd => self.came.strip_prefix(b"\r\n"),
            _ => None,
        };
        if !self.over && left == Some(EMPTY) {
            self.came.clear();
            self.end();
        }
        self.over
    }

    fn end(&mut self) {
        self.over = true;
        self.loan.give_back(&self.came);
        self.came = BytesMut::new();
    }

    fn broken(&mut self) -> Poll<Option<Result<Bytes, Broken>>> {
        self.over = true;
        self.loan.close();
        Poll::Ready(Some(Err(Broken)))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.over {
            self.loan.close();
        }
    }
}
