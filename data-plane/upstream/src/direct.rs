//! The short way to an upstream: http over HTTP/1.1 without an egress proxy, as to a model server or a mesh on the same
//! network. The client library parses every URL three times, asks its redirect policy and clones its connector for each
//! request, which is most of what such a request costs; here the same connection pool is used without all that.
//!
//! What goes over the wire is the same either way.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower_service::Service;

use crate::dial::Dial;

/// As the client library sets it on its connections.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 3;

pub(crate) type Direct = Client<Dial<Timed>, Full<Bytes>>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A client with a pool; `connect`: for name and connection together.
pub(crate) fn client(connect: Duration, idle: Duration, max_idle: usize) -> Direct {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle)
        .pool_max_idle_per_host(max_idle)
        .build(Dial::new(Timed { tcp, limit: connect }))
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
