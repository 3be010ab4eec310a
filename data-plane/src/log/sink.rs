//! Bytes from many threads to one slow descriptor: a bounded buffer and a thread that empties it in batches.

use std::{
    io::Write,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// What may wait to be written, in bytes.
const CAPACITY: usize = 8 << 20;
/// How long lines are collected before one write.
const BATCH: Duration = Duration::from_millis(4);

/// The shared end: whole lines go in.
#[derive(Debug, Default)]
pub struct Sink {
    state: Mutex<State>,
    filled: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    buffer: Vec<u8>,
    closed: bool,
}

/// Flushes and ends the writing thread when dropped.
#[derive(Debug)]
pub struct Guard {
    sink: Arc<Sink>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Sink {
    /// Starts the thread that writes to `out`.
    #[must_use]
    pub fn start(out: Box<dyn Write + Send>) -> (Arc<Self>, Guard) {
        let sink = Arc::new(Self::default());
        let writer = sink.clone();
        let thread = std::thread::Builder::new().name("log".into()).spawn(move || writer.run(out)).ok();
        (sink.clone(), Guard { sink, thread })
    }

    /// Appends whole lines; drops them when the buffer is full.
    pub fn push(&self, lines: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.buffer.len() + lines.len() > CAPACITY || state.closed {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let was_empty = state.buffer.is_empty();
        state.buffer.extend_from_slice(lines);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Lines lost so far because nobody read them fast enough.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn run(&self, mut out: Box<dyn Write + Send>) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            while state.buffer.is_empty() && !state.closed {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let closed = state.closed;
            drop(state);
            if !closed {
                std::thread::sleep(BATCH);
            }
            batch.clear();
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut state.buffer, &mut batch);
            drop(state);
            // A closed standard error is no reason to stop serving.
            let _ = out.write_all(&batch).and_then(|()| out.flush());
            if batch.capacity() > 1 << 20 {
                batch = Vec::new();
            }
            if closed {
                return;
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.sink.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.sink.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One event's bytes, pushed whole when the writer is dropped.
pub(super) struct Writer {
    sink: Arc<Sink>,
    bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn new(sink: Arc<Sink>) -> Self {
        Self { sink, bytes: Vec::new() }
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.sink.push(&self.bytes);
        }
    }
}
