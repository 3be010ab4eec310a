//! A TCP proxy that misbehaves: put it between two processes and cut, freeze or slow what passes.

use std::{net::SocketAddr, time::Duration};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
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

#[derive(Clone, Copy)]
struct Weather {
    mode: Mode,
    /// Connections older than this die.
    cuts: u64,
}

/// A running proxy; it ends, with its connections, when dropped.
pub struct ChaosProxy {
    addr: SocketAddr,
    weather: watch::Sender<Weather>,
    task: JoinHandle<()>,
}

impl ChaosProxy {
    /// Listens on a free port of 127.0.0.1 and forwards to `target`.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let weather = watch::Sender::new(Weather { mode: Mode::Pass, cuts: 0 });
        let task = tokio::spawn(accept(listener, target, weather.subscribe()));
        Ok(Self { addr, weather, task })
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
        self.weather.send_modify(|w| w.cuts += 1);
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, weather: watch::Receiver<Weather>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((near, _)) = listener.accept().await else { continue };
        let mut weather = weather.clone();
        let now = *weather.borrow_and_update();
        if now.mode == Mode::Refuse {
            continue;
        }
        connections.spawn(async move {
            let mut cut = weather.clone();
            tokio::select! {
                _ = cut.wait_for(|w| w.cuts > now.cuts) => {}
                _ = forward(near, target, weather) => {}
            }
        });
    }
}

async fn forward(near: TcpStream, target: SocketAddr, mut weather: watch::Receiver<Weather>) -> Result<()> {
    weather.wait_for(|w| w.mode != Mode::Freeze).await?;
    let far = TcpStream::connect(target).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::try_join!(pump(near_read, far_write, weather.clone()), pump(far_read, near_write, weather))?;
    Ok(())
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        let mode = weather.wait_for(|w| w.mode != Mode::Freeze).await?.mode;
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

        proxy.cut();
        assert!(matches!(stream.read(&mut answer).await, Ok(0) | Err(_)), "the cut left the connection open");
        server.abort();
        Ok(())
    }
}
