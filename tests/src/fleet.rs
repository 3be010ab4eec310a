//! A fleet in one process: many proxies' halves of the watch, each with a connection and a view of its own. Each dials, applies
//! what comes, answers, and dials again, as a proxy does; nothing is served from the views.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use spareline_core::{
    session::{Action, ClientSession},
    view::View,
};
use spareline_proto::dataplane::v1::{
    Node, Position, WatchRequest, registry_watch_service_client::RegistryWatchServiceClient,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

/// How soon anything awaited has to happen.
const LIMIT: Duration = Duration::from_secs(60);

/// The fleet; it ends when dropped.
pub struct Fleet {
    /// What its watchers have seen.
    pub board: Arc<Board>,
    _tasks: JoinSet<()>,
}

/// What the watchers say of themselves.
pub struct Board {
    seats: Vec<Seat>,
    sights: Mutex<Vec<Sight>>,
    epoch: Mutex<String>,
    started: Instant,
}

#[derive(Default)]
struct Seat {
    connected: AtomicBool,
    revision: AtomicI64,
    digest: AtomicU64,
    welcomes: AtomicUsize,
    resumed: AtomicUsize,
    snapshots: AtomicUsize,
}

/// One watcher put one view in force.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    /// Which, from 0.
    pub watcher: usize,
    /// Where the view leads.
    pub revision: i64,
    /// When it was put in force.
    pub at: Instant,
}

/// What happened so far, over all watchers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Watchers with a session now.
    pub connected: usize,
    /// Sessions opened.
    pub welcomes: usize,
    /// Of these, those that went on from what was held.
    pub resumed: usize,
    /// Snapshots applied.
    pub snapshots: usize,
}

impl Fleet {
    /// So many watchers of one control plane.
    pub fn start(to: SocketAddr, count: usize) -> Self {
        Self::through(&vec![to; count])
    }

    /// One watcher for each address.
    pub fn through(addresses: &[SocketAddr]) -> Self {
        let board = Arc::new(Board {
            seats: addresses.iter().map(|_| Seat::default()).collect(),
            sights: Mutex::default(),
            epoch: Mutex::default(),
            started: Instant::now(),
        });
        let mut tasks = JoinSet::new();
        for (n, to) in addresses.iter().enumerate() {
            tasks.spawn(watch(board.clone(), n, *to));
        }
        Self { board, _tasks: tasks }
    }

    /// Waits until all of `who` serve at least `revision`.
    ///
    /// # Errors
    /// When that takes more than a minute.
    pub async fn reach(&self, who: std::ops::Range<usize>, revision: i64) -> Result<()> {
        let start = Instant::now();
        let seats = self.board.seats.get(who).unwrap_or_default();
        while seats.iter().any(|seat| seat.revision.load(Relaxed) < revision) {
            let left = seats.iter().filter(|seat| seat.revision.load(Relaxed) < revision).count();
            ensure!(start.elapsed() < LIMIT, "{left} watchers do not reach revision {revision}");
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Waits until the tally is as wanted.
    ///
    /// # Errors
    /// When that takes more than a minute.
    pub async fn until(&self, wanted: impl Fn(&Tally) -> bool) -> Result<Tally> {
        let start = Instant::now();
        loop {
            let tally = self.board.tally();
            if wanted(&tally) {
                return Ok(tally);
            }
            ensure!(start.elapsed() < LIMIT, "the fleet does not settle: {tally:?}");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Board {
    /// How many watchers there are.
    pub fn count(&self) -> usize {
        self.seats.len()
    }

    /// What happened so far.
    pub fn tally(&self) -> Tally {
        self.seats.iter().fold(Tally::default(), |sum, seat| Tally {
            connected: sum.connected + usize::from(seat.connected.load(Relaxed)),
            welcomes: sum.welcomes + seat.welcomes.load(Relaxed),
            resumed: sum.resumed + seat.resumed.load(Relaxed),
            snapshots: sum.snapshots + seat.snapshots.load(Relaxed),
        })
    }

    /// All sights since the last call; those of one watcher in order of time.
    pub fn take_sights(&self) -> Vec<Sight> {
        std::mem::take(&mut *self.sights.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether all hold the same.
    pub fn agree(&self) -> bool {
        let mut digests = self.seats.iter().map(|seat| seat.digest.load(Relaxed));
        let first = digests.next();
        digests.all(|digest| Some(digest) == first)
    }

    /// What the first watcher holds, as far as verdicts need it.
    pub fn position(&self) -> Position {
        let epoch = self.epoch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let revision = self.seats.first().map_or(0, |seat| seat.revision.load(Relaxed));
        Position { epoch, revision, digest: 0 }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A connection as a proxy makes it.
///
/// # Errors
/// Never for an address of ours.
pub fn endpoint(to: SocketAddr) -> Result<Endpoint> {
    Ok(Endpoint::from_shared(format!("http://{to}"))?
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true))
}

async fn watch(board: Arc<Board>, n: usize, to: SocketAddr) {
    let node = Node {
        proxy_id: format!("bench-{n}"),
        instance_id: uuid::Uuid::now_v7().to_string(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        groups: vec!["default".to_owned()],
        ..Default::default()
    };
    let seed = u64::try_from(n).unwrap_or_default();
    let mut session = ClientSession::new(node, Arc::new(View::empty(seed)), board.now());
    loop {
        if let Some(at) = session.dial_at() {
            sleep_until(board.started + at).await;
        }
        let _ = one(&board, n, to, &mut session).await;
        board.seats[n].connected.store(false, Relaxed);
        session.disconnected(board.now(), &mut rand::rng());
    }
}

/// One connection, until it ends.
async fn one(board: &Board, n: usize, to: SocketAddr, session: &mut ClientSession) -> Result<()> {
    let channel = timeout(Duration::from_secs(10), endpoint(to)?.connect()).await??;
    let mut client = RegistryWatchServiceClient::new(channel);
    let (say, said) = mpsc::channel::<WatchRequest>(16);
    say.try_send(session.connected(board.now()))?;
    let opened = timeout(Duration::from_secs(10), client.watch(ReceiverStream::new(said))).await??;
    let mut incoming = opened.into_inner();
    loop {
        let until = session.next_timer().map_or(LIMIT, |at| at.saturating_sub(board.now()));
        let actions = match timeout(until, incoming.message()).await {
            Ok(message) => match message? {
                Some(message) => session.received(message, board.now()),
                None => return Ok(()),
            },
            Err(_) => session.tick(board.now()),
        };
        for action in actions {
            match action {
                Action::Send(request) => say.try_send(request)?,
                Action::Publish(published) => board.applied(n, &published.view, published.snapshot),
                Action::Welcomed(welcome) => {
                    let seat = &board.seats[n];
                    seat.resumed.fetch_add(usize::from(welcome.resumed), Relaxed);
                    seat.welcomes.fetch_add(1, Relaxed);
                    seat.connected.store(true, Relaxed);
                }
                Action::Close(_) => return Ok(()),
                Action::Warn(_) => {}
            }
        }
    }
}

impl Board {
    fn applied(&self, n: usize, view: &View, snapshot: bool) {
        let sight = Sight { watcher: n, revision: view.revision().0, at: Instant::now() };
        self.sights.lock().unwrap_or_else(PoisonError::into_inner).push(sight);
        if snapshot {
            let mut epoch = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
            if **view.epoch() != *epoch {
                *epoch = view.epoch().to_string();
            }
        }
        let seat = &self.seats[n];
        seat.snapshots.fetch_add(usize::from(snapshot), Relaxed);
        seat.digest.store(view.items().digest(), Relaxed);
        seat.revision.store(sight.revision, Relaxed);
    }
}
