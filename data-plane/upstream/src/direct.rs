//! The short way to an upstream: http over HTTP/1.1 without an egress proxy, as to a model server or a mesh on the same
//! network. The client library parses every URL three times, asks its redirect policy, clones its connector for each
//! request and hands it to a task of the connection's own, which is most of what such a request costs. Here whoever
//! waits for an answer drives the connection itself; between requests it lies in a [`Spot`].
//!
//! What goes over the wire is the same either way.

mod chunks;
mod lent;
mod reply;
mod spot;
mod tap;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tower_service::Service;

pub(crate) use reply::Reply;
use spot::{Spot, Wire};
use tap::Tap;

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
    /// It broke, or what came is not HTTP.
    #[error("the connection failed")]
    Wire(#[from] hyper::Error),
    /// It ended without a word.
    #[error("the connection ended")]
    Gone(#[source] io::Error),
}

/// A client with a pool.
#[derive(Debug)]
pub(crate) struct Direct {
    connector: Timed,
    idle: Duration,
    max_idle: usize,
    /// By authority.
    spots: Mutex<HashMap<Box<str>, Arc<Spot>>>,
}

impl Direct {
    /// `connect`: for name and connection together; with `max_idle` zero every request has a connection of its own.
    pub(crate) fn new(connect: Duration, idle: Duration, max_idle: usize) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        Self { connector: Timed { tcp, limit: connect }, idle, max_idle, spots: Mutex::default() }
    }

    /// Sends a request, its URI in origin form, to the host of `uri`; the head of the answer, and whether a connection
    /// was made for it.
    pub(crate) async fn request(
        &self,
        uri: &Uri,
        request: Request<Full<Bytes>>,
    ) -> (Result<Response<Reply>, Error>, bool) {
        let authority = uri.authority().map_or("", |a| a.as_str());
        let spot = self.spot(authority);
        let (wire, dialed) = match spot.take() {
            Some(wire) => (wire, false),
            None => match self.dial(uri).await {
                Ok(wire) => (wire, true),
                Err(error) => return (Err(error), true),
            },
        };
        (reply::exchange(wire, request, spot).await, dialed)
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

    async fn dial(&self, uri: &Uri) -> Result<Wire, Error> {
        let mut connector = self.connector.clone();
        std::future::poll_fn(|cx| connector.poll_ready(cx)).await.map_err(Error::Connect)?;
        let io = connector.call(uri.clone()).await.map_err(Error::Connect)?;
        let tap = Tap::new(io.into_inner());
        let loan = tap.loan();
        let (sender, driver) = http1::handshake(TokioIo::new(tap)).await?;
        Ok(Wire::new(sender, driver, loan))
    }
}

/// A connector with a limit.
#[derive(Clone, Debug)]
pub(crate) struct Timed {
    tcp: HttpConnector,
    limit: Duration,
}

impl Service<Uri> for Timed {
    type Response = <HttpConnector as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.limit, self.tcp.call(uri));
        Box::pin(async move {
            match connecting.await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}
