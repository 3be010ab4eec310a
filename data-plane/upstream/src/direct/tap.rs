//! The socket below the client library, which can be lent to the body of an event stream.
//!
//! The library looks at each piece three times over on its way, and what came together goes on one by one. So it only sends
//! the request and reads the head. Where the head says that an event stream follows in chunks, it sees nothing of what
//! follows: the body reads the socket itself ([`Lent`](super::lent::Lent)). At its end the library is given the end of an
//! empty body in its place, and the connection is idle again.
//!
//! Invariants: lent is only what a plain `200` in HTTP/1.1 to a POST begins, with a head that came in one piece and leaves
//! no doubt how its body is framed; all else goes the library's way. A body that is given up before its end closes the socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

/// What a body of no chunks looks like.
pub(super) const EMPTY: &[u8] = b"0\r\n\r\n";

/// The library's end.
#[derive(Debug)]
pub(crate) struct Tap(Loan);

/// A way to the socket.
#[derive(Clone, Debug)]
pub(crate) struct Loan(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    /// `None`: closed from here.
    socket: Option<TcpStream>,
    stage: Stage,
    /// Read already, for whom the stage says.
    ahead: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// All goes through.
    Through,
    /// So it does, and what comes next begins the answer to a POST.
    Asked,
    /// The body reads; `ahead` is its beginning.
    Lent,
    /// The body is over; `ahead` is for the library.
    Returned,
}

// === impl Tap ===

impl Tap {
    pub(crate) fn new(socket: TcpStream) -> Self {
        let socket = Some(socket);
        let shared = Shared { socket, stage: Stage::Through, ahead: BytesMut::new() };
        Self(Loan(Arc::new(Mutex::new(shared))))
    }

    pub(super) fn loan(&self) -> Loan {
        self.0.clone()
    }
}

impl AsyncRead for Tap {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let shared = &mut *self.0.lock();
        match shared.stage {
            // Whoever has the body drives the library too, and asks again once it is over.
            Stage::Lent => return Poll::Pending,
            Stage::Returned => {
                let given = buf.remaining().min(shared.ahead.len());
                buf.put_slice(&shared.ahead[..given]);
                shared.ahead.advance(given);
                if shared.ahead.is_empty() {
                    (shared.stage, shared.ahead) = (Stage::Through, BytesMut::new());
                }
                return Poll::Ready(Ok(()));
            }
            Stage::Through | Stage::Asked => {}
        }
        let Some(socket) = &mut shared.socket else { return Poll::Ready(Ok(())) };
        let before = buf.filled().len();
        ready!(Pin::new(socket).poll_read(cx, buf))?;
        if shared.stage == Stage::Asked {
            shared.stage = Stage::Through;
            let came = &buf.filled()[before..];
            if let Some(head) = before_events(came) {
                shared.ahead = BytesMut::from(&came[head..]);
                shared.stage = Stage::Lent;
                buf.set_filled(before + head);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tap {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = self.0.lock();
        shared.writing(buf);
        Pin::new(shared.socket()?).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut shared = self.0.lock();
        shared.writing(bufs.first().map_or(&[], |first| first));
        Pin::new(shared.socket()?).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().socket.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0.lock().socket {
            Some(socket) => Pin::new(socket).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Shared {
    fn socket(&mut self) -> io::Result<&mut TcpStream> {
        self.socket.as_mut().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Notes that a request begins.
    fn writing(&mut self, bytes: &[u8]) {
        if self.stage == Stage::Through && bytes.starts_with(b"POST ") {
            self.stage = Stage::Asked;
        }
    }
}

// === impl Loan ===

impl Loan {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body's beginning, where it is lent.
    pub(super) fn begin(&self) -> Option<BytesMut> {
        let mut shared = self.lock();
        (shared.stage == Stage::Lent).then(|| std::mem::take(&mut shared.ahead))
    }

    /// Reads on; 0: the other end closed.
    pub(super) fn poll_read(&self, cx: &mut Context<'_>, into: &mut BytesMut) -> Poll<io::Result<usize>> {
        match &mut self.lock().socket {
            Some(socket) => poll_read_buf(Pin::new(socket), cx, into),
            None => Poll::Ready(Ok(0)),
        }
    }

    /// The body is over; `more` came behind it, which is the library's business.
    pub(super) fn give_back(&self, more: &[u8]) {
        let mut shared = self.lock();
        shared.ahead = BytesMut::with_capacity(EMPTY.len() + more.len());
        shared.ahead.extend_from_slice(EMPTY);
        shared.ahead.extend_from_slice(more);
        shared.stage = Stage::Returned;
    }

    /// The body broke, or is not wanted any more.
    pub(super) fn close(&self) {
        let mut shared = self.lock();
        shared.socket = None;
        shared.stage = Stage::Through;
    }
}

/// How long the head is, where an event stream in chunks follows beyond doubt.
fn before_events(came: &[u8]) -> Option<usize> {
    if !came.starts_with(b"HTTP/1.1 200 ") {
        return None;
    }
    let end = memmem::find(came, b"\r\n\r\n")?;
    let head = &came[..end];
    memmem::find(head, b"text/event-stream")?;
    let (mut events, mut chunked) = (false, false);
    let mut rest = &head[memmem::find(head, b"\r\n")? + 2..];
    while !rest.is_empty() {
        let next = memmem::find(rest, b"\r\n").unwrap_or(rest.len());
        let line = &rest[..next];
        rest = rest.get(next + 2..).unwrap_or_default();
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.first().is_none_or(u8::is_ascii_whitespace) {
            return None;
        }
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("content-type") {
            events = value.starts_with(b"text/event-stream");
        } else if is("transfer-encoding") {
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return None;
            }
            chunked = true;
        } else if is("content-length") || is("content-encoding") || is("upgrade") {
            return None;
        }
    }
    (events && chunked).then_some(end + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leaves_no_doubt_is_lent() {
        let good = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(before_events(format!("{good}5\r\n").as_bytes()), Some(good.len()));
        for (from, to) in [
            ("1.1", "1.0"),
            ("200", "201"),
            ("text/event-stream", "application/json"),
            (": chunked", ": gzip, chunked"),
            ("chunked\r\n\r\n", "chunked\r\n"),
            ("chunked\r\n\r\n", "chunked\r\ncontent-length: 5\r\n\r\n"),
            ("chunked\r\n\r\n", "chunked\r\nContent-Encoding: gzip\r\n\r\n"),
            ("chunked\r\n\r\n", "chunked\r\ntransfer-encoding: chunked\r\n\r\n"),
            ("chunked\r\n\r\n", "chunked\r\n folded: yes\r\n\r\n"),
            ("chunked\r\n\r\n", "chunked\r\nnonsense\r\n\r\n"),
            ("Transfer-Encoding: chunked", "x: y"),
            ("Content-Type", "x-content-type"),
        ] {
            assert!(good.contains(from), "{from}");
            assert_eq!(before_events(good.replacen(from, to, 1).as_bytes()), None, "{to}");
        }
    }
}
