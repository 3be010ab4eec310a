//! The HTTP clients of one way through the network: one per connect timeout (a property of the connector), and beside
//! each one that never pools, for replays.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Certificate, Client, ClientBuilder, Proxy};

use super::{ClientsConfig, LineError};
use crate::dial::{self, DialLayer};
use crate::direct::Direct;
use crate::request::Built;
use crate::source::Incoming;
use crate::target::Network;
use crate::transport;

#[derive(Debug)]
pub(crate) struct Pool {
    network: Network,
    idle: Duration,
    max_idle: usize,
    /// A handful at most: as many as there are different limits.
    clients: Mutex<Vec<(Key, HttpClient)>>,
    /// How often they were replaced.
    generation: AtomicU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    connect: Duration,
    /// The short way will do.
    direct: bool,
    /// http:// with HTTP/2: by prior knowledge.
    plain_http2: bool,
    fresh: bool,
}

impl Pool {
    /// Checks the options by making a client.
    pub(crate) fn new(network: Network, config: &ClientsConfig) -> Result<Self, LineError> {
        let pool = Self {
            network,
            idle: config.pool_idle,
            max_idle: config.pool_max_idle_per_host,
            clients: Mutex::default(),
            generation: AtomicU32::new(0),
        };
        pool.client(Duration::from_secs(5), false, false)?;
        Ok(pool)
    }

    /// The client for a connect timeout; `plain`: for http:// URLs; `fresh`: one that never uses a pooled connection.
    pub(crate) fn client(
        &self,
        connect: Duration,
        plain: bool,
        fresh: bool,
    ) -> Result<HttpClient, LineError> {
        let direct = plain && !self.network.http2 && self.network.proxy_url.is_none();
        let key = Key { connect, direct, plain_http2: self.network.http2 && plain, fresh };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = clients.iter().find(|(known, _)| *known == key) {
            return Ok(client.clone());
        }
        let client = if key.direct {
            let max_idle = if fresh { 0 } else { self.max_idle };
            HttpClient::Direct(Arc::new(Direct::new(connect, self.idle, max_idle)))
        } else {
            HttpClient::Full(self.build(key)?)
        };
        clients.push((key, client.clone()));
        Ok(client)
    }

    /// Which clients are in use.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Replaces the clients of that generation, and so their connections. What is under way on these goes on. Over HTTP/1 a
    /// request that is given up takes its connection with it anyway.
    pub(crate) fn retire(&self, generation: u32) {
        let next = generation.wrapping_add(1);
        let swap = self.generation.compare_exchange(generation, next, Ordering::Relaxed, Ordering::Relaxed);
        if self.network.http2 && swap.is_ok() {
            self.clients.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    fn build(&self, key: Key) -> Result<Client, LineError> {
        let certificates = match &self.network.ca_pem {
            None => Vec::new(),
            Some(pem) => match Certificate::from_pem_bundle(pem.as_bytes()) {
                Ok(found) if !found.is_empty() => found,
                _ => return Err(LineError::Certificates),
            },
        };
        if certificates.is_empty() {
            return self.builder(key)?.build().map_err(|error| LineError::Client(chain(&error)));
        }
        // Where the machine has no certificates of its own, the given ones stand alone.
        let merged = self.builder(key)?.tls_certs_merge(certificates.clone()).build();
        merged.or_else(|_| {
            let only = self.builder(key)?.tls_certs_only(certificates).build();
            only.map_err(|_| LineError::Certificates)
        })
    }

    fn builder(&self, key: Key) -> Result<ClientBuilder, LineError> {
        let mut builder = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .tcp_nodelay(true)
            .connect_timeout(key.connect)
            .pool_idle_timeout(self.idle)
            .pool_max_idle_per_host(if key.fresh { 0 } else { self.max_idle })
            .connector_layer(DialLayer);
        builder = match (self.network.http2, key.plain_http2) {
            (false, _) => builder.http1_only(),
            (true, true) => builder.http2_prior_knowledge(),
            (true, false) => builder,
        };
        if self.network.http2 {
            // A connection that went dead silently is noticed within 30 s; nothing is asked of an idle one.
            builder = builder
                .http2_keep_alive_interval(Duration::from_secs(20))
                .http2_keep_alive_timeout(Duration::from_secs(10))
                .http2_keep_alive_while_idle(false)
                .http2_adaptive_window(true);
        }
        if let Some(proxy) = &self.network.proxy_url {
            builder = builder.proxy(Proxy::all(&**proxy).map_err(|_| LineError::Proxy)?);
        }
        Ok(builder)
    }
}

/// A client and its pool; a cheap handle.
#[derive(Clone, Debug)]
pub(crate) enum HttpClient {
    /// TLS, HTTP/2, egress proxies.
    Full(Client),
    /// None of these.
    Direct(Arc<Direct>),
}

impl HttpClient {
    /// Sends one request; the head of its answer, and whether a connection was made for it.
    pub(crate) async fn execute(
        &self,
        built: Built,
    ) -> (Result<http::Response<Incoming>, transport::Error>, bool) {
        match self {
            Self::Full(client) => {
                // Big, and not what most requests need: it is not to be part of every future.
                let (result, dialed) = Box::pin(dial::watch(client.execute(built.into()), dial::used)).await;
                let result = result.map(|r| http::Response::from(r).map(Incoming::Full)).map_err(Into::into);
                (result, dialed)
            }
            Self::Direct(client) => {
                let (place, request) = built.in_origin_form();
                let (result, dialed) = client.request(&place.uri, request).await;
                (result.map(|r| r.map(Incoming::Direct)).map_err(Into::into), dialed)
            }
        }
    }
}

/// An error and its sources; no URL is part of it.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    transport::sources(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
