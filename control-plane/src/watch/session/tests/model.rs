//! Both halves of the watch against each other: pipes that are cut, restarts on either side, a replica that lags, items
//! that proxies cannot use. Nothing goes back in time, nothing rejected is sent again within its session, nobody asks
//! for a resync, and in the end everybody serves what the registry says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::RngExt as _;
use spareline_core::Subject;
use spareline_core::session::{Action, ClientSession};
use spareline_core::view::View;

use super::*;

const GROUPS: [&str; 2] = ["default", "gold"];

/// The registry, and its past.
struct World {
    epoch: Arc<str>,
    revision: i64,
    items: Items,
    past: VecDeque<(i64, Items)>,
}

struct Proxy {
    groups: Vec<&'static str>,
    session: ClientSession,
    pipe: Option<Pipe>,
    seen: Option<(Arc<str>, i64)>,
    resyncs: usize,
}

/// One connection: reliable and in order, until it is cut.
struct Pipe {
    server: Box<ServerSession>,
    down: VecDeque<dp::WatchResponse>,
    up: VecDeque<dp::WatchRequest>,
    rejected: BTreeSet<(ItemKey, i64)>,
    frames: usize,
}

struct Model {
    world: World,
    proxies: Vec<Proxy>,
    rng: StdRng,
    now: Duration,
}

fn node(proxy: usize, groups: &[&str]) -> dp::Node {
    dp::Node {
        proxy_id: format!("p{proxy}"),
        groups: groups.iter().map(|g| (*g).to_owned()).collect(),
        ..Default::default()
    }
}

impl Proxy {
    fn new(id: usize, groups: Vec<&'static str>, view: Arc<View>, now: Duration) -> Self {
        let session = ClientSession::new(node(id, &groups), view, now);
        Self { groups, session, pipe: None, seen: None, resyncs: 0 }
    }

    fn hang_up(&mut self, now: Duration, rng: &mut StdRng) {
        self.pipe = None;
        if self.session.dial_at().is_none() {
            self.session.disconnected(now, rng);
        }
    }
}

impl World {
    fn target(&self, groups: &[&str], lag: usize) -> Target {
        let (revision, items) = match self.past.len().checked_sub(lag).and_then(|i| self.past.get(i)) {
            Some((revision, items)) if lag > 0 => (*revision, items),
            _ => (self.revision, &self.items),
        };
        Target {
            epoch: self.epoch.clone(),
            revision: Revision(revision),
            items: items.for_groups(groups),
            allow_empty: false,
        }
    }

    fn change(&mut self, rng: &mut StdRng) {
        self.past.push_back((self.revision, self.items.clone()));
        if self.past.len() > 5 {
            self.past.pop_front();
        }
        self.revision += 1;
        for _ in 0..rng.random_range(1..4) {
            let id = rng.random_range(1..8);
            match rng.random_range(0..10) {
                0..4 => {
                    let mut channel = fixtures::channel(id);
                    channel.spec_revision = self.revision;
                    channel.groups = vec![GROUPS[rng.random_range(0..2)].to_owned()];
                    channel.credential_ids = vec![rng.random_range(1..4)];
                    if rng.random_bool(0.2) {
                        channel.base_url = "ftp://nobody-can-use-this".to_owned();
                    }
                    self.items.insert(Item::Channel(Arc::new(channel)));
                }
                4 => self.items.remove(&ItemKey::Channel(ChannelId(id))),
                5 => {
                    let mut credential = fixtures::credential(id % 3 + 1);
                    credential.revision = self.revision;
                    self.items.insert(Item::Credential(Arc::new(credential)));
                }
                6..9 => {
                    let subject = fixtures::on_channel(id);
                    let status = fixtures::out(subject, pb::Cause::Quota, self.revision);
                    self.items.insert(Item::Status(Arc::new(status)));
                }
                _ => self.items.remove(&ItemKey::Status(Subject::Channel(ChannelId(id)))),
            }
        }
    }
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut world =
            World { epoch: Arc::from("e0"), revision: 0, items: Items::default(), past: VecDeque::new() };
        world.change(&mut rng);
        let groups = [vec!["default"], vec!["gold"], vec!["default", "gold"]];
        let proxies = groups.into_iter().enumerate();
        let proxies = proxies.map(|(id, g)| Proxy::new(id, g, Arc::new(View::empty(1)), NOW)).collect();
        Self { world, proxies, rng, now: NOW }
    }

    fn step(&mut self, faults: bool) {
        self.now += Duration::from_millis(self.rng.random_range(1..200));
        if faults && self.rng.random_bool(0.3) {
            self.world.change(&mut self.rng);
        }
        for id in 0..self.proxies.len() {
            if faults {
                self.fault(id);
            }
            let lag = if faults && self.rng.random_bool(0.2) { self.rng.random_range(1..4) } else { 0 };
            self.dial(id, lag);
            self.serve(id);
            self.deliver(id, faults);
            let proxy = &mut self.proxies[id];
            if !proxy.session.tick(self.now).is_empty() {
                proxy.hang_up(self.now, &mut self.rng);
            }
        }
    }

    fn fault(&mut self, id: usize) {
        let proxy = &mut self.proxies[id];
        match self.rng.random_range(0..100) {
            0..4 => proxy.hang_up(self.now, &mut self.rng),
            // The proxy restarts, with its registry on disk or without.
            4 => {
                let view = proxy.session.view().clone();
                *proxy = Proxy::new(id, proxy.groups.clone(), view, self.now);
            }
            5 => *proxy = Proxy::new(id, proxy.groups.clone(), Arc::new(View::empty(1)), self.now),
            // The database was restored: another history, in which the same versions mean something else.
            6 if self.rng.random_bool(0.1) => {
                self.world.epoch = Arc::from(format!("e{}", self.now.as_millis()));
                self.world.past.clear();
            }
            _ => {}
        }
    }

    fn dial(&mut self, id: usize, lag: usize) {
        let proxy = &mut self.proxies[id];
        if proxy.session.dial_at().is_none_or(|at| at > self.now) {
            return;
        }
        let Some(Request::Hello(hello)) = proxy.session.connected(self.now).message else { panic!() };
        let target = self.world.target(&proxy.groups, lag);
        match ServerSession::open(hello, &target, &settings(), "s".into(), self.now, &mut self.rng) {
            Open::Session(server) => {
                let (down, up) = (VecDeque::new(), VecDeque::new());
                proxy.pipe = Some(Pipe { server, down, up, rejected: BTreeSet::new(), frames: 0 });
            }
            Open::Ahead => {
                assert!(lag > 0, "history is never lost here");
                proxy.hang_up(self.now, &mut self.rng);
            }
            Open::Refused(why) => panic!("{why}"),
        }
    }

    fn serve(&mut self, id: usize) {
        let proxy = &mut self.proxies[id];
        let Some(pipe) = &mut proxy.pipe else { return };
        if pipe.down.len() > 2 {
            return;
        }
        let target = self.world.target(&proxy.groups, 0);
        let time = prost_types::Timestamp { seconds: 1, nanos: 0 };
        let Some(message) = pipe.server.poll(&target, time, self.now, &mut self.rng) else { return };
        match &message.message {
            Some(Message::Update(update)) => {
                pipe.frames += 1;
                for channel in &update.channels {
                    let sent = (ItemKey::Channel(ChannelId(channel.channel_id)), channel.spec_revision);
                    assert!(!pipe.rejected.contains(&sent), "a rejected version is not sent again");
                }
            }
            Some(Message::Snapshot(_)) => pipe.frames += 1,
            _ => {}
        }
        pipe.down.push_back(message);
    }

    fn deliver(&mut self, id: usize, faults: bool) {
        let proxy = &mut self.proxies[id];
        let Some(pipe) = &mut proxy.pipe else { return };
        let stalls = faults && self.rng.random_bool(0.3);
        if let Some(message) = pipe.down.pop_if_front(|_| !stalls) {
            for action in proxy.session.received(message, self.now) {
                match action {
                    Action::Send(request) => {
                        if matches!(request.message, Some(Request::Resync(_))) {
                            proxy.resyncs += 1;
                        }
                        pipe.up.push_back(request);
                    }
                    Action::Publish(published) => {
                        for rejection in &published.rejections {
                            pipe.rejected.insert((rejection.key.clone(), rejection.version));
                        }
                        let position = (published.view.epoch().clone(), published.view.revision().0);
                        if let Some((epoch, revision)) = &proxy.seen {
                            assert!(*epoch != position.0 || *revision <= position.1, "back in time");
                        }
                        proxy.seen = Some(position);
                    }
                    Action::Close(_) => {
                        proxy.hang_up(self.now, &mut self.rng);
                        return;
                    }
                    Action::Welcomed(_) | Action::Warn(_) => {}
                }
            }
        }
        if let Some(request) = pipe.up.pop_if_front(|_| !stalls) {
            pipe.server.received(request, self.now).unwrap();
        }
    }

    /// Everybody serves what the registry says, but for what cannot be used.
    fn assert_converged(&self) {
        for proxy in &self.proxies {
            let view = proxy.session.view();
            let should: BTreeMap<_, _> = versions(&self.world.items.for_groups(&proxy.groups));
            let serves: BTreeMap<_, _> = versions(view.items());
            assert!(serves.keys().all(|key| should.contains_key(key)), "{serves:?} beyond {should:?}");
            for (key, version) in should {
                let usable = match &key {
                    ItemKey::Channel(id) => {
                        self.world.items.channel(*id).is_some_and(|c| c.base_url.starts_with("https"))
                    }
                    _ => true,
                };
                if usable {
                    assert_eq!(serves.get(&key), Some(&version), "{key:?}");
                } else {
                    assert_ne!(serves.get(&key), Some(&version), "{key:?} cannot be used");
                }
            }
            let pipe = proxy.pipe.as_ref().expect("connected");
            let applied = pipe.server.applied().expect("acknowledged");
            assert_eq!(applied.digest, view.items().digest(), "both sides agree on what is served");
            assert_eq!(proxy.resyncs, 0, "nobody has a reason to ask for a resync");
        }
    }
}

fn versions(items: &Items) -> BTreeMap<ItemKey, i64> {
    items.iter().map(|item| (item.key().unwrap(), item.version())).collect()
}

/// Not on every toolchain yet.
trait PopIf<T> {
    fn pop_if_front(&mut self, may: impl FnOnce(&T) -> bool) -> Option<T>;
}

impl<T> PopIf<T> for VecDeque<T> {
    fn pop_if_front(&mut self, may: impl FnOnce(&T) -> bool) -> Option<T> {
        if self.front().is_some_and(may) { self.pop_front() } else { None }
    }
}

#[test]
fn part6_watch_everything_converges_over_cut_pipes_restarts_and_rejections() {
    for seed in 0..150 {
        let mut model = Model::new(seed);
        for _ in 0..300 {
            model.step(true);
        }
        // A registry without channels is refused by proxies from another history: give it one they can use.
        for group in GROUPS {
            model.world.revision += 1;
            let id = if group == "gold" { 8 } else { 9 };
            let channel = pb::Channel {
                groups: vec![group.to_owned()],
                spec_revision: model.world.revision,
                ..fixtures::channel(id)
            };
            model.world.items.insert(Item::Channel(Arc::new(channel)));
        }
        for _ in 0..600 {
            model.step(false);
        }
        model.assert_converged();
        // And then there is peace: heartbeats, and no more frames than one for the revision.
        let frames = |model: &Model| {
            model.proxies.iter().filter_map(|p| p.pipe.as_ref()).map(|p| p.frames).sum::<usize>()
        };
        let before = frames(&model);
        for _ in 0..600 {
            model.step(false);
        }
        assert!(frames(&model) <= before + 3, "seed {seed}");
        model.assert_converged();
    }
}
