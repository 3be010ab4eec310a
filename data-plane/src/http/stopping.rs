//! How a worker's connections learn that they are to end: a flag that is looked at whenever one is polled anyway, and a
//! wake-up for those that sleep. Waiting for a signal anew at every poll, as a select does, costs a lock each time.
//!
//! Invariant: everything here happens on the worker's own thread, so nothing comes between a look and a registration.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::atomic::{AtomicU8, Ordering},
    task::Poll,
};

use tokio::sync::Notify;

/// What is asked of connections, each more than the one before; nothing is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Ask {
    /// Finish what runs, take nothing new.
    Drain = 1,
    /// Requests without an answer get one of ours.
    Cut = 2,
}

/// One worker's.
#[derive(Debug, Default)]
pub struct Stopping {
    asked: AtomicU8,
    told: Notify,
}

impl Stopping {
    /// Asks, and wakes who sleeps. Never takes back.
    pub(crate) fn ask(&self, what: Ask) {
        self.asked.fetch_max(what as u8, Ordering::Relaxed);
        self.told.notify_waiters();
    }

    /// Whether requests without an answer are to end.
    pub(crate) fn is_cut(&self) -> bool {
        self.asked.load(Ordering::Relaxed) >= Ask::Cut as u8
    }

    /// Serves a connection to its end; `finish` tells it to take nothing new, and may do so more than once.
    pub(crate) async fn serve<C: Future>(&self, connection: C, finish: impl Fn(Pin<&mut C>)) -> C::Output {
        let mut connection = pin!(connection);
        let mut told = pin!(self.told.notified());
        let mut seen = None;
        poll_fn(|cx| {
            let asked = self.asked.load(Ordering::Relaxed);
            if seen != Some(asked) {
                if asked >= Ask::Drain as u8 {
                    finish(connection.as_mut());
                }
                if seen.is_some() {
                    told.set(self.told.notified());
                }
                // The task's waker does not change, so once is enough until it was told.
                while let Poll::Ready(()) = told.as_mut().poll(cx) {
                    told.set(self.told.notified());
                }
                seen = Some(asked);
            }
            connection.as_mut().poll(cx)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicUsize},
        },
        task::Context,
    };

    use super::*;

    /// Runs until it was told to finish and let go.
    struct Busy(Arc<AtomicBool>);

    impl Future for Busy {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            if self.0.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    #[tokio::test]
    async fn a_sleeping_connection_is_woken_for_each_thing_asked() {
        let stopping = Arc::new(Stopping::default());
        let (told, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (ours, busy, count) = (stopping.clone(), Busy(done.clone()), told.clone());
        let finish = move |_: Pin<&mut Busy>| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let task = tokio::spawn(async move { ours.serve(busy, finish).await });
        tokio::task::yield_now().await;
        assert_eq!((told.load(Ordering::Relaxed), stopping.is_cut()), (0, false));
        stopping.ask(Ask::Drain);
        tokio::task::yield_now().await;
        assert_eq!((told.load(Ordering::Relaxed), stopping.is_cut()), (1, false));
        done.store(true, Ordering::Relaxed);
        stopping.ask(Ask::Cut);
        tokio::time::timeout(std::time::Duration::from_secs(5), task).await.unwrap().unwrap();
        assert!(stopping.is_cut());
    }
}
