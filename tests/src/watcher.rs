//! A watch client that is not the product's: it applies what it gets, counts for itself, and notes every breach of the
//! protocol's promises, over all its connections and whichever replica they reach.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use spareline_core::items::{Delta, Item, Items};
use spareline_proto::dataplane::v1::{
    Ack, Hello, Node, Position, SnapshotChunk, Update, WatchRequest, WatchResponse,
    registry_watch_service_client::RegistryWatchServiceClient, watch_request::Message as Ask,
    watch_response::Message as Answer,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

/// Three heartbeats would be the product's measure; a test does not wait so long.
const SILENCE: Duration = Duration::from_secs(25);
/// Opening a session.
const OPEN: Duration = Duration::from_secs(5);

/// What it has seen so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Where it stands.
    pub position: Option<Position>,
    /// Sessions that were welcomed.
    pub sessions: usize,
    /// Those of them that went on without a snapshot.
    pub resumed: usize,
    /// Frames applied.
    pub frames: usize,
    /// Why the last session ended, or did not begin.
    pub ended: String,
    /// Promises that were broken.
    pub faults: Vec<String>,
}

/// A running client; it ends when dropped.
pub struct Watcher {
    id: String,
    seen: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

impl Watcher {
    /// Watches what is served at `to`, and dials again whenever it has to.
    pub fn start(id: &str, to: SocketAddr) -> Self {
        let (sender, seen) = watch::channel(Seen::default());
        let task = tokio::spawn(run(id.to_owned(), to, sender));
        Self { id: id.to_owned(), seen, task }
    }

    /// What it has seen so far.
    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until it stands as wanted.
    ///
    /// # Errors
    /// When that does not happen within `limit`; with how it stands instead.
    pub async fn until(&self, limit: Duration, wanted: impl Fn(&Seen) -> bool) -> Result<Seen> {
        let mut seen = self.seen.clone();
        let waited =
            timeout(limit, seen.wait_for(|seen| wanted(seen))).await.map(|seen| seen.map(|s| s.clone()));
        match waited {
            Ok(seen) => Ok(seen?),
            Err(_) => bail!("{} does not stand as wanted within {limit:?}: {:?}", self.id, self.seen()),
        }
    }

    /// Waits until it holds a revision or a later one.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn reaches(&self, revision: i64, limit: Duration) -> Result<Seen> {
        self.until(limit, |seen| seen.position.as_ref().is_some_and(|p| p.revision >= revision)).await
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What it holds over its sessions.
#[derive(Default)]
struct Held {
    items: Items,
    position: Option<Position>,
}

async fn run(id: String, to: SocketAddr, sender: watch::Sender<Seen>) {
    let node = Node {
        proxy_id: id,
        instance_id: uuid::Uuid::new_v4().to_string(),
        groups: vec!["default".to_owned()],
        ..Default::default()
    };
    let mut held = Held::default();
    loop {
        if let Err(why) = session(&node, to, &mut held, &sender).await {
            sender.send_modify(|seen| seen.ended = format!("{why:#}"));
        }
        sleep(Duration::from_millis(rand::random_range(100..1000))).await;
    }
}

async fn session(node: &Node, to: SocketAddr, held: &mut Held, sender: &watch::Sender<Seen>) -> Result<()> {
    let link = Endpoint::from_shared(format!("http://{to}"))?.connect_timeout(OPEN);
    let link = timeout(OPEN, link.connect()).await.context("connecting took too long")??;
    let (ask, asked) = mpsc::channel(8);
    let hello = Hello { node: Some(node.clone()), held: held.position.clone() };
    ask.send(WatchRequest { message: Some(Ask::Hello(hello)) }).await?;
    let mut client = RegistryWatchServiceClient::new(link).max_decoding_message_size(64 << 20);
    let opened = timeout(OPEN, client.watch(ReceiverStream::new(asked))).await.context("no stream")?;
    let mut answers = opened?.into_inner();
    let mut staged = Items::default();
    loop {
        let answer: Option<WatchResponse> =
            timeout(SILENCE, answers.message()).await.context("the watch is silent")??;
        let applied = match answer.context("the watch ended")?.message.context("an empty message")? {
            Answer::Welcome(welcome) => {
                sender.send_modify(|seen| {
                    seen.sessions += 1;
                    seen.resumed += usize::from(welcome.resumed);
                });
                None
            }
            Answer::Snapshot(chunk) => {
                let (frame, last, position) = (chunk.frame, chunk.last, chunk.position.clone());
                stage(&mut staged, chunk);
                last.then(|| (frame, position, std::mem::take(&mut staged)))
            }
            Answer::Update(update) => Some(updated(held, update)),
            Answer::Checkpoint(_) => None,
            Answer::Goodbye(goodbye) => bail!("goodbye: {}", goodbye.why),
        };
        let Some((frame, position, items)) = applied else { continue };
        let position = position.context("a frame without a position")?;
        if let Err(fault) = promised(held, &position, &items) {
            sender.send_modify(|seen| seen.faults.push(format!("{}: {fault:#}", node.proxy_id)));
        }
        (held.items, held.position) = (items, Some(position.clone()));
        sender.send_modify(|seen| {
            seen.frames += 1;
            seen.position = Some(position.clone());
        });
        let ack = Ack { frame, applied: Some(position), rejections: Vec::new() };
        ask.send(WatchRequest { message: Some(Ask::Ack(ack)) }).await?;
    }
}

fn stage(staged: &mut Items, chunk: SnapshotChunk) {
    let channels = chunk.channels.into_iter().map(|m| Item::Channel(m.into()));
    let credentials = chunk.credentials.into_iter().map(|m| Item::Credential(m.into()));
    let statuses = chunk.statuses.into_iter().map(|m| Item::Status(m.into()));
    let policies = chunk.policies.into_iter().map(|m| Item::Policy(m.into()));
    for item in policies.chain(credentials).chain(channels).chain(statuses) {
        staged.insert(item);
    }
}

fn updated(held: &Held, update: Update) -> (u64, Option<Position>, Items) {
    let (frame, position) = (update.frame, update.position.clone());
    (frame, position, held.items.apply(&Delta::from_update(update)))
}

/// Within an epoch nothing goes back, both sides count the same, and what was full is never emptied by accident.
fn promised(held: &Held, position: &Position, items: &Items) -> Result<()> {
    if let Some(before) = held.position.as_ref().filter(|before| before.epoch == position.epoch) {
        ensure!(position.revision >= before.revision, "from {before:?} back to {position:?}");
    }
    let digest = items.digest();
    ensure!(digest == position.digest, "the digest at {position:?} is {digest}");
    ensure!(held.items.channel_count() == 0 || items.channel_count() > 0, "emptied at {position:?}");
    Ok(())
}
