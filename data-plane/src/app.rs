//! Puts the parts together, and takes them down in order.
//!
//! Threads: the workers (traffic), the control thread (watch, reports, admin port), the log writer, and the caller's
//! own, which only accepts connections and waits for the end. Every task is started here or in a worker and ends
//! before [`Proxy::run`] returns.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

use crate::{
    admin,
    config::Config,
    http::serve,
    lkg,
    log::Logger,
    metrics::Channels,
    report,
    standalone::{self, Source},
    state::Shared,
    watch,
};

/// A proxy that listens, but does not serve yet.
pub struct Proxy {
    shared: Arc<Shared>,
    http: TcpListener,
    admin: std::net::TcpListener,
    http_addr: SocketAddr,
    admin_addr: SocketAddr,
}

/// How a running proxy is told to end.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Finish what runs, within `drain_timeout`.
    pub drain: CancellationToken,
    /// Do not wait any longer.
    pub force: CancellationToken,
}

impl Proxy {
    /// Takes the ports.
    ///
    /// # Errors
    /// A port cannot be had.
    pub fn bind(config: Config, logger: Logger) -> std::io::Result<Self> {
        spareline_upstream::install_tls();
        let http = listen(config.listen)?;
        let http_addr = http.local_addr()?;
        let admin = listen(config.admin_listen)?.into_std()?;
        let admin_addr = admin.local_addr()?;
        let shared = Arc::new(Shared::new(config, logger));
        shared.metrics.collector(Box::new(Channels(Arc::downgrade(&shared))));
        Ok(Self { shared, http, admin, http_addr, admin_addr })
    }

    /// Where callers connect.
    #[must_use]
    pub fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// Where the admin port is.
    #[must_use]
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// What the parts share; for tests, which put a registry in force without a control plane.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Serves until `stop`, then drains.
    ///
    /// # Errors
    /// A thread could not be started, or the file of channels cannot be used.
    pub async fn run(self, stop: Stop) -> std::io::Result<()> {
        let Self { shared, http, admin, http_addr, admin_addr } = self;
        let keeper = lkg::restore(&shared);
        let source = standalone::begin(&shared)?;
        let workers = serve::start_workers(&shared)?;
        let control = Control::start(shared.clone(), admin, keeper, source)?;
        tracing::info!(
            event = "listening",
            http_addr = %http_addr,
            admin_addr = %admin_addr,
            proxy_id = %shared.config.proxy_id,
            workers = shared.config.workers,
            version = env!("CARGO_PKG_VERSION"),
            "listening"
        );
        let drain = stop.drain.clone();
        let mut serving = tokio::spawn(serve::accept(shared.clone(), http, workers, drain));
        stop.drain.cancelled().await;
        shared.begin_drain();
        let limit = shared.config.drain_timeout;
        tracing::info!(
            event = "draining",
            limit_s = limit.as_secs_f64(),
            "no new connections, finishing requests"
        );
        let in_time = tokio::select! {
            _ = &mut serving => true,
            () = tokio::time::sleep(limit) => false,
            () = stop.force.cancelled() => false,
        };
        if !in_time {
            tracing::warn!(event = "drain_cut", "cutting what still runs");
            shared.cut();
            let grace =
                if stop.force.is_cancelled() { Duration::from_millis(500) } else { Duration::from_secs(2) };
            if tokio::time::timeout(grace, &mut serving).await.is_err() {
                shared.gone.cancel();
                let _ = tokio::time::timeout(Duration::from_secs(1), &mut serving).await;
            }
        }
        control.stop().await;
        tracing::info!(event = "stopped", "stopped");
        Ok(())
    }
}

/// A listener that can be taken again at once after a restart.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(4096)
}

/// The control thread: watch, reports, the registry on disk, admin port.
struct Control {
    stop: CancellationToken,
    thread: std::thread::JoinHandle<()>,
}

impl Control {
    fn start(
        shared: Arc<Shared>,
        admin: std::net::TcpListener,
        keeper: Option<lkg::Keeper>,
        source: Option<Source>,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            runtime.block_on(async move {
                if let Ok(listener) = TcpListener::from_std(admin) {
                    tokio::spawn(admin::serve(shared.clone(), listener));
                }
                let keeping =
                    keeper.map(|keeper| tokio::spawn(lkg::keep(shared.clone(), keeper, stopped.clone())));
                let (following, reporting) = match source {
                    Some(source) => (tokio::spawn(standalone::follow(shared.clone(), source)), None),
                    None => (
                        tokio::spawn(watch::run(shared.clone())),
                        Some(tokio::spawn(report::run(shared.clone(), stopped.clone()))),
                    ),
                };
                stopped.cancelled().await;
                following.abort();
                // What was learnt last is worth a moment: other proxies need it, and so do we at the next start.
                for task in reporting.into_iter().chain(keeping) {
                    let _ = tokio::time::timeout(Duration::from_secs(2), task).await;
                }
            });
        })?;
        Ok(Self { stop, thread })
    }

    async fn stop(self) {
        self.stop.cancel();
        let thread = self.thread;
        let _ = tokio::task::spawn_blocking(move || drop(thread.join())).await;
    }
}
