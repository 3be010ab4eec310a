//! How soon a commit is in the hands of many watchers, and what each of them costs.
//!
//! `cargo bench -p spareline-control --bench watch -- [watchers] [not reading] [commits]` (200, 20, 100) prints the figures.
//! The control plane runs in this process over a throwaway Postgres; the watchers are a second process, each with a socket of
//! its own. Those that do not read stop taking bytes from their socket after the snapshot, and go on once all is committed.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spareline_control::postgres::TestDatabase;
use spareline_control::store::{Store, StoreError};
use spareline_control::watch::{Presence, WatchService};
use spareline_control::world;
use spareline_core::{ChannelId, Revision, Subject};
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::dataplane::v1::registry_watch_service_client::RegistryWatchServiceClient;
use spareline_proto::dataplane::v1::watch_request::Message as Say;
use spareline_proto::dataplane::v1::watch_response::Message as Hear;
use spareline_proto::registry::v1 as pb;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Endpoint, Server};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match args.first().map(String::as_str) {
        Some("clients") => runtime.block_on(clients(&args[1..])),
        _ => runtime.block_on(control(&args)),
    }
}

fn number(args: &[String], at: usize, default: usize) -> usize {
    args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(default)
}

fn now_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

/// Resident memory of this process, in KiB.
fn rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

// === the control plane's side ===

async fn control(args: &[String]) {
    let (watchers, stalled, commits) = (number(args, 0, 200), number(args, 1, 20), number(args, 2, 100));
    let database = TestDatabase::new().await.unwrap();
    let store = database.store().await.unwrap();
    let stop = CancellationToken::new();
    let (publisher, worlds) = world::channel();
    tokio::spawn(world::follow(store.clone(), publisher, stop.clone()));
    let (subject, revision) = seed(&store).await;
    worlds.at_least(revision, Duration::from_secs(10)).await.unwrap();
    let presence = Presence::new("bench");
    tokio::spawn(presence.clone().run(store.clone(), stop.clone()));
    let service = WatchService::new(store.clone(), worlds, presence.clone(), stop.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().tcp_nodelay(true).add_service(service.into_server());
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let before = rss_kib();
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["clients", &address.to_string(), &watchers.to_string(), &stalled.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut commands = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let connected = rss_kib();

    let mut committed: BTreeMap<i64, u128> = BTreeMap::new();
    for i in 0..commits {
        let started = tokio::time::Instant::now();
        let revision = turn(&store, &subject, i % 2 == 0).await;
        committed.insert(revision, now_us());
        tokio::time::sleep_until(started + Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = rss_kib();
    let resumed = now_us();
    commands.write_all(format!("go {}\n", committed.keys().last().unwrap()).as_bytes()).await.unwrap();

    let mut latencies = Vec::new();
    let mut caught_up = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        let fields: Vec<&str> = line.split(' ').collect();
        match fields[0] {
            // A frame may hold several commits: each was seen when the frame was.
            "seen" => {
                let (from, to): (i64, i64) = (fields[1].parse().unwrap(), fields[2].parse().unwrap());
                let at: u128 = fields[3].parse().unwrap();
                latencies.extend(committed.range(from + 1..=to).map(|(_, done)| at.saturating_sub(*done)));
            }
            "caught" => caught_up.push((
                fields[1].parse::<u32>().unwrap(),
                fields[2].parse::<u128>().unwrap().saturating_sub(resumed),
            )),
            _ => panic!("{line}"),
        }
    }
    latencies.sort_unstable();
    let ms = |us: u128| us as f64 / 1000.0;
    let at = |share: f64| ms(latencies[((latencies.len() - 1) as f64 * share) as usize]);
    println!(
        "{watchers} watchers, {stalled} of them not reading, {commits} commits, {} sightings",
        latencies.len()
    );
    println!("commit to watcher: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", at(0.5), at(0.99), at(1.0));
    println!(
        "resident memory: {before} KiB before, {connected} KiB with all connected ({:.1} KiB each), {after} KiB after the commits",
        (connected.saturating_sub(before)) as f64 / watchers as f64
    );
    if !caught_up.is_empty() {
        let frames = caught_up.iter().map(|(frames, _)| *frames).max().unwrap();
        let last = caught_up.iter().map(|(_, us)| *us).max().unwrap();
        println!(
            "those that read again: {} of {stalled} caught up, at most {frames} frame(s), within {:.1} ms",
            caught_up.len(),
            ms(last)
        );
    }
    stop.cancel();
}

async fn seed(store: &Store) -> (Subject, Revision) {
    let channel = pb::Channel {
        name: "bench".into(),
        provider: "openai_compatible".into(),
        base_url: "http://127.0.0.1:9/v1".into(),
        groups: vec!["default".into()],
        models: vec![pb::ModelEntry { model: "m".into(), ..Default::default() }],
        ..Default::default()
    };
    let keys = vec!["sk-bench".to_owned()];
    let work = store.write::<_, StoreError>("bench", move |tx| {
        Box::pin(async move { tx.create_channel(channel, &keys).await })
    });
    let written = work.await.unwrap();
    (Subject::Channel(ChannelId(written.value.channel_id)), Revision(written.revision))
}

async fn turn(store: &Store, subject: &Subject, off: bool) -> i64 {
    let subject = subject.clone();
    let work = store.write::<_, StoreError>("bench", move |tx| {
        Box::pin(async move {
            if off {
                tx.disable(&subject, "bench").await.map(|_| ())
            } else {
                tx.enable(&subject, "bench").await.map(|_| ())
            }
        })
    });
    work.await.unwrap().revision
}

// === the watchers' side ===

async fn clients(args: &[String]) {
    let address: SocketAddr = args[0].parse().unwrap();
    let (watchers, stalled) = (number(args, 1, 0), number(args, 2, 0));
    let (ready, mut settled) = mpsc::channel(watchers.max(1));
    let (read, reading) = watch::channel(true);
    let (lines, mut printed) = mpsc::channel::<String>(1024);
    let (last, until) = watch::channel(i64::MAX);
    for i in 0..watchers {
        let stalls = i < stalled;
        let address = if stalls { relay(address, reading.clone()).await } else { address };
        tokio::spawn(watcher(i, address, stalls, ready.clone(), lines.clone(), until.clone()));
    }
    for _ in 0..watchers {
        settled.recv().await.unwrap();
    }
    read.send(false).unwrap();
    println!("ready");
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    let mut seen = Vec::new();
    let go = loop {
        tokio::select! {
            line = printed.recv() => seen.push(line.unwrap()),
            line = commands.next_line() => break line.unwrap().unwrap(),
        }
    };
    last.send(go.split(' ').nth(1).unwrap().parse().unwrap()).unwrap();
    read.send(true).unwrap();
    drop(lines);
    let limit = tokio::time::Instant::now() + Duration::from_secs(10);
    while let Ok(Some(line)) = tokio::time::timeout_at(limit, printed.recv()).await {
        seen.push(line);
        if seen.iter().filter(|line| line.starts_with("caught")).count() == stalled {
            break;
        }
    }
    seen.iter().for_each(|line| println!("{line}"));
}

/// A wire that stops carrying bytes while `reading` is false.
async fn relay(to: SocketAddr, reading: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpStream::connect(to).await.unwrap();
        let (near_read, near_write) = near.into_split();
        let (far_read, far_write) = far.into_split();
        tokio::spawn(carry(near_read, far_write, reading.clone()));
        carry(far_read, near_write, reading).await;
    });
    address
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut reading: watch::Receiver<bool>,
) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let _ = reading.wait_for(|on| *on).await;
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

async fn watcher(
    i: usize,
    address: SocketAddr,
    stalls: bool,
    ready: mpsc::Sender<()>,
    lines: mpsc::Sender<String>,
    mut until: watch::Receiver<i64>,
) {
    let (say, said) = mpsc::channel(4);
    let node = dp::Node {
        proxy_id: format!("bench-{i}"),
        instance_id: format!("instance-{i}"),
        groups: vec!["default".into()],
        ..Default::default()
    };
    let hello = dp::Hello { node: Some(node), held: None };
    say.send(dp::WatchRequest { message: Some(Say::Hello(hello)) }).await.unwrap();
    let channel = loop {
        match Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await {
            Ok(channel) => break channel,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let mut hear =
        RegistryWatchServiceClient::new(channel).watch(ReceiverStream::new(said)).await.unwrap().into_inner();
    let (mut at, mut frames) = (0, 0);
    while let Ok(Some(message)) = hear.message().await {
        let (frame, position, first) = match message.message {
            Some(Hear::Snapshot(chunk)) if chunk.last => (chunk.frame, chunk.position.unwrap(), true),
            Some(Hear::Update(update)) => (update.frame, update.position.unwrap(), false),
            _ => continue,
        };
        let (from, to) = (at, position.revision);
        at = to;
        let ack = dp::Ack { frame, applied: Some(position), rejections: Vec::new() };
        say.send(dp::WatchRequest { message: Some(Say::Ack(ack)) }).await.unwrap();
        if first {
            ready.send(()).await.unwrap();
        } else if !stalls {
            lines.send(format!("seen {from} {to} {}", now_us())).await.unwrap();
        } else {
            frames += 1;
            if to >= *until.borrow_and_update() {
                lines.send(format!("caught {frames} {}", now_us())).await.unwrap();
            }
        }
    }
}
