//! What a listener answers before there is anything behind it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::future::Either;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::service::Routes;

/// Routes that may not be there yet. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<OnceLock<Routes>>);

impl Gate {
    /// Answers UNAVAILABLE to everything.
    pub(super) fn closed() -> Self {
        Self(Arc::new(OnceLock::new()))
    }

    /// From now on calls go through; opened once, it stays open.
    pub(super) fn open(&self, routes: Routes) {
        // A second set of routes would be a fault of ours; the first one is kept.
        let _ = self.0.set(routes.prepare());
    }
}

impl Service<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        Either<<Routes as Service<Request<Body>>>::Future, Ready<Result<Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Routes are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self.0.get() {
            Some(routes) => Either::Left(routes.clone().call(request)),
            None => {
                let status = Status::unavailable("the control plane waits for its database: try again later");
                Either::Right(ready(Ok(status.into_http())))
            }
        }
    }
}
