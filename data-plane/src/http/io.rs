//! A caller's connection, with the two limits hyper has not: one for a connection that never says anything, and one
//! for a caller that takes nothing of what we write.
//!
//! The socket is shared with the answers of its requests: a stream may be written beside hyper ([`Through`]), whenever
//! hyper holds nothing back itself.
//!
//! [`Through`]: super::through::Through

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{Instant, Sleep, sleep_until},
};

/// What the requests of one connection share with its socket.
#[derive(Debug)]
pub struct Connection {
    write_timeout_ms: AtomicU64,
    stalled: AtomicBool,
    /// The request under way takes an answer in chunks.
    chunks: AtomicBool,
    /// All that hyper was given has gone to the socket.
    flushed: AtomicBool,
    /// The socket's writing half. `None`: none was given, or it is closed.
    socket: Mutex<Option<Socket>>,
    /// The connection that this is one stream of.
    beneath: Option<Arc<Connection>>,
}

#[derive(Debug)]
struct Socket {
    stream: OwnedWriteHalf,
    write: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl Connection {
    pub(crate) fn new(write_timeout: Duration) -> Arc<Self> {
        Self::make(write_timeout, None)
    }

    /// One HTTP/2 stream of a connection: it may stall alone, and does when the connection does.
    pub(crate) fn stream_of(connection: &Arc<Self>, write_timeout: Duration) -> Arc<Self> {
        Self::make(write_timeout, Some(connection.clone()))
    }

    fn make(write_timeout: Duration, beneath: Option<Arc<Self>>) -> Arc<Self> {
        let this = Self {
            write_timeout_ms: AtomicU64::new(0),
            stalled: AtomicBool::new(false),
            chunks: AtomicBool::new(false),
            flushed: AtomicBool::new(false),
            socket: Mutex::default(),
            beneath,
        };
        this.set_write_timeout(write_timeout);
        Arc::new(this)
    }

    /// From now on a caller may take nothing for this long.
    pub(crate) fn set_write_timeout(&self, limit: Duration) {
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.write_timeout_ms.store(ms, Ordering::Relaxed);
    }

    /// The limit in force.
    pub(crate) fn write_timeout(&self) -> Duration {
        Duration::from_millis(self.write_timeout_ms.load(Ordering::Relaxed))
    }

    /// The caller took nothing for too long.
    pub(crate) fn stall(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    /// Whether the connection ended because the caller took nothing.
    pub(crate) fn stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed) || self.beneath.as_ref().is_some_and(|beneath| beneath.stalled())
    }

    /// A request has come; `chunks`: its answer may come in chunks.
    pub(crate) fn begin(&self, chunks: bool) {
        self.chunks.store(chunks, Ordering::Relaxed);
    }

    /// Whether the answer of the request under way goes out in chunks, if its length is not known.
    pub(crate) fn takes_chunks(&self) -> bool {
        self.chunks.load(Ordering::Relaxed)
    }

    /// Whether all that hyper was given has gone to the socket, so that something may be written beside it.
    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// Hyper is given something.
    pub(crate) fn unflushed(&self) {
        self.flushed.store(false, Ordering::Relaxed);
    }

    /// Writes; fails once the caller has taken nothing for too long.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write_with(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn write_with(
        &self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut OwnedWriteHalf>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut socket = self.lock();
        let Some(socket) = &mut *socket else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        match write(Pin::new(&mut socket.stream), cx) {
            Poll::Pending => self.poll_stalled(socket, cx).map(Err),
            ready => {
                socket.waiting = false;
                ready
            }
        }
    }

    /// Called when a write could not go on; ends the connection when that has lasted too long.
    fn poll_stalled(&self, socket: &mut Socket, cx: &mut Context<'_>) -> Poll<io::Error> {
        if !socket.waiting {
            socket.waiting = true;
            let until = Instant::now() + self.write_timeout();
            match &mut socket.write {
                Some(timer) => timer.as_mut().reset(until),
                None => socket.write = Some(Box::pin(sleep_until(until))),
            }
        }
        if let Some(timer) = &mut socket.write {
            ready!(timer.as_mut().poll(cx));
        }
        self.stall();
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the caller takes nothing"))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Socket>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket with its limits, as hyper has it. Dropping it closes the socket.
pub(crate) struct Guarded {
    /// Only hyper reads, so that nothing has to be locked for it.
    read: OwnedReadHalf,
    connection: Arc<Connection>,
    first_byte: Option<Pin<Box<Sleep>>>,
}

impl Guarded {
    pub(crate) fn new(stream: TcpStream, connection: Arc<Connection>, first_byte: Duration) -> Self {
        let (read, stream) = stream.into_split();
        *connection.lock() = Some(Socket { stream, write: None, waiting: false });
        let first_byte = Some(Box::pin(sleep_until(Instant::now() + first_byte)));
        Self { read, connection, first_byte }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        *self.connection.lock() = None;
    }
}

impl AsyncRead for Guarded {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.read).poll_read(cx, buf);
        if let Some(timer) = &mut this.first_byte {
            if read.is_ready() {
                this.first_byte = None;
            } else if timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the caller says nothing")));
            }
        }
        read
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.connection.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.connection.write_with(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.lock().as_ref().is_some_and(|socket| socket.stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The socket itself has nothing to flush; hyper asks once it has written all it had.
        self.connection.flushed.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self.connection.lock() {
            Some(socket) => Pin::new(&mut socket.stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}
