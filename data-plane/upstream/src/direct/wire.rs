//! A connection and one exchange on it, driven by whoever waits for the answer: there is no task behind it, and nothing
//! in it is shared.
//!
//! A request is still written while its answer is awaited and read, for as long as the other end takes it: an upstream may
//! refuse a large body before it has come, and one that answers without reading must not make both ends wait for the
//! other. What goes wrong in writing is told only where no answer comes: it often lies there already.
//!
//! Dropping a wire closes the connection.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{Method, Request};
use rustix::net::{RecvFlags, recv};
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use super::Error;
use super::head::{self, Head, NotHttp};

/// The room for one read. Events are small, and every open stream has one of these.
const ROOM: usize = 8 * 1024;
/// The same where a large body is to come.
const MOST_ROOM: usize = 64 * 1024;

pub(super) struct Wire {
    socket: TcpStream,
    /// Read, and not taken yet; nothing between two exchanges.
    pub(super) came: BytesMut,
    /// For each read.
    room: usize,
    /// Of the request; its memory serves the next one too.
    head: Vec<u8>,
    /// How much of it has gone.
    written: usize,
    /// What has not gone.
    body: Bytes,
    /// Why the request cannot go.
    fault: Option<io::Error>,
}

impl Wire {
    pub(super) fn new(socket: TcpStream) -> Self {
        let (came, head, body) = (BytesMut::new(), Vec::new(), Bytes::new());
        Self { socket, came, room: ROOM, head, written: 0, body, fault: None }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn exchange(&mut self, request: Request<Bytes>) -> Result<Head, Error> {
        let method = self.ask(request);
        let mut seen = 0;
        loop {
            let more = poll_fn(|cx| self.poll_more(cx)).await;
            let Ok(more @ 1..) = more else { return Err(self.gone(more.err(), seen > 0)) };
            // In small pieces, only the end of a line can have completed it.
            if seen == 0 || self.came[self.came.len() - more..].contains(&b'\n') {
                match head::take(&mut self.came, &method) {
                    Ok(Some(head)) => return Ok(head),
                    Ok(None) => {}
                    Err(NotHttp) => return Err(Error::NotHttp),
                }
            }
            seen += more;
            if seen >= head::LONGEST {
                return Err(Error::NotHttp);
            }
        }
    }

    fn ask(&mut self, request: Request<Bytes>) -> Method {
        let (parts, body) = request.into_parts();
        self.head.clear();
        head::encode(&parts, body.len(), &mut self.head);
        (self.written, self.body) = (0, body);
        parts.method
    }

    /// So much of an answer is still to come.
    pub(super) fn expect(&mut self, length: u64) {
        self.room = usize::try_from(length).unwrap_or(MOST_ROOM).clamp(ROOM, MOST_ROOM);
    }

    /// Writes what can be of the request, and reads what there is; 0: the other end has closed.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.is_sent() && self.fault.is_none() {
            self.fault = self.write(cx).err();
        }
        if self.came.capacity() - self.came.len() < ROOM / 2 {
            self.came.reserve(self.room);
        }
        poll_read_buf(Pin::new(&mut self.socket), cx, &mut self.came)
    }

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.is_sent() {
            let head = &self.head[self.written..];
            let parts = [IoSlice::new(head), IoSlice::new(&self.body)];
            let parts = if head.is_empty() { &parts[1..] } else { &parts };
            let Poll::Ready(gone) = Pin::new(&mut self.socket).poll_write_vectored(cx, parts)? else { break };
            if gone == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            let of_head = gone.min(head.len());
            self.written += of_head;
            self.body.advance(gone - of_head);
        }
        if self.is_sent() {
            self.body = Bytes::new();
        }
        Ok(())
    }

    fn is_sent(&self) -> bool {
        self.written == self.head.len() && self.body.is_empty()
    }

    fn gone(&mut self, error: Option<io::Error>, answering: bool) -> Error {
        let error = self.fault.take().or(error).unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
        if answering { Error::Cut(error) } else { Error::Gone(error) }
    }

    /// After an answer's end: whether another request can be sent. Lets go of what it does not need until then.
    pub(super) fn rest(&mut self) -> bool {
        let done = self.is_sent() && self.fault.is_none() && self.came.is_empty();
        self.head.shrink_to(ROOM);
        if self.room > ROOM {
            (self.room, self.came) = (ROOM, BytesMut::new());
        }
        done
    }

    /// Between exchanges: whether the other end has neither closed it nor said anything, as far as can be seen from here.
    ///
    /// The system is asked, for the runtime only knows what it saw at its last turn: an answer that nobody asked for and
    /// that lies there already would be taken for the next request's.
    pub(super) fn is_quiet(&self) -> bool {
        let peeked = recv(&self.socket, &mut [0], RecvFlags::PEEK);
        peeked.is_err_and(|error| error == rustix::io::Errno::AGAIN)
    }
}
