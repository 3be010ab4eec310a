//! Tells whether a request made a new connection or used a pooled one: the client library does not say.
//!
//! The connector is called inside the future of the request that needs the connection, so a task-local flag set there is
//! that request's own.

use std::cell::Cell;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

tokio::task_local! {
    static DIALED: Cell<bool>;
}

/// Runs a request; the flag says whether it called the connector.
pub(crate) async fn watch<F: Future>(request: F) -> (F::Output, bool) {
    DIALED
        .scope(Cell::new(false), async {
            let output = request.await;
            (output, DIALED.with(Cell::get))
        })
        .await
}

/// Put around the connector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DialLayer;

/// The connector with its flag.
#[derive(Clone, Debug)]
pub(crate) struct Dial<S>(S);

impl<S> Layer<S> for DialLayer {
    type Service = Dial<S>;

    fn layer(&self, inner: S) -> Dial<S> {
        Dial(inner)
    }
}

impl<S: Service<R>, R> Service<R> for Dial<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        let _ = DIALED.try_with(|dialed| dialed.set(true));
        self.0.call(request)
    }
}
