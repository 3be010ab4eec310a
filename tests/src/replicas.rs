//! Several control planes over one database, each of them, and whoever watches them, behind a chaos proxy of its own.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use spareline_core::items::Items;
use spareline_proto::{
    admin::v1::channel_admin_service_client::ChannelAdminServiceClient, registry::v1 as registry,
};
use tokio::time::{Instant, sleep};
use tonic::transport::Channel as Link;

use crate::{
    chaos::{ChaosProxy, Target},
    database::Database,
    provider::Provider,
    stack::{Control, Proxy},
    watcher::Watcher,
};

/// One control plane.
pub struct Replica {
    /// The process and how to call it.
    pub control: Control,
    /// Between it and the database.
    pub database: ChaosProxy,
}

/// Everything; it ends when dropped.
pub struct Replicas {
    /// The control planes.
    pub all: Vec<Replica>,
    /// Sidecars, each with the wire it watches over.
    pub proxies: Vec<(Proxy, ChaosProxy)>,
    /// Plain watch clients, with theirs.
    pub watchers: Vec<(Watcher, ChaosProxy)>,
    /// The upstream of every channel.
    pub provider: Provider,
    /// What they share.
    pub database: Database,
}

impl Replicas {
    /// Starts so many control planes over an empty database.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(count: usize) -> Result<Self> {
        let database = Database::start().await?;
        let provider = Provider::start().await?;
        let mut all = Vec::new();
        for n in 1..=count {
            all.push(Replica::start(&format!("control-{n}"), &database).await?);
        }
        Ok(Self { all, proxies: Vec::new(), watchers: Vec::new(), provider, database })
    }

    /// Adds sidecars; each connection of theirs goes to the next replica.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn add_proxies(&mut self, count: usize, arguments: &[String]) -> Result<()> {
        for n in 1..=count {
            let wire = self.wire(n).await?;
            self.proxies.push((Proxy::start(&format!("proxy-{n}"), wire.addr(), arguments).await?, wire));
        }
        Ok(())
    }

    /// Adds watch clients; each connection of theirs goes to the next replica.
    ///
    /// # Errors
    /// When there is no port left.
    pub async fn add_watchers(&mut self, count: usize) -> Result<()> {
        for n in 1..=count {
            let wire = self.wire(n).await?;
            self.watchers.push((Watcher::start(&format!("watcher-{n}"), wire.addr()), wire));
        }
        Ok(())
    }

    async fn wire(&self, first: usize) -> Result<ChaosProxy> {
        ChaosProxy::over(self.all.iter().map(|r| Target::Tcp(r.control.data)).collect(), first).await
    }

    /// One of the control planes.
    ///
    /// # Errors
    /// When there is no such replica.
    fn control(&self, replica: usize) -> Result<&Control> {
        Ok(&self.all.get(replica).context("no such replica")?.control)
    }

    /// The operator's API of one.
    ///
    /// # Errors
    /// When there is no such replica.
    pub fn admin(&self, replica: usize) -> Result<ChannelAdminServiceClient<Link>> {
        self.control(replica)?.channels()
    }

    /// A channel to the provider, as [`Provider::channel`].
    pub fn channel(&self, name: &str, model: &str) -> registry::Channel {
        self.provider.channel(name, model)
    }

    /// Creates a channel through one replica.
    ///
    /// # Errors
    /// When it refuses.
    pub async fn create(
        &self,
        replica: usize,
        channel: registry::Channel,
        secrets: &[&str],
    ) -> Result<registry::Channel> {
        self.control(replica)?.create(channel, secrets).await
    }

    /// Waits until the database, every replica, every proxy and every watcher hold the same, and returns it.
    ///
    /// # Errors
    /// When that takes too long; with where each stands.
    pub async fn agree(&self, limit: Duration) -> Result<(i64, Items)> {
        let start = Instant::now();
        let fresh: Vec<_> =
            self.all.iter().map(|r| (Watcher::start("fresh", r.control.data), r.control.data)).collect();
        loop {
            let (head, items) = self.database.registry("default").await?;
            let epoch = head.epoch.to_string();
            let mut apart = Vec::new();
            let watchers = self.watchers.iter().map(|(w, wire)| (w, wire.addr()));
            for (watcher, at) in watchers.chain(fresh.iter().map(|(w, at)| (w, *at))) {
                let seen = watcher.seen();
                let position = seen.position.as_ref();
                if !position.is_some_and(|p| p.epoch == epoch && p.digest == items.digest()) {
                    apart.push(format!("{at}: {:?} ({})", position, seen.ended));
                }
            }
            for (proxy, _) in &self.proxies {
                let position = proxy.position().await?;
                if position.epoch != epoch || position.digest != items.digest() {
                    apart.push(format!("{}: {position:?}", proxy.id));
                }
            }
            if apart.is_empty() && self.database.registry("default").await?.0 == head {
                return Ok((head.revision, items));
            }
            let late = start.elapsed() > limit;
            ensure!(!late, "the database is at {head:?}, {:016x}; apart: {apart:#?}", items.digest());
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Every breach of the watch's promises that a watcher saw.
    pub fn faults(&self) -> Vec<String> {
        self.watchers.iter().flat_map(|(w, _)| w.seen().faults).collect()
    }

    /// How many sidecars and watch clients there are, and so how many wires.
    pub fn wires(&self) -> impl Iterator<Item = &ChaosProxy> {
        self.proxies.iter().map(|(_, wire)| wire).chain(self.watchers.iter().map(|(_, wire)| wire))
    }
}

impl Replica {
    /// Starts one on free ports over its own wire to the database.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn start(name: &str, database: &Database) -> Result<Self> {
        let wire = ChaosProxy::start(database.target()).await?;
        let url = Database::url(wire.addr());
        let arguments = ["--database-url", &url, "--replica-id", name].map(str::to_owned);
        let control = Control::start(name, arguments).await?;
        Ok(Self { control, database: wire })
    }

    /// Where it serves operators.
    pub const fn admin(&self) -> SocketAddr {
        self.control.admin
    }
}
