//! Callers' connections: one acceptor hands each to the worker with the fewest, a worker being a thread with a
//! runtime, timers and upstream pools of its own.
//!
//! Why not one listener per worker: connections then stay where the kernel puts them, and a sidecar's few, long ones
//! may all land on one core. Why not one runtime for all: its work stealing costs a quarter more CPU per request.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;

use super::{
    front::Front,
    io::{Connection, Guarded},
    stopping::Ask,
};
use crate::{failover::Worker, state::Shared};

/// Connections that a worker has not picked up yet.
const BACKLOG: usize = 1024;

/// How a worker is reached.
#[derive(Debug)]
pub struct Seat {
    connections: mpsc::Sender<std::net::TcpStream>,
    live: Arc<AtomicUsize>,
}

/// A worker's thread.
#[derive(Debug)]
pub struct Thread {
    seat: Seat,
    join: std::thread::JoinHandle<()>,
}

/// Starts a worker per configured thread.
///
/// # Errors
/// A thread or its runtime could not be made.
pub fn start_workers(shared: &Arc<Shared>) -> std::io::Result<Vec<Thread>> {
    let clients = spareline_upstream::Clients::new(spareline_upstream::ClientsConfig::default());
    (0..shared.config.workers)
        .map(|n| {
            let (connections, arriving) = mpsc::channel(BACKLOG);
            let live = Arc::new(AtomicUsize::new(0));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let worker = Arc::new(Worker::new(shared.clone(), clients.sibling()));
            let counted = live.clone();
            let join = std::thread::Builder::new()
                .name(format!("worker-{n}"))
                .spawn(move || runtime.block_on(work(worker, arriving, counted)))?;
            Ok(Thread { seat: Seat { connections, live }, join })
        })
        .collect()
}

/// Accepts until told to stop, then lets the workers finish; returns once all of them have.
pub async fn accept(
    shared: Arc<Shared>,
    listener: TcpListener,
    threads: Vec<Thread>,
    stop: CancellationToken,
) {
    let (seats, joins): (Vec<Seat>, Vec<_>) = threads.into_iter().map(|t| (t.seat, t.join)).unzip();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, peer)) => hand_over(&shared, &seats, socket, peer),
            Err(error) => {
                // Out of descriptors, or a caller that left in the backlog: neither ends the listener.
                tracing::warn!(event = "accept_failed", %error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    drop(seats);
    let _ = tokio::task::spawn_blocking(move || joins.into_iter().for_each(|j| drop(j.join()))).await;
}

fn hand_over(shared: &Shared, seats: &[Seat], socket: tokio::net::TcpStream, peer: SocketAddr) {
    let total: usize = seats.iter().map(|s| s.live.load(Ordering::Relaxed)).sum();
    if total >= shared.config.max_connections {
        tracing::warn!(event = "connection_refused", %peer, total, "too many connections");
        return;
    }
    let _ = socket.set_nodelay(true);
    let Some(seat) = seats.iter().min_by_key(|s| s.live.load(Ordering::Relaxed)) else { return };
    match socket.into_std() {
        Ok(socket) => {
            seat.live.fetch_add(1, Ordering::Relaxed);
            if seat.connections.try_send(socket).is_err() {
                seat.live.fetch_sub(1, Ordering::Relaxed);
                tracing::warn!(event = "connection_refused", %peer, "the worker's backlog is full");
            }
        }
        Err(error) => tracing::warn!(event = "accept_failed", %error, "cannot hand a connection over"),
    }
}

/// One worker's life.
async fn work(
    worker: Arc<Worker>,
    mut arriving: mpsc::Receiver<std::net::TcpStream>,
    live: Arc<AtomicUsize>,
) {
    let config = &worker.shared.config;
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_read_timeout)
        .max_buf_size(64 << 10)
        .half_close(false);
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(1000)
        .max_header_list_size(64 << 10);
    let http = Arc::new(http);
    let upkeep = tokio::spawn(crate::failover::upkeep(worker.clone()));
    let cutting = tokio::spawn({
        let worker = worker.clone();
        async move {
            worker.shared.cutting().await;
            worker.stopping.ask(Ask::Cut);
        }
    });
    // Closed once the last connection has let go of its end.
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    while let Some(socket) = arriving.recv().await {
        let Ok(socket) = tokio::net::TcpStream::from_std(socket) else {
            live.fetch_sub(1, Ordering::Relaxed);
            continue;
        };
        let connection = Connection::new(Duration::from_secs(60));
        let io = TokioIo::new(Guarded::new(socket, connection.clone(), config.first_byte_timeout));
        let front = Front::new(worker.clone(), connection);
        let served = http.serve_connection(io, front).into_owned();
        let place = Place::take(live.clone(), worker.shared.clone());
        let (worker, alive) = (worker.clone(), alive.clone());
        tokio::spawn(async move {
            // What goes wrong with a connection is the caller's business; requests log their own endings.
            let _ = worker.stopping.serve(served, |served| served.graceful_shutdown()).await;
            drop((place, alive));
        });
    }
    drop(alive);
    worker.stopping.ask(Ask::Drain);
    let limit = config.drain_timeout + Duration::from_secs(3);
    let _ = tokio::time::timeout(limit, async {
        tokio::select! {
            _ = all_gone.recv() => {}
            () = worker.shared.gone.cancelled() => {}
        }
    })
    .await;
    upkeep.abort();
    cutting.abort();
}

/// Counts a connection while it lives.
struct Place {
    live: Arc<AtomicUsize>,
    shared: Arc<Shared>,
}

impl Place {
    fn take(live: Arc<AtomicUsize>, shared: Arc<Shared>) -> Self {
        shared.metrics.connections.inc();
        Self { live, shared }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        self.shared.metrics.connections.dec();
    }
}
