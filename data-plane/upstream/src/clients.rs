//! Connections: one pool per way through the network, shared by the channels that do not differ in it, kept across
//! registry updates of unchanged channels and dropped with the last channel that used it.
//!
//! A [`Clients`] is cheap, and one per worker thread is meant to be possible: [`Clients::sibling`] shares the limits
//! on connections, not the pools. Names are resolved anew for every connection.

mod pool;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::{HeaderValue, Uri};
use spareline_core::spec::ChannelSpec;
use spareline_core::{ChannelId, Provider};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

use self::pool::Pool;
use crate::base_url::Base;
use crate::target::{Network, Target};

/// Attempts given up in a row after which connections are made anew.
const SILENT: u32 = 3;

/// Bounds for all pools.
#[derive(Clone, Debug)]
pub struct ClientsConfig {
    /// Idle connections are closed after this; below what upstreams usually keep (**15 s**; some close at 20 s).
    pub pool_idle: Duration,
    /// Idle connections kept per host (**256**).
    pub pool_max_idle_per_host: usize,
    /// Most requests at once per channel where it does not say (**1024**).
    pub max_connections: u32,
}

/// The lines in use and their pools.
#[derive(Debug)]
pub struct Clients {
    config: ClientsConfig,
    lines: Mutex<HashMap<ChannelId, Arc<Line>>>,
    pools: Mutex<HashMap<Network, Weak<Pool>>>,
    permits: Arc<Permits>,
}

/// One channel, ready to be spoken to.
#[derive(Debug)]
pub struct Line {
    target: Target,
    base: Base,
    pool: Arc<Pool>,
    permits: Arc<Semaphore>,
    /// Where the last call went: mostly the next one goes there too, and URLs are dear to make.
    last: Mutex<Option<Last>>,
    /// It refused to be asked for usage.
    refuses_usage: AtomicBool,
    /// Attempts in a row that were given up before a head came.
    silent: AtomicU32,
}

/// The URL of a call, in the forms that are needed.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) url: Url,
    pub(crate) uri: Uri,
    /// Path and query alone.
    pub(crate) origin: Uri,
    /// The value of `host`.
    pub(crate) host: HeaderValue,
}

#[derive(Debug)]
struct Last {
    path: String,
    deployment: Option<String>,
    place: Arc<Place>,
}

/// Limits on connections, shared by siblings: per channel the limit and its semaphore.
#[derive(Debug, Default)]
struct Permits(Mutex<HashMap<ChannelId, (u32, Arc<Semaphore>)>>);

/// Why a channel cannot be spoken to: its network options do not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// `proxy_url` is not usable.
    #[error("proxy_url is not a usable proxy URL")]
    Proxy,
    /// `ca_pem` holds no usable certificate.
    #[error("ca_pem holds no usable certificate")]
    Certificates,
    /// The TLS or HTTP client could not be made.
    #[error("cannot make a client: {0}")]
    Client(String),
}

impl Default for ClientsConfig {
    fn default() -> Self {
        Self { pool_idle: Duration::from_secs(15), pool_max_idle_per_host: 256, max_connections: 1024 }
    }
}

// === impl Clients ===

impl Clients {
    /// No lines yet.
    pub fn new(config: ClientsConfig) -> Self {
        Self { config, lines: Mutex::default(), pools: Mutex::default(), permits: Arc::default() }
    }

    /// For another worker thread: pools of its own, the same limits on connections.
    pub fn sibling(&self) -> Self {
        Self { permits: self.permits.clone(), ..Self::new(self.config.clone()) }
    }

    /// The line of a channel. Cheap (a lock and a map lookup) while its revision is the one already known; otherwise
    /// it is built, on the same pool where the network options are unchanged.
    ///
    /// # Errors
    /// The network options do not work.
    pub fn line_of(&self, spec: &ChannelSpec) -> Result<Arc<Line>, LineError> {
        self.line(spec.id, spec.spec_revision.0, || Target::from(spec))
    }

    /// As [`Self::line_of`], for a target made otherwise; `make` is only called where the revision is a new one.
    ///
    /// # Errors
    /// The network options do not work.
    pub fn line(
        &self,
        channel: ChannelId,
        revision: i64,
        make: impl FnOnce() -> Target,
    ) -> Result<Arc<Line>, LineError> {
        if let Some(line) = lock(&self.lines).get(&channel)
            && line.target.revision == revision
        {
            return Ok(line.clone());
        }
        let line = Arc::new(self.build(make())?);
        lock(&self.lines).insert(channel, line.clone());
        Ok(line)
    }

    /// Drops the lines of channels that are no more, and the pools that nobody uses any more.
    pub fn retain(&self, live: impl Fn(ChannelId) -> bool) {
        lock(&self.lines).retain(|channel, _| live(*channel));
        lock(&self.pools).retain(|_, pool| pool.strong_count() > 0);
        lock(&self.permits.0).retain(|channel, _| live(*channel));
    }

    fn build(&self, target: Target) -> Result<Line, LineError> {
        let base = match target.provider {
            Provider::AzureOpenAi => Base::azure(&target.base_url, target.api_version.as_deref()),
            _ => Base::new(&target.base_url),
        };
        // How many may be in use has no bearing on the way there.
        let key = Network { max_connections: None, ..target.network.clone() };
        let known = lock(&self.pools).get(&key).and_then(Weak::upgrade);
        let pool = match known {
            Some(pool) => pool,
            None => {
                let pool = Arc::new(Pool::new(key.clone(), &self.config)?);
                lock(&self.pools).insert(key, Arc::downgrade(&pool));
                pool
            }
        };
        let limit =
            target.network.max_connections.filter(|limit| *limit > 0).unwrap_or(self.config.max_connections);
        let permits = self.permits.of(target.channel, limit);
        Ok(Line {
            target,
            base,
            pool,
            permits,
            last: Mutex::default(),
            refuses_usage: AtomicBool::new(false),
            silent: AtomicU32::new(0),
        })
    }
}

impl Permits {
    fn of(&self, channel: ChannelId, limit: u32) -> Arc<Semaphore> {
        let mut all = lock(&self.0);
        match all.get(&channel) {
            Some((known, permits)) if *known == limit => permits.clone(),
            _ => {
                let permits = Arc::new(Semaphore::new(limit as usize));
                all.insert(channel, (limit, permits.clone()));
                permits
            }
        }
    }
}

// === impl Line ===

impl Line {
    /// What it was made from.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The URL of a call, as [`Base::join`] makes it. `None`: the path makes no URL below the base.
    pub(crate) fn place(
        &self,
        path: &str,
        query: Option<&str>,
        deployment: Option<&str>,
    ) -> Option<Arc<Place>> {
        let make = || {
            let url = self.base.join(path, query, deployment)?;
            let uri: Uri = url.as_str().parse().ok()?;
            let origin = Uri::from(uri.path_and_query()?.clone());
            // Without the scheme's own port, which a URL does not keep.
            let host = HeaderValue::from_str(uri.authority()?.as_str()).ok()?;
            Some(Arc::new(Place { url, uri, origin, host }))
        };
        // A query is its caller's own, and may be long.
        if query.is_some() {
            return make();
        }
        let mut last = lock(&self.last);
        if let Some(last) = last.as_ref().filter(|l| l.path == path && l.deployment.as_deref() == deployment)
        {
            return Some(last.place.clone());
        }
        let place = make()?;
        let deployment = deployment.map(str::to_owned);
        *last = Some(Last { path: path.to_owned(), deployment, place: place.clone() });
        Some(place)
    }

    /// Whether it refused to be asked for usage where the caller had not.
    pub(crate) fn refuses_usage(&self) -> bool {
        self.refuses_usage.load(Ordering::Relaxed)
    }

    /// It does; known until the channel changes.
    pub(crate) fn refused_usage(&self) {
        self.refuses_usage.store(true, Ordering::Relaxed);
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A head has come.
    pub(crate) fn heard(&self) {
        // Hardly ever to be changed, and shared by the streams of a worker.
        if self.silent.load(Ordering::Relaxed) != 0 {
            self.silent.store(0, Ordering::Relaxed);
        }
    }

    /// An attempt that began with the pool's clients of this generation was given up before a head came. After a few in a row
    /// their connections are no longer trusted: over HTTP/2 giving up ends a stream, and the next one would go the same way.
    pub(crate) fn unheard(&self, generation: u32) {
        if generation == self.pool.generation() && self.silent.fetch_add(1, Ordering::Relaxed) + 1 >= SILENT {
            self.silent.store(0, Ordering::Relaxed);
            self.pool.retire(generation);
        }
    }

    /// A place among the channel's connections, where there is one.
    pub(crate) fn permit_now(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// A place among the channel's connections; waits for one.
    pub(crate) async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        self.permits.clone().acquire_owned().await.ok()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
