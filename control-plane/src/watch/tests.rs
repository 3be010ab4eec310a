//! The watch over real sockets: a client as small as it gets against the service and a followed registry.

use std::time::Duration;

use spareline_core::items::{Delta, Item, Items};
use spareline_core::{ChannelId, Subject};
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::dataplane::v1::registry_watch_service_client::RegistryWatchServiceClient;
use spareline_proto::dataplane::v1::watch_request::Message as Say;
use spareline_proto::dataplane::v1::watch_response::Message as Hear;
use spareline_proto::registry::v1 as pb;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt;

use super::{Presence, SNAPSHOTS, WatchService};
use crate::fleet::FleetService;
use crate::testing::Registry;

const KEY: &[&str] = &["sk-test-1"];

struct Served {
    registry: Registry,
    presence: Presence,
    watch: WatchService,
    stop: CancellationToken,
    url: String,
}

impl Served {
    async fn new() -> Self {
        Self::over(Registry::new().await, "replica-1").await
    }

    async fn over(registry: Registry, replica: &str) -> Self {
        let (presence, stop) = (Presence::new(replica), CancellationToken::new());
        let (store, worlds) = (registry.store.clone(), registry.worlds.clone());
        let watch = WatchService::new(store, worlds, presence.clone(), stop.clone());
        Self::with(registry, presence, watch, stop).await
    }

    async fn with(
        registry: Registry,
        presence: Presence,
        watch: WatchService,
        stop: CancellationToken,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Server::builder().add_service(watch.clone().into_server());
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        tokio::spawn(presence.clone().run(registry.store.clone(), stop.clone()));
        Self { registry, presence, watch, stop, url }
    }

    fn fleet(&self) -> FleetService {
        FleetService::new(self.registry.store.clone(), self.registry.worlds.clone(), self.presence.clone())
    }

    async fn dial(&self) -> RegistryWatchServiceClient<Channel> {
        RegistryWatchServiceClient::connect(self.url.clone()).await.unwrap()
    }

    async fn watcher(&self, hello: dp::Hello) -> Watcher {
        let (say, said) = mpsc::channel(8);
        say.send(request(Say::Hello(hello))).await.unwrap();
        let hear = self.dial().await.watch(ReceiverStream::new(said)).await.unwrap().into_inner();
        Watcher { say, hear, held: Items::default(), position: None }
    }
}

fn request(message: Say) -> dp::WatchRequest {
    dp::WatchRequest { message: Some(message) }
}

fn hello(proxy_id: &str, groups: &[&str]) -> dp::Hello {
    let node = dp::Node {
        proxy_id: proxy_id.into(),
        instance_id: "instance".into(),
        groups: groups.iter().map(|g| (*g).to_owned()).collect(),
        ..Default::default()
    };
    dp::Hello { node: Some(node), held: None }
}

struct Watcher {
    say: mpsc::Sender<dp::WatchRequest>,
    hear: Streaming<dp::WatchResponse>,
    held: Items,
    position: Option<dp::Position>,
}

impl Watcher {
    async fn next(&mut self) -> Result<Option<Hear>, Status> {
        let heard = tokio::time::timeout(Duration::from_secs(10), self.hear.message());
        Ok(heard.await.expect("something within 10 s")?.and_then(|m| m.message))
    }

    async fn welcome(&mut self) -> dp::Welcome {
        match self.next().await.unwrap() {
            Some(Hear::Welcome(welcome)) => welcome,
            other => panic!("expected a welcome, got {other:?}"),
        }
    }

    /// The next frame, applied and not yet answered; what kind it was.
    async fn frame(&mut self) -> (u64, &'static str) {
        loop {
            match self.next().await.unwrap() {
                Some(Hear::Snapshot(chunk)) => {
                    let channels = chunk.channels.into_iter().map(|m| Item::Channel(m.into()));
                    let credentials = chunk.credentials.into_iter().map(|m| Item::Credential(m.into()));
                    let statuses = chunk.statuses.into_iter().map(|m| Item::Status(m.into()));
                    let policies = chunk.policies.into_iter().map(|m| Item::Policy(m.into()));
                    for item in policies.chain(credentials).chain(channels).chain(statuses) {
                        self.held.insert(item);
                    }
                    if chunk.last {
                        self.agree(chunk.position);
                        return (chunk.frame, "snapshot");
                    }
                }
                Some(Hear::Update(update)) => {
                    let (frame, position) = (update.frame, update.position.clone());
                    self.held = self.held.apply(&Delta::from_update(update));
                    self.agree(position);
                    return (frame, "update");
                }
                Some(Hear::Checkpoint(_)) => {}
                other => panic!("expected a frame, got {other:?}"),
            }
        }
    }

    fn agree(&mut self, position: Option<dp::Position>) {
        let position = position.expect("a frame ends at a position");
        assert_eq!(position.digest, self.held.digest(), "both sides must count the same");
        self.position = Some(position);
    }

    async fn ack(&mut self, frame: u64) {
        let applied = self.position.clone();
        self.say.send(request(Say::Ack(dp::Ack { frame, applied, rejections: Vec::new() }))).await.unwrap();
    }

    async fn settle(&mut self) -> &'static str {
        let (frame, kind) = self.frame().await;
        self.ack(frame).await;
        kind
    }

    /// How it ends, whatever comes before.
    async fn end(&mut self) -> Result<Option<String>, Status> {
        let mut goodbye = None;
        loop {
            match self.next().await? {
                Some(Hear::Goodbye(bye)) => goodbye = Some(bye.why),
                Some(_) => {}
                None => return Ok(goodbye),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_watch_snapshot_update_resume() {
    let served = Served::new().await;
    let channel = served.registry.channel("first", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let mut watcher = served.watcher(hello("p", &["default"])).await;
    let welcome = watcher.welcome().await;
    assert_eq!((welcome.resumed, welcome.replica_id.as_str()), (false, "replica-1"));
    assert_eq!(watcher.settle().await, "snapshot");
    assert_eq!(watcher.held.channel_count(), 1);

    let subject = Subject::Channel(ChannelId(channel.channel_id));
    let revision = served.registry.disable(&subject).await;
    assert_eq!(watcher.settle().await, "update");
    assert_eq!(watcher.held.status(&subject).unwrap().revision, revision);

    let mut again =
        served.watcher(dp::Hello { held: watcher.position.clone(), ..hello("p2", &["default"]) }).await;
    assert!(again.welcome().await.resumed);
    again.held = watcher.held.clone();
    served.registry.enable(&subject).await;
    assert_eq!(again.settle().await, "update", "a resumed session goes on with what changed");
    let mut other = dp::Hello { held: watcher.position.clone(), ..hello("p3", &["default"]) };
    other.held.as_mut().unwrap().digest ^= 1;
    let mut doubtful = served.watcher(other).await;
    assert!(!doubtful.welcome().await.resumed);
    assert_eq!(doubtful.settle().await, "snapshot");
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_watch_one_frame_at_a_time_and_the_next_holds_everything_since() {
    let served = Served::new().await;
    let channel = served.registry.channel("first", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let mut watcher = served.watcher(hello("p", &["default"])).await;
    watcher.welcome().await;
    let (snapshot, _) = watcher.frame().await;
    let subject = Subject::Channel(ChannelId(channel.channel_id));
    let mut revision = 0;
    for _ in 0..20 {
        served.registry.disable(&subject).await;
        revision = served.registry.enable(&subject).await;
    }
    let silent = tokio::time::timeout(Duration::from_millis(300), watcher.hear.message()).await;
    assert!(silent.is_err(), "nothing is sent while a frame is unanswered");
    watcher.ack(snapshot).await;
    assert_eq!(watcher.settle().await, "update");
    assert_eq!(watcher.position.as_ref().unwrap().revision, revision, "forty changes are one frame");
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_watch_sees_its_groups_only() {
    let served = Served::new().await;
    served.registry.channel("ours", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let mut watcher = served.watcher(hello("p", &["vip"])).await;
    watcher.welcome().await;
    watcher.settle().await;
    assert_eq!((watcher.held.channel_count(), watcher.held.credentials().count()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_watch_refuses_garbage() {
    let served = Served::new().await;
    let mut nobody = hello("", &["default"]);
    nobody.node.as_mut().unwrap().instance_id.clear();
    let mut nul = hello("p", &["default"]);
    nul.node.as_mut().unwrap().labels.insert("zone".into(), "\0".into());
    for first in [
        Say::Hello(nul),
        Say::Resync(dp::Resync { why: "first".into() }),
        Say::Ack(dp::Ack::default()),
        Say::Hello(dp::Hello::default()),
        Say::Hello(nobody),
    ] {
        let (say, said) = mpsc::channel(1);
        say.send(request(first.clone())).await.unwrap();
        let mut hear = served.dial().await.watch(ReceiverStream::new(said)).await.unwrap().into_inner();
        let status = hear.message().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{first:?}: {status}");
    }

    // An answer to a frame that was never sent, and a second hello.
    for wrong in [Say::Ack(dp::Ack { frame: 99, ..Default::default() }), Say::Hello(hello("p", &[]))] {
        let mut watcher = served.watcher(hello("p", &["default"])).await;
        watcher.welcome().await;
        watcher.say.send(request(wrong.clone())).await.unwrap();
        let status = watcher.end().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{wrong:?}: {status}");
    }

    // Bytes of another message altogether.
    let channel = Channel::from_shared(served.url.clone()).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let garbage = dp::Node { proxy_id: "\u{1}\u{2}\u{3}".into(), ..Default::default() };
    let codec = tonic_prost::ProstCodec::<dp::Node, dp::WatchResponse>::default();
    let path = "/spareline.dataplane.v1.RegistryWatchService/Watch".parse().unwrap();
    let stream = tonic::Request::new(tokio_stream::iter([garbage]));
    let status = match grpc.streaming(stream, path, codec).await {
        Ok(answer) => answer.into_inner().message().await.unwrap_err(),
        Err(status) => status,
    };
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_watch_tells_a_proxy_ahead_of_history() {
    let served = Served::new().await;
    served.registry.channel("first", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let world = served.registry.worlds.current().unwrap();
    let held = dp::Position { epoch: world.epoch.to_string(), revision: world.revision.0 + 10, digest: 1 };
    let mut watcher = served.watcher(dp::Hello { held: Some(held), ..hello("p", &["default"]) }).await;
    let status = watcher.end().await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.get_details_error_info().unwrap().reason, "history_lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_watch_says_goodbye_and_ends() {
    let served = Served::new().await;
    let mut watcher = served.watcher(hello("p", &["default"])).await;
    watcher.welcome().await;
    served.stop.cancel();
    let why = watcher.end().await.unwrap();
    assert_eq!(why.as_deref(), Some("shutting down"));
    tokio::time::timeout(Duration::from_secs(5), served.watch.drained())
        .await
        .expect("all sessions have ended");
    assert!(served.presence.sessions().is_empty());
    let status = served.dial().await.watch(tokio_stream::iter([])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_watch_a_half_closed_client_is_served_and_a_gone_one_is_forgotten() {
    let served = Served::new().await;
    let watcher = served.watcher(hello("p", &["default"])).await;
    let Watcher { say, mut hear, .. } = watcher;
    assert!(matches!(hear.message().await.unwrap().unwrap().message, Some(Hear::Welcome(_))));
    drop(say);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(served.presence.sessions().len(), 1, "it listens on");
    drop(hear);
    let mut changes = served.presence.subscribe();
    while !served.presence.sessions().is_empty() {
        tokio::time::timeout(Duration::from_secs(5), changes.changed()).await.expect("it has left").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_watch_an_old_session_is_asked_to_reconnect_and_goes_on_from_there() {
    let registry = Registry::new().await;
    registry.channel("one", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let (presence, stop) = (Presence::new("replica-1"), CancellationToken::new());
    let settings = super::session::Settings {
        heartbeat: Duration::from_secs(10),
        max_age: Duration::from_secs(1),
        replica_id: "replica-1".into(),
        features: Vec::new(),
    };
    let (store, worlds) = (registry.store.clone(), registry.worlds.clone());
    let watch = WatchService::with_settings(store, worlds, presence.clone(), stop.clone(), settings);
    let served = Served::with(registry, presence, watch, stop).await;
    let mut watcher = served.watcher(hello("p", &["default"])).await;
    assert!(!watcher.welcome().await.resumed);
    watcher.settle().await;
    let held = watcher.position.clone();
    assert_eq!(watcher.end().await.unwrap().as_deref(), Some("session age"));
    let again = dp::Hello { held, ..hello("p", &["default"]) };
    assert!(served.watcher(again).await.welcome().await.resumed);
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_watch_stalled_snapshots_keep_others_waiting_for_their_turn_only() {
    let served = Served::new().await;
    // Some 5 MiB: more than a client that does not read lets onto the wire.
    let labels = (0..64).map(|n| (format!("label-{n}"), "x".repeat(256)));
    let heavy = pb::Channel {
        provider: "openai_compatible".into(),
        base_url: "http://127.0.0.1:9/v1".into(),
        models: vec![pb::ModelEntry { model: "m".into(), ..Default::default() }],
        labels: labels.collect(),
        ..Default::default()
    };
    for n in 0..300 {
        served.registry.create(pb::Channel { name: format!("c{n}"), ..heavy.clone() }, KEY).await;
    }
    let mut stalled = Vec::new();
    for n in 0..SNAPSHOTS {
        let mut watcher = served.watcher(hello(&format!("stalled-{n}"), &["default"])).await;
        watcher.welcome().await;
        stalled.push(watcher);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = std::time::Instant::now();
    let mut last = served.watcher(hello("last", &["default"])).await;
    last.welcome().await;
    let turn = tokio::time::timeout(Duration::from_secs(30), last.settle()).await;
    assert_eq!(turn.expect("a turn within some seconds"), "snapshot");
    assert!(asked.elapsed() > Duration::from_secs(1), "nobody was stalled");
    assert_eq!(last.held.channel_count(), 300);
    // Those that stalled go on as soon as they read.
    assert_eq!(stalled[0].settle().await, "snapshot");
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_wait_for_revision_and_the_fleet_view() {
    use spareline_proto::admin::v1 as admin;
    use spareline_proto::admin::v1::fleet_service_server::FleetService as _;

    let served = Served::new().await;
    let channel = served.registry.channel("first", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let mut near = served.watcher(hello("near", &["default"])).await;
    near.welcome().await;
    let (frame, _) = near.frame().await;
    let fleet = served.fleet();
    let wait = async |revision, ms: i32| {
        let timeout = Some(prost_types::Duration { seconds: 0, nanos: ms * 1_000_000 });
        let request = admin::WaitForRevisionRequest { revision, timeout };
        fleet.wait_for_revision(tonic::Request::new(request)).await.unwrap().into_inner()
    };
    let late = wait(channel.spec_revision, 100).await;
    assert_eq!((late.reached, late.lagging_proxy_ids), (false, vec!["near".to_owned()]));
    near.ack(frame).await;
    assert!(wait(channel.spec_revision, 900).await.reached);
    assert!(!wait(channel.spec_revision + 1, 50).await.reached, "nobody has committed that yet");

    let summary =
        fleet.get_fleet_summary(tonic::Request::new(Default::default())).await.unwrap().into_inner();
    assert_eq!((summary.connected, summary.current, summary.rejecting), (1, 1, 0));
    assert_eq!(summary.min_applied_revision, channel.spec_revision);

    // The other replica learns of it from the table, within its second.
    let far = Served::over(Registry::replica(served.registry.database.clone()).await, "replica-2").await;
    let seen = async {
        loop {
            let request = tonic::Request::new(admin::GetProxyRequest { proxy_id: "near".into() });
            if let Ok(found) = far.fleet().get_proxy(request).await {
                let proxy = found.into_inner().proxy.unwrap();
                if proxy.connected && proxy.applied == proxy.wanted {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), seen).await.expect("the other replica sees it");
    let request =
        tonic::Request::new(admin::ListProxiesRequest { filter: "lagging".into(), ..Default::default() });
    assert!(far.fleet().list_proxies(request).await.unwrap().into_inner().proxies.is_empty());
    let request =
        tonic::Request::new(admin::ListProxiesRequest { filter: "colour=red".into(), ..Default::default() });
    assert_eq!(far.fleet().list_proxies(request).await.unwrap_err().code(), Code::InvalidArgument);
}
