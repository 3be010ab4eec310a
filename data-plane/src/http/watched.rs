//! A body over HTTP/2: its caller may stop taking it although the socket is open and other answers flow, which no limit
//! on the socket sees.
//!
//! Invariant: once what was handed out has lain there for `write_timeout`, the body is dropped, which closes its
//! upstream; should the caller come back, its stream is reset.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spareline_upstream::attempt::BodyError;
use tokio::time::Instant;

use super::io::Connection;

/// The body and who watches it.
#[derive(Debug)]
pub struct Watched<B>(Arc<Mutex<Slot<B>>>);

#[derive(Debug)]
struct Slot<B> {
    /// `None`: given up.
    body: Option<B>,
    /// Since when the caller has had something to take; `None` while the upstream is waited for.
    given: Option<Instant>,
}

impl<B: Send + 'static> Watched<B> {
    /// Must be called within a runtime. The limit is the connection's, and so is the note that it fired.
    pub(crate) fn new(body: B, connection: Arc<Connection>) -> Self {
        let slot = Arc::new(Mutex::new(Slot { body: Some(body), given: None }));
        tokio::spawn(watch(Arc::downgrade(&slot), connection));
        Self(slot)
    }
}

async fn watch<B>(slot: Weak<Mutex<Slot<B>>>, connection: Arc<Connection>) {
    let limit = connection.write_timeout();
    let mut next = Instant::now() + limit / 4;
    loop {
        tokio::time::sleep_until(next).await;
        let Some(slot) = slot.upgrade() else { return };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        next = match slot.given {
            Some(given) if given.elapsed() >= limit => {
                connection.stall();
                slot.body = None;
                return;
            }
            Some(given) => given + limit,
            None => Instant::now() + limit / 4,
        };
    }
}

impl<B: Body<Data = Bytes, Error = BodyError> + Unpin> Body for Watched<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.given = None;
        let Some(body) = &mut slot.body else { return Poll::Ready(Some(Err(BodyError))) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if frame.is_some() {
            slot.given = Some(Instant::now());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt as _;

    use super::*;

    /// A frame whenever one is asked for, after a while; notes that it was dropped.
    struct Endless {
        _alive: Arc<()>,
        next: Option<Pin<Box<tokio::time::Sleep>>>,
    }

    impl Body for Endless {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            let sleep =
                self.next.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_secs(100))));
            ready!(sleep.as_mut().poll(cx));
            self.next = None;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data: 1\n\n")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_takes_nothing_of_an_http2_stream_is_given_up() {
        let alive = Arc::new(());
        let connection = Connection::new(Duration::from_secs(60));
        let mut body = Watched::new(Endless { _alive: alive.clone(), next: None }, connection.clone());
        // The upstream may be slower than the limit, and a caller may take its time within it.
        for _ in 0..5 {
            assert!(body.frame().await.unwrap().is_ok());
            tokio::time::sleep(Duration::from_secs(50)).await;
        }
        assert!(body.frame().await.unwrap().is_ok());
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!((Arc::strong_count(&alive), connection.stalled()), (2, false));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!((Arc::strong_count(&alive), connection.stalled()), (1, true), "the upstream is closed");
        assert!(body.frame().await.unwrap().is_err());
    }

    #[test]
    fn a_stream_stalls_with_its_connection_and_not_with_its_siblings() {
        let connection = Connection::new(Duration::from_secs(60));
        let [one, other] = [(); 2].map(|()| Connection::stream_of(&connection, Duration::from_secs(60)));
        one.stall();
        assert_eq!((one.stalled(), other.stalled(), connection.stalled()), (true, false, false));
        connection.stall();
        assert!(other.stalled());
    }
}
