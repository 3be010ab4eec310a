//! Tells whether a request made a new connection or used a pooled one: the client library does not say.
//!
//! The connector runs inside the future of the request that needs the connection, so a task-local flag set there is
//! that request's own. It is set when the connection is made, not when it is begun: a request that waits for one may be
//! given a pooled one that came back meanwhile, and what it had begun is then finished elsewhere. That may even happen once
//! the connection is made, so an error is asked which one it is about.

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection, HttpInfo};
use tower_layer::Layer;
use tower_service::Service;

use crate::transport;

/// What a request made.
#[derive(Clone, Copy, Debug)]
enum Made {
    Nothing,
    /// A connection with this address here, where that is known.
    Connection(Option<SocketAddr>),
}

tokio::task_local! {
    static MADE: Cell<Made>;
}

/// Runs a request; the flag says whether it made the connection that it used. `used`: the address here of the one that its
/// output is about, where that is known.
pub(crate) async fn watch<F: Future>(
    request: F,
    used: impl Fn(&F::Output) -> Option<SocketAddr>,
) -> (F::Output, bool) {
    MADE.scope(Cell::new(Made::Nothing), async {
        let output = request.await;
        let own = match MADE.with(Cell::get) {
            Made::Nothing => false,
            Made::Connection(made) => used(&output).zip(made).is_none_or(|(used, made)| used == made),
        };
        (output, own)
    })
    .await
}

/// The address here of the connection that an error is about.
pub(crate) fn used<T>(result: &Result<T, reqwest::Error>) -> Option<SocketAddr> {
    let error = result.as_ref().err()?;
    let error = transport::sources(error).find_map(|e| e.downcast_ref::<hyper_util::client::legacy::Error>());
    address(error?.connect_info()?)
}

fn address(connected: &Connected) -> Option<SocketAddr> {
    let mut extras = http::Extensions::new();
    connected.get_extras(&mut extras);
    extras.get().map(HttpInfo::local_addr)
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
    S::Response: Connection,
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
            let at = made.as_ref().ok().and_then(|connection| address(&connection.connected()));
            let _ = MADE.try_with(|flag| flag.set(Made::Connection(at)));
            made
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connector that is done when told.
    struct Connector(Option<tokio::sync::oneshot::Receiver<()>>);

    #[derive(Debug, PartialEq)]
    struct Made;

    impl Connection for Made {
        fn connected(&self) -> Connected {
            Connected::new()
        }
    }

    impl Service<()> for Connector {
        type Response = Made;
        type Error = ();
        type Future = Pin<Box<dyn Future<Output = Result<Made, ()>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            let told = self.0.take();
            Box::pin(async move { told.unwrap().await.map(|()| Made).map_err(|_| ()) })
        }
    }

    #[tokio::test]
    async fn a_connection_that_was_only_begun_was_not_used() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let mut dial = DialLayer.layer(Connector(Some(told)));
        let request = async {
            let mut connecting = dial.call(());
            // The pool has one first: what was begun goes on elsewhere.
            assert!(futures_util::poll!(&mut connecting).is_pending());
            (connecting,)
        };
        let (begun, dialed) = watch(request, |_| None).await;
        assert!(!dialed);
        tell.send(()).unwrap();
        assert_eq!(begun.0.await, Ok(Made));

        let (tell, told) = tokio::sync::oneshot::channel();
        let mut dial = DialLayer.layer(Connector(Some(told)));
        tell.send(()).unwrap();
        let (made, dialed) = watch(dial.call(()), |_| None).await;
        assert_eq!((made, dialed), (Ok(Made), true));
    }

    #[tokio::test]
    async fn a_connection_that_was_made_and_left_to_others_was_not_used() {
        let here = |port| SocketAddr::from(([127, 0, 0, 1], port));
        for (made, used, own) in [(Some(1), Some(1), true), (Some(1), Some(2), false), (Some(1), None, true)]
        {
            let request = async { MADE.with(|flag| flag.set(super::Made::Connection(made.map(here)))) };
            assert_eq!(watch(request, |()| used.map(here)).await.1, own);
        }
    }
}
