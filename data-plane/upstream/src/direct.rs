//! The short way to an upstream: http over HTTP/1.1 without an egress proxy, as to a model server or a mesh on the same
//! network. The client library parses every URL three times, asks its redirect policy, clones its connector for each
//! request and hands it to a task of the connection's own, which is most of what such a request costs. Here whoever
//! waits for an answer writes and reads the socket itself: the connection is a value that goes from a [`Spot`], where it
//! lies between requests, into the exchange, into the answer's body and back.
//!
//! What goes over the wire is the same either way. Nothing here is for proxies, upgrades or answers of another protocol.

mod chunks;
mod extent;
mod head;
mod reply;
mod spot;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use tower_service::Service;

pub(crate) use reply::Reply;
use spot::Spot;
use wire::Wire;

/// As the client library sets it on its connections.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong on a connection of ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is none.
    #[error("cannot connect")]
    Connect(#[source] BoxError),
    /// It ended before the first byte of an answer.
    #[error("the connection ended without an answer")]
    Gone(#[source] io::Error),
    /// It ended inside the head of an answer.
    #[error("the connection ended inside an answer's head")]
    Cut(#[source] io::Error),
    /// What came is no answer in HTTP/1.
    #[error("the answer is not HTTP")]
    NotHttp,
}

/// A client with a pool.
#[derive(Debug)]
pub(crate) struct Direct {
    connector: HttpConnector,
    /// For name and connection together.
    connect: Duration,
    idle: Duration,
    max_idle: usize,
    /// By authority.
    spots: Mutex<HashMap<Box<str>, Arc<Spot>>>,
}

impl Direct {
    /// With `max_idle` zero every request has a connection of its own.
    pub(crate) fn new(connect: Duration, idle: Duration, max_idle: usize) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE));
        connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        Self { connector, connect, idle, max_idle, spots: Mutex::default() }
    }

    /// Sends a request, its URI in origin form, to the host of `uri`; the head of the answer, and whether a connection
    /// was made for it.
    pub(crate) async fn request(
        &self,
        uri: &Uri,
        request: Request<Bytes>,
    ) -> (Result<Response<Reply>, Error>, bool) {
        let authority = uri.authority().map_or("", |a| a.as_str());
        let spot = self.spot(authority);
        let (mut wire, dialed) = match spot.take() {
            Some(wire) => (wire, false),
            // Rare: it is not to be part of every future.
            None => match Box::pin(self.dial(uri)).await {
                Ok(wire) => (wire, true),
                Err(error) => return (Err(error), true),
            },
        };
        let head = wire.exchange(request).await;
        (head.map(|head| Reply::answer(head, wire, spot)), dialed)
    }

    fn spot(&self, authority: &str) -> Arc<Spot> {
        let mut spots = self.spots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spot) = spots.get(authority) {
            return spot.clone();
        }
        // Hosts come and go with channels.
        spots.retain(|_, spot| Arc::strong_count(spot) > 1 || !spot.is_empty());
        let spot = Arc::new(Spot::new(self.idle, self.max_idle));
        spots.insert(authority.into(), spot.clone());
        spot
    }

    async fn dial(&self, uri: &Uri) -> Result<Box<Wire>, Error> {
        let mut connector = self.connector.clone();
        let dialing = async {
            std::future::poll_fn(|cx| connector.poll_ready(cx)).await?;
            connector.call(uri.clone()).await
        };
        let dialed = tokio::time::timeout(self.connect, dialing).await.map_err(io::Error::from);
        let io = dialed.map_err(|late| Error::Connect(late.into()))?.map_err(|e| Error::Connect(e.into()))?;
        Ok(Box::new(Wire::new(io.into_inner())))
    }
}
