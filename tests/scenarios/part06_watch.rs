//! Part 6: what proxies are sent, and what they are not sent again.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use spareline_proto::{
    admin::v1::UpdateChannelRequest,
    dataplane::v1::{
        Ack, Hello, Node, Position, SnapshotChunk, Update, WatchRequest, WatchResponse, Welcome,
        watch_request::Message as Ask, watch_response::Message as Answer,
    },
    registry::v1::Channel,
};
use spareline_tests::{
    chaos::{ChaosProxy, Mode},
    http::Call,
    process::LogLine,
    stack::{Plan, Proxy, SOON, Stack},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::support::MODEL;

/// A watch client that acknowledges what it gets and keeps nothing.
struct Watcher {
    ask: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl Watcher {
    async fn start(stack: &Stack, id: &str, held: Option<Position>) -> Result<(Self, Welcome)> {
        let (ask, asked) = mpsc::channel(8);
        let node = Node {
            proxy_id: id.to_owned(),
            instance_id: uuid::Uuid::new_v4().to_string(),
            groups: vec!["default".to_owned()],
            ..Default::default()
        };
        ask.send(WatchRequest { message: Some(Ask::Hello(Hello { node: Some(node), held })) }).await?;
        let answers = stack.control.watch()?.watch(ReceiverStream::new(asked)).await?.into_inner();
        let mut watcher = Self { ask, answers };
        match watcher.next().await? {
            Answer::Welcome(welcome) => Ok((watcher, welcome)),
            other => bail!("{other:?} came before the welcome"),
        }
    }

    async fn next(&mut self) -> Result<Answer> {
        let answer =
            tokio::time::timeout(SOON, self.answers.message()).await.context("the watch is silent")??;
        answer.context("the watch ended")?.message.context("an empty message")
    }

    async fn ack(&self, frame: u64, applied: Option<Position>) -> Result<()> {
        let ack = Ack { frame, applied, rejections: Vec::new() };
        Ok(self.ask.send(WatchRequest { message: Some(Ask::Ack(ack)) }).await?)
    }

    async fn snapshot(&mut self) -> Result<Vec<SnapshotChunk>> {
        let mut chunks = Vec::new();
        loop {
            match self.next().await? {
                Answer::Snapshot(chunk) => {
                    let (frame, last, position) = (chunk.frame, chunk.last, chunk.position.clone());
                    chunks.push(chunk);
                    if last {
                        self.ack(frame, position).await?;
                        return Ok(chunks);
                    }
                }
                other => bail!("{other:?} in the middle of a snapshot"),
            }
        }
    }

    async fn update(&mut self) -> Result<Update> {
        loop {
            match self.next().await? {
                Answer::Update(update) => {
                    self.ack(update.frame, update.position.clone()).await?;
                    return Ok(update);
                }
                Answer::Checkpoint(_) => {}
                other => bail!("{other:?} instead of an update"),
            }
        }
    }
}

async fn reweigh(stack: &Stack, name: &str, weight: u32) -> Result<()> {
    let channel = Some(Channel { name: name.to_owned(), weight: Some(weight), ..Default::default() });
    let update_mask = Some(prost_types::FieldMask { paths: vec!["weight".to_owned()] });
    stack
        .control
        .channels()?
        .update_channel(UpdateChannelRequest { channel, update_mask, validate_only: false })
        .await?;
    Ok(())
}

/// Returns once the replica's world is what the database says: a commit answers before every replica has read it.
async fn caught_up(stack: &Stack) -> Result<()> {
    let sql = "SELECT revision FROM registry_head";
    let mut database =
        <sqlx::PgConnection as sqlx::Connection>::connect_with(&stack.database()?.options).await?;
    let (head,): (i64,) = sqlx::query_as(sql).fetch_one(&mut database).await?;
    while stack.settled().await? < head {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

#[tokio::test]
async fn part06_a_snapshot_then_only_what_changed_then_nothing_on_resume() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 0, ..Plan::default() }).await?;
    for name in ["one", "two", "three"] {
        stack.create(stack.channel(name, MODEL), &[&format!("sk-{name}")]).await?;
    }
    caught_up(&stack).await?;
    let (mut watcher, welcome) = Watcher::start(&stack, "w", None).await?;
    assert!(!welcome.resumed, "resumed from nothing");
    let chunks = watcher.snapshot().await?;
    assert_eq!(chunks.iter().map(|c| c.channels.len()).sum::<usize>(), 3);
    assert_eq!(chunks.iter().map(|c| c.credentials.len()).sum::<usize>(), 3);

    reweigh(&stack, "two", 9).await?;
    let update = watcher.update().await?;
    let names: Vec<_> = update.channels.iter().map(|c| (c.name.as_str(), c.weight)).collect();
    assert_eq!(names, [("two", Some(9))], "more than what changed");
    let held = update.position.context("a position")?;
    drop(watcher);

    let (mut watcher, welcome) = Watcher::start(&stack, "w", Some(held.clone())).await?;
    assert!(welcome.resumed, "not resumed from {held:?}");
    reweigh(&stack, "three", 5).await?;
    let update = watcher.update().await?;
    assert_eq!(update.channels.len(), 1, "after a resume: {update:?}");
    assert!(update.position.context("a position")?.revision > held.revision);

    let wrong = Position { digest: held.digest.wrapping_add(1), ..held };
    let (mut watcher, welcome) = Watcher::start(&stack, "x", Some(wrong)).await?;
    assert!(!welcome.resumed, "resumed from a digest that is not ours");
    assert!(!watcher.snapshot().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn part06_a_fast_writer_and_a_slow_reader_meet_in_one_frame() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 0, ..Plan::default() }).await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    let (mut watcher, _) = Watcher::start(&stack, "slow", None).await?;
    watcher.snapshot().await?;
    // The first update stays unacknowledged while fifty changes are made.
    reweigh(&stack, "one", 100).await?;
    let Answer::Update(first) = watcher.next().await? else { bail!("no update") };
    for weight in 101..=150 {
        reweigh(&stack, "one", weight).await?;
    }
    watcher.ack(first.frame, first.position).await?;
    // One frame with what the replica knows by now, and one more where it has not yet read the last commits.
    let mut weights = Vec::new();
    while weights.last() != Some(&Some(150)) {
        weights.push(watcher.update().await?.channels.first().and_then(|c| c.weight));
        ensure!(weights.len() <= 3, "every state in between was sent: {weights:?}");
    }
    Ok(())
}

#[tokio::test]
async fn part06_proxies_resume_after_a_cut_and_learn_what_they_missed() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 0, ..Plan::default() }).await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    let wire = ChaosProxy::start(stack.control.data).await?;
    let proxy = Proxy::start("behind-chaos", wire.addr(), &[]).await?;
    proxy.process.wait_for_log(SOON, |l| l.is("registry_applied") && *l.field("channels") == 1).await?;
    let reply = Call::chat(MODEL).send(proxy.http).await?;
    ensure!(reply.status == 200, "{}", reply.text());

    let mark = proxy.process.mark();
    wire.set(Mode::Refuse);
    wire.cut();
    proxy.process.wait_for_log_after(mark, SOON, |l| l.is("watch_lost")).await?;
    assert!(proxy.ready().await?, "a proxy with a registry stopped being ready");
    stack.create(stack.channel("missed", "other-model"), &["sk-2"]).await?;
    assert_eq!(Call::chat(MODEL).send(proxy.http).await?.status, 200, "without the control plane");
    assert_eq!(Call::chat("other-model").send(proxy.http).await?.status, 404);

    wire.set(Mode::Pass);
    proxy.process.wait_for_log_after(mark, SOON, |l| l.is("watch_connected")).await?;
    let both = |l: &LogLine| l.is("registry_applied") && *l.field("channels") == 2;
    proxy.process.wait_for_log_after(mark, SOON, both).await?;
    assert_eq!(Call::chat("other-model").send(proxy.http).await?.status, 200, "what it missed");
    Ok(())
}

#[tokio::test]
async fn part06_a_stopped_control_plane_says_goodbye_and_proxies_resume() -> Result<()> {
    let mut stack = Stack::start(Plan { proxies: 2, embedded: true, ..Plan::default() }).await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    stack.settled().await?;
    let marks: Vec<_> = stack.proxies.iter().map(|p| p.process.mark()).collect();
    stack.control.process.signal("TERM").await?;
    assert!(stack.control.process.ended(Duration::from_secs(20)).await?.success());
    stack.control.restart().await?;
    for (proxy, mark) in stack.proxies.iter().zip(marks) {
        let line = proxy.process.wait_for_log_after(mark, SOON, |l| l.is("watch_connected")).await?;
        assert_eq!(line.field("resumed"), &true, "{}", line.text);
        let frames = proxy.process.log();
        let snapshots =
            frames[mark..].iter().filter(|l| l.is("registry_applied") && *l.field("snapshot") == true);
        assert_eq!(snapshots.count(), 0, "a snapshot although nothing had changed");
    }
    Ok(())
}

#[tokio::test]
async fn part06_a_proxy_gets_only_its_groups() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 0, ..Plan::default() }).await?;
    stack.create(stack.channel("mine", MODEL), &["sk-1"]).await?;
    let groups = vec!["vip".to_owned()];
    stack.create(Channel { groups, ..stack.channel("theirs", MODEL) }, &["sk-2"]).await?;
    caught_up(&stack).await?;
    let (mut watcher, _) = Watcher::start(&stack, "w", None).await?;
    let chunks = watcher.snapshot().await?;
    let names: Vec<_> = chunks.iter().flat_map(|c| &c.channels).map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["mine"]);
    assert_eq!(
        chunks.iter().map(|c| c.credentials.len()).sum::<usize>(),
        1,
        "another group's secret was sent"
    );
    Ok(())
}
