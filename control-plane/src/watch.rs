//! The registry watch: what streams each proxy its view.
//!
//! [`session`] decides what is said; this edge moves messages. A session is one task: it holds the part of the world
//! for its proxy's groups (shared with all sessions of the same groups), one message at most in its channel, and no
//! queue. It never touches the database, but to tell a proxy that is ahead of us why.

mod edge;
mod presence;
pub mod session;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::dataplane::v1::registry_watch_service_server::{
    RegistryWatchService as Service, RegistryWatchServiceServer,
};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};

pub use presence::{Guard, LocalSession, Presence};

use crate::store::Store;
use crate::world::Worlds;

/// Largest message taken from a proxy, in bytes: rejections of a whole registry fit.
const MAX_REQUEST: usize = 1024 * 1024;
/// Snapshots on their way at once; further ones wait for their turn.
const SNAPSHOTS: usize = 16;

/// The service.
#[derive(Clone, Debug)]
pub struct WatchService(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    worlds: Worlds,
    presence: Presence,
    settings: session::Settings,
    snapshots: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
    started: Instant,
}

// === impl WatchService ===

impl WatchService {
    /// Streams `worlds`. At `stop` every session is told Goodbye and ends.
    pub fn new(store: Store, worlds: Worlds, presence: Presence, stop: CancellationToken) -> Self {
        let settings = session::Settings {
            heartbeat: Duration::from_secs(10),
            max_age: Duration::from_secs(30 * 60),
            replica_id: presence.replica_id().to_owned(),
            features: Vec::new(),
        };
        Self::with_settings(store, worlds, presence, stop, settings)
    }

    /// As [`new`](Self::new), with other times.
    pub fn with_settings(
        store: Store,
        worlds: Worlds,
        presence: Presence,
        stop: CancellationToken,
        settings: session::Settings,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            worlds,
            presence,
            settings,
            snapshots: Arc::new(Semaphore::new(SNAPSHOTS)),
            stop,
            tasks: TaskTracker::new(),
            started: Instant::now(),
        }))
    }

    /// To be mounted.
    pub fn into_server(self) -> RegistryWatchServiceServer<Self> {
        RegistryWatchServiceServer::new(self).max_decoding_message_size(MAX_REQUEST)
    }

    /// After the stop signal: until every session has ended.
    pub async fn drained(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

#[tonic::async_trait]
impl Service for WatchService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<dp::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<dp::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        if self.0.stop.is_cancelled() {
            return Err(Status::unavailable("shutting down"));
        }
        // The head is answered at once: a client may wait for it before it says hello.
        let (messages, receiver) = mpsc::channel(1);
        self.0.tasks.spawn(edge::run(self.0.clone(), request.into_inner(), messages));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}
