//! A TCP proxy that misbehaves: put it between two processes and cut, freeze or slow what passes.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// What happens to connections and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Bytes pass.
    Pass,
    /// New connections are closed at once; old ones live on.
    Refuse,
    /// Nothing moves; what was sent waits. New connections are accepted and stay silent.
    Freeze,
    /// Every piece waits so long first.
    Delay(Duration),
}

/// Where bytes go.
#[derive(Clone, Debug)]
pub enum Target {
    /// A port.
    Tcp(SocketAddr),
    /// A socket's file.
    Unix(PathBuf),
}

impl From<SocketAddr> for Target {
    fn from(addr: SocketAddr) -> Self {
        Self::Tcp(addr)
    }
}

#[derive(Clone, Copy)]
struct Weather {
    mode: Mode,
    /// Connections older than this die.
    cuts: u64,
    /// Whether they die by a reset.
    harsh: bool,
    /// Connections before this one are mute for ever.
    mute: usize,
}

impl Weather {
    fn moves(&self, number: usize) -> bool {
        self.mode != Mode::Freeze && number >= self.mute
    }
}

/// A running proxy; it ends, with its connections, when dropped.
pub struct ChaosProxy {
    addr: SocketAddr,
    weather: watch::Sender<Weather>,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl ChaosProxy {
    /// Listens on a free port of 127.0.0.1 and forwards to `target`.
    pub async fn start(target: impl Into<Target>) -> Result<Self> {
        Self::over(vec![target.into()], 0).await
    }

    /// Forwards each connection to the next of several targets that takes it, beginning with the one at `first`.
    pub async fn over(targets: Vec<Target>, first: usize) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let weather = watch::Sender::new(Weather { mode: Mode::Pass, cuts: 0, harsh: false, mute: 0 });
        let accepted = Arc::<AtomicUsize>::default();
        let task = tokio::spawn(accept(listener, targets, first, weather.subscribe(), accepted.clone()));
        Ok(Self { addr, weather, accepted, task })
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the weather, for old connections too.
    pub fn set(&self, mode: Mode) {
        self.weather.send_modify(|w| w.mode = mode);
    }

    /// Ends every connection there is; new ones go by the mode.
    pub fn cut(&self) {
        self.weather.send_modify(|w| (w.cuts, w.harsh) = (w.cuts + 1, false));
    }

    /// The same by a reset, as from a peer that has forgotten the connection.
    pub fn reset(&self) {
        self.weather.send_modify(|w| (w.cuts, w.harsh) = (w.cuts + 1, true));
    }

    /// Nothing moves on the connections there are, and nobody is told; new ones work. So forgets a firewall.
    pub fn forget(&self) {
        let so_far = self.accepted();
        self.weather.send_modify(|w| w.mute = so_far);
    }

    /// Connections so far, refused ones included.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    targets: Vec<Target>,
    first: usize,
    weather: watch::Receiver<Weather>,
    accepted: Arc<AtomicUsize>,
) {
    let mut connections = JoinSet::new();
    let targets = Arc::new(targets);
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((near, _)) = listener.accept().await else { continue };
        let number = accepted.fetch_add(1, Ordering::Relaxed);
        let turn = first + number;
        let mut weather = weather.clone();
        let now = *weather.borrow_and_update();
        if now.mode == Mode::Refuse {
            continue;
        }
        let targets = targets.clone();
        connections.spawn(async move {
            let mut cut = weather.clone();
            let mut near = near;
            let harsh = tokio::select! {
                cut = cut.wait_for(|w| w.cuts > now.cuts) => cut.is_ok_and(|w| w.harsh),
                _ = forward(&mut near, &targets, turn, (number, weather)) => false,
            };
            if harsh {
                let _ = SockRef::from(&near).set_linger(Some(Duration::ZERO));
            }
        });
    }
}

async fn forward(
    near: &mut TcpStream,
    targets: &[Target],
    turn: usize,
    (number, mut weather): (usize, watch::Receiver<Weather>),
) -> Result<()> {
    weather.wait_for(|w| w.moves(number)).await?;
    near.set_nodelay(true)?;
    for n in 0..targets.len() {
        match &targets[(turn + n) % targets.len()] {
            Target::Tcp(addr) => {
                let Ok(mut far) = TcpStream::connect(addr).await else { continue };
                far.set_nodelay(true)?;
                return Ok(between(near.split(), far.split(), (number, weather)).await?);
            }
            Target::Unix(path) => {
                let Ok(mut far) = UnixStream::connect(path).await else { continue };
                return Ok(between(near.split(), far.split(), (number, weather)).await?);
            }
        }
    }
    Ok(())
}

async fn between(
    near: (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    far: (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    weather: (usize, watch::Receiver<Weather>),
) -> io::Result<()> {
    tokio::try_join!(pump(near.0, far.1, weather.clone()), pump(far.0, near.1, weather))?;
    Ok(())
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    (number, mut weather): (usize, watch::Receiver<Weather>),
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        let mode = weather.wait_for(|w| w.moves(number)).await.map_err(gone)?.mode;
        if let Mode::Delay(delay) = mode {
            tokio::time::sleep(delay).await;
        }
        if read == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        to.write_all(&buffer[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> Result<(SocketAddr, JoinHandle<()>)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        Ok((addr, task))
    }

    #[tokio::test]
    async fn bytes_pass_freeze_and_pass_again_and_a_cut_ends_them() -> Result<()> {
        let (addr, server) = echo().await?;
        let proxy = ChaosProxy::start(addr).await?;
        let mut stream = TcpStream::connect(proxy.addr()).await?;
        let mut answer = [0; 2];
        stream.write_all(b"ab").await?;
        stream.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"ab");

        proxy.set(Mode::Freeze);
        stream.write_all(b"cd").await?;
        let silent = tokio::time::timeout(Duration::from_millis(50), stream.read_exact(&mut answer)).await;
        assert!(silent.is_err(), "a frozen link said {answer:?}");
        proxy.set(Mode::Pass);
        stream.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"cd");

        proxy.forget();
        stream.write_all(b"ef").await?;
        let silent = tokio::time::timeout(Duration::from_millis(50), stream.read_exact(&mut answer)).await;
        assert!(silent.is_err(), "a forgotten connection said {answer:?}");
        let mut other = TcpStream::connect(proxy.addr()).await?;
        other.write_all(b"gh").await?;
        other.read_exact(&mut answer).await?;
        assert_eq!(&answer, b"gh");

        proxy.cut();
        assert!(matches!(stream.read(&mut answer).await, Ok(0) | Err(_)), "the cut left the connection open");
        server.abort();
        Ok(())
    }
}
