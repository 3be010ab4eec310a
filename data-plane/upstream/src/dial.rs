//! Tells whether a request made a new connection or used a pooled one: the client library does not say.
//!
//! The connector runs inside the future of the request that needs the connection, so a task-local flag set there is
//! that request's own. It is set when the connection is made, not when it is begun: a request that waits for one may be
//! given a pooled one that came back meanwhile, and what it had begun is then finished elsewhere.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

tokio::task_local! {
    static DIALED: Cell<bool>;
}

/// Runs a request; the flag says whether it made a connection of its own.
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

impl<S: Service<R>, R> Service<R> for Dial<S>
where
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let connecting = self.0.call(request);
        Box::pin(async move {
            let made = connecting.await;
            let _ = DIALED.try_with(|dialed| dialed.set(true));
            made
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connector that is done when told.
    struct Connector(Option<tokio::sync::oneshot::Receiver<()>>);

    impl Service<()> for Connector {
        type Response = ();
        type Error = ();
        type Future = Pin<Box<dyn Future<Output = Result<(), ()>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            let told = self.0.take();
            Box::pin(async move { told.unwrap().await.map_err(|_| ()) })
        }
    }

    #[tokio::test]
    async fn a_connection_that_was_only_begun_was_not_used() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let mut dial = DialLayer.layer(Connector(Some(told)));
        let (begun, dialed) = watch(async {
            let mut connecting = dial.call(());
            // The pool has one first: what was begun goes on elsewhere.
            assert!(futures_util::poll!(&mut connecting).is_pending());
            (connecting,)
        })
        .await;
        assert!(!dialed);
        tell.send(()).unwrap();
        assert_eq!(begun.0.await, Ok(()));

        let (tell, told) = tokio::sync::oneshot::channel();
        let mut dial = DialLayer.layer(Connector(Some(told)));
        tell.send(()).unwrap();
        let (made, dialed) = watch(dial.call(())).await;
        assert_eq!((made, dialed), (Ok(()), true));
    }
}
