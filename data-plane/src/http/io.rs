//! A caller's connection, with the two limits hyper has not: one for a connection that never says anything, and one
//! for a caller that takes nothing of what we write.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep_until},
};

/// What the requests of one connection share with its socket.
#[derive(Debug)]
pub struct Connection {
    write_timeout_ms: AtomicU64,
    stalled: AtomicBool,
}

impl Connection {
    pub(crate) fn new(write_timeout: Duration) -> Arc<Self> {
        let this = Self { write_timeout_ms: AtomicU64::new(0), stalled: AtomicBool::new(false) };
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
        self.stalled.load(Ordering::Relaxed)
    }
}

/// The socket with its limits.
pub(crate) struct Guarded {
    socket: TcpStream,
    connection: Arc<Connection>,
    first_byte: Option<Pin<Box<Sleep>>>,
    write: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl Guarded {
    pub(crate) fn new(socket: TcpStream, connection: Arc<Connection>, first_byte: Duration) -> Self {
        let first_byte = Some(Box::pin(sleep_until(Instant::now() + first_byte)));
        Self { socket, connection, first_byte, write: None, waiting: false }
    }

    /// Called when a write could not go on; ends the connection when that has lasted too long.
    fn stalled(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let limit = self.connection.write_timeout();
        if !self.waiting {
            self.waiting = true;
            let until = Instant::now() + limit;
            match &mut self.write {
                Some(timer) => timer.as_mut().reset(until),
                None => self.write = Some(Box::pin(sleep_until(until))),
            }
        }
        if let Some(timer) = &mut self.write {
            ready!(timer.as_mut().poll(cx));
        }
        self.connection.stall();
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the caller takes nothing"))
    }

    fn written<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match result {
            Poll::Pending => self.stalled(cx).map(Err),
            ready => {
                self.waiting = false;
                ready
            }
        }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        if let Some(timer) = &mut self.first_byte {
            if read.is_ready() {
                self.first_byte = None;
            } else if timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the caller says nothing")));
            }
        }
        read
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.written(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.written(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
