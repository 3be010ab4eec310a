#[path = "../../../../data-plane/core/src/fixtures.rs"]
#[allow(dead_code, unreachable_pub)]
mod fixtures;
mod model;

use rand::SeedableRng;
use rand::rngs::StdRng;
use spareline_core::ChannelId;
use spareline_core::items::Item;
use spareline_proto::registry::v1 as pb;

use super::*;

const NOW: Duration = Duration::from_secs(100);

fn settings() -> Settings {
    Settings {
        heartbeat: Duration::from_secs(10),
        max_age: Duration::from_secs(1800),
        replica_id: "r1".to_owned(),
        features: vec!["a".to_owned(), "b".to_owned()],
    }
}

fn target(revision: i64, channels: Vec<pb::Channel>) -> Target {
    let items = channels.into_iter().map(|c| Item::Channel(Arc::new(c))).collect();
    Target { epoch: Arc::from("e"), revision: Revision(revision), items, allow_empty: false }
}

fn hello(held: Option<dp::Position>) -> dp::Hello {
    let node =
        dp::Node { proxy_id: "p".into(), features: vec!["b".into(), "z".into()], ..Default::default() };
    dp::Hello { node: Some(node), held }
}

struct Bench {
    session: Box<ServerSession>,
    rng: StdRng,
    now: Duration,
}

impl Bench {
    fn open(held: Option<dp::Position>, target: &Target) -> Self {
        let mut rng = StdRng::seed_from_u64(1);
        match ServerSession::open(hello(held), target, &settings(), "s".into(), NOW, &mut rng) {
            Open::Session(session) => Self { session, rng, now: NOW },
            other => panic!("{other:?}"),
        }
    }

    fn poll(&mut self, target: &Target) -> Option<Message> {
        let time = fixtures::at(1000);
        self.session.poll(target, time, self.now, &mut self.rng).and_then(|m| m.message)
    }

    fn welcome(&mut self, target: &Target) -> dp::Welcome {
        match self.poll(target) {
            Some(Message::Welcome(welcome)) => welcome,
            other => panic!("{other:?}"),
        }
    }

    /// A whole snapshot; the chunks.
    fn snapshot(&mut self, target: &Target) -> Vec<dp::SnapshotChunk> {
        let mut chunks = Vec::new();
        loop {
            match self.poll(target) {
                Some(Message::Snapshot(chunk)) => {
                    chunks.push(chunk);
                    if chunks.last().is_some_and(|c| c.last) {
                        return chunks;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn update(&mut self, target: &Target) -> dp::Update {
        match self.poll(target) {
            Some(Message::Update(update)) => update,
            other => panic!("{other:?}"),
        }
    }

    fn ack(&mut self, frame: u64, rejections: Vec<dp::Rejection>) -> Result<Received, ProtocolError> {
        let ack = dp::Ack { frame, applied: None, rejections };
        self.session.received(dp::WatchRequest { message: Some(Request::Ack(ack)) }, self.now)
    }

    fn resync(&mut self) -> Received {
        let resync = dp::Resync { why: "test".into() };
        self.session.received(dp::WatchRequest { message: Some(Request::Resync(resync)) }, self.now).unwrap()
    }

    /// Welcomed, and in agreement on `target`.
    fn synced(target: &Target) -> Self {
        let mut bench = Self::open(None, target);
        bench.welcome(target);
        let frame = bench.snapshot(target)[0].frame;
        bench.ack(frame, vec![]).unwrap();
        bench
    }
}

#[test]
fn a_cold_proxy_gets_a_snapshot_and_then_nothing() {
    let target = target(5, vec![fixtures::channel(1)]);
    let mut bench = Bench::open(None, &target);
    let welcome = bench.welcome(&target);
    assert!(!welcome.resumed);
    assert_eq!(welcome.enabled_features, ["b"]);
    let chunks = bench.snapshot(&target);
    assert_eq!(chunks.len(), 1);
    let position = chunks[0].position.clone().unwrap();
    assert_eq!((position.revision, position.digest), (5, target.items.digest()));
    assert!(bench.poll(&target).is_none(), "one frame in flight");
    bench.ack(chunks[0].frame, vec![]).unwrap();
    assert!(bench.poll(&target).is_none());
    assert_eq!(bench.session.applied(), Some(&position));
}

#[test]
fn an_equal_digest_resumes_without_a_snapshot_byte() {
    let target = target(5, vec![fixtures::channel(1)]);
    let held = dp::Position { epoch: "e".into(), revision: 3, digest: target.items.digest() };
    let mut bench = Bench::open(Some(held.clone()), &target);
    assert!(bench.welcome(&target).resumed);
    assert!(bench.poll(&target).is_none());
    let next = self::target(6, vec![fixtures::channel(1), fixtures::channel(2)]);
    assert_eq!(bench.update(&next).channels.len(), 1, "the first change comes as an update");

    for other in [dp::Position { digest: 1, ..held.clone() }, dp::Position { epoch: "f".into(), ..held }] {
        let mut bench = Bench::open(Some(other), &target);
        assert!(!bench.welcome(&target).resumed);
        assert_eq!(bench.snapshot(&target).len(), 1);
    }
}

#[test]
fn a_proxy_ahead_of_us_is_noticed() {
    let target = target(5, vec![]);
    let held = dp::Position { epoch: "e".into(), revision: 6, digest: 0 };
    let open =
        |held| ServerSession::open(hello(held), &target, &settings(), "s".into(), NOW, &mut rand::rng());
    assert!(matches!(open(Some(held.clone())), Open::Ahead));
    assert!(matches!(open(Some(dp::Position { epoch: "old".into(), ..held })), Open::Session(_)));
    let nobody = dp::Hello { node: None, held: None };
    let open = ServerSession::open(nobody, &target, &settings(), "s".into(), NOW, &mut rand::rng());
    assert!(matches!(open, Open::Refused(_)));
}

#[test]
fn a_slow_reader_gets_one_frame_after_the_one_on_its_way() {
    let first = target(1, vec![fixtures::channel(1)]);
    let mut bench = Bench::synced(&first);
    let second = target(2, vec![fixtures::channel(1), fixtures::channel(2)]);
    let on_its_way = bench.update(&second);
    let mut last = second;
    for revision in 3..100 {
        last = target(revision, (1..=revision).map(fixtures::channel).collect());
        assert!(bench.poll(&last).is_none());
    }
    bench.ack(on_its_way.frame, vec![]).unwrap();
    let one = bench.update(&last);
    assert_eq!(one.channels.len(), 97);
    assert_eq!(one.position.as_ref().unwrap().revision, 99);
    bench.ack(one.frame, vec![]).unwrap();
    assert!(bench.poll(&last).is_none());
}

#[test]
fn what_is_undone_before_it_is_sent_is_never_sent() {
    let first = target(1, vec![fixtures::channel(1)]);
    let mut bench = Bench::synced(&first);
    assert!(bench.poll(&target(3, vec![fixtures::channel(1)])).is_none(), "nothing in it for this proxy");
}

#[test]
fn a_heartbeat_brings_the_revision_and_else_the_proof_of_agreement() {
    let first = target(1, vec![fixtures::channel(1)]);
    let mut bench = Bench::synced(&first);
    let due = bench.session.deadline();
    assert!((9.0..=11.0).contains(&(due - NOW).as_secs_f64()));
    bench.now = due;
    match bench.poll(&first) {
        Some(Message::Checkpoint(checkpoint)) => {
            assert_eq!(checkpoint.position.unwrap().digest, first.items.digest());
        }
        other => panic!("{other:?}"),
    }
    assert!(bench.poll(&first).is_none());
    bench.now = bench.session.deadline();
    let later = target(9, vec![fixtures::channel(1)]);
    let update = bench.update(&later);
    assert!(update.channels.is_empty());
    assert_eq!(update.position.unwrap().revision, 9);
}

#[test]
fn a_rejected_version_is_not_sent_again_and_counts_as_what_was_kept() {
    let first = target(1, vec![fixtures::channel(1)]);
    let mut bench = Bench::synced(&first);
    let bad = pb::Channel { spec_revision: 2, ..fixtures::channel(1) };
    let second = target(2, vec![bad.clone()]);
    let update = bench.update(&second);
    let rejection = dp::Rejection {
        item: Some(ItemKey::Channel(ChannelId(1)).to_ref()),
        version: 2,
        message: "no".into(),
        kept_version: 1,
    };
    bench.ack(update.frame, vec![rejection]).unwrap();
    assert_eq!(bench.session.applied().unwrap().digest, first.items.digest());
    assert_eq!(bench.session.rejections().len(), 1);
    let third = target(3, vec![bad, fixtures::channel(2)]);
    let update = bench.update(&third);
    assert_eq!(update.channels.iter().map(|c| c.channel_id).collect::<Vec<_>>(), [2]);
    bench.ack(update.frame, vec![]).unwrap();
    // Its next version is.
    let good = pb::Channel { spec_revision: 4, ..fixtures::channel(1) };
    let fourth = target(4, vec![good, fixtures::channel(2)]);
    let update = bench.update(&fourth);
    assert_eq!(update.channels[0].channel_id, 1);
    bench.ack(update.frame, vec![]).unwrap();
    assert_eq!(bench.session.applied().unwrap().digest, fourth.items.digest());
    assert!(bench.session.rejections().is_empty());
}

#[test]
fn a_resync_is_granted_once_a_minute() {
    let first = target(1, vec![fixtures::channel(1)]);
    let mut bench = Bench::synced(&first);
    assert_eq!(bench.resync(), Received::Resync("test".into()));
    let frame = bench.snapshot(&first)[0].frame;
    bench.ack(frame, vec![]).unwrap();
    assert_eq!(bench.resync(), Received::ResyncTooSoon);
    assert!(bench.poll(&first).is_none());
    bench.now += Duration::from_secs(60);
    assert_eq!(bench.resync(), Received::Resync("test".into()));
}

#[test]
fn chunks_stay_below_a_mebibyte_and_carry_everything() {
    let wide = |id| pb::Channel {
        models: (0..200).map(|m| fixtures::model(&format!("model-{m}-{}", "x".repeat(200)))).collect(),
        ..fixtures::channel(id)
    };
    let target = target(1, (1..=200).map(wide).collect());
    let mut bench = Bench::open(None, &target);
    bench.welcome(&target);
    let chunks = bench.snapshot(&target);
    assert!(chunks.len() > 5);
    assert!(chunks.iter().all(|c| c.encoded_len() <= MAX_FRAME));
    assert_eq!(chunks.iter().map(|c| c.channels.len()).sum::<usize>(), 200);
    assert!(chunks.iter().rev().skip(1).all(|c| !c.last && c.position.is_none()));
    let usual = |id| pb::Channel {
        models: (0..10)
            .map(|m| fixtures::model(&format!("model-{id}-{m}-of-a-usual-length-as-vendors-have-it")))
            .collect(),
        ..fixtures::channel(id)
    };
    let many = self::target(1, (1..=10_000).map(usual).collect());
    let mut bench = Bench::open(None, &many);
    bench.welcome(&many);
    let all = bench.snapshot(&many);
    assert!(all.iter().map(|c| c.encoded_len()).sum::<usize>() > 4 << 20, "no more than one message holds");
    assert!(all.iter().all(|c| c.encoded_len() <= MAX_FRAME));
    assert_eq!(all.iter().map(|c| c.channels.len()).sum::<usize>(), 10_000);
    // An update as large comes as a snapshot.
    let mut bench = Bench::synced(&self::target(1, vec![]));
    let large = Target { revision: Revision(2), ..target };
    assert!(bench.snapshot(&large).len() > 5);
}

#[test]
fn an_empty_registry_is_flagged_where_a_change_made_it_so() {
    let first = target(1, vec![fixtures::channel(1)]);
    let empty = target(2, vec![]);
    assert!(Bench::synced(&first).update(&empty).allow_empty);
    let flag = |held: &dp::Position, target: &Target| {
        let mut bench = Bench::open(Some(held.clone()), target);
        bench.welcome(target);
        bench.snapshot(target)[0].allow_empty
    };
    let held = dp::Position { epoch: "e".into(), revision: 1, digest: first.items.digest() };
    assert!(flag(&held, &empty), "the same history");
    let other = dp::Position { epoch: "before the restore".into(), ..held };
    assert!(!flag(&other, &empty));
    assert!(flag(&other, &Target { allow_empty: true, ..empty.clone() }));
}

#[test]
fn a_new_epoch_comes_as_a_snapshot() {
    let first = target(7, vec![fixtures::channel(1)]);
    let mut bench = Bench::synced(&first);
    let next = Target { epoch: Arc::from("f"), ..target(8, vec![fixtures::channel(1)]) };
    let chunks = bench.snapshot(&next);
    assert_eq!(chunks[0].position.as_ref().unwrap().epoch, "f");
}

#[test]
fn sessions_end_of_old_age_but_not_within_a_frame() {
    let first = target(1, vec![fixtures::channel(1)]);
    let mut bench = Bench::synced(&first);
    bench.now += Duration::from_secs(1981);
    assert!(matches!(bench.poll(&first), Some(Message::Goodbye(_))));
    assert!(bench.session.is_over());
    assert!(bench.poll(&target(2, vec![])).is_none());

    let mut bench = Bench::synced(&first);
    let update = bench.update(&target(2, vec![fixtures::channel(2)]));
    bench.now += Duration::from_secs(1981);
    assert!(matches!(bench.poll(&first), Some(Message::Checkpoint(_))));
    bench.ack(update.frame, vec![]).unwrap();
    assert!(matches!(bench.poll(&first), Some(Message::Goodbye(_))));
}

#[test]
fn garbage_ends_the_session() {
    let first = target(1, vec![fixtures::channel(1)]);
    let mut bench = Bench::synced(&first);
    assert!(bench.ack(7, vec![]).is_err());
    assert!(bench.session.received(dp::WatchRequest { message: None }, NOW).is_err());
    let again = dp::WatchRequest { message: Some(Request::Hello(hello(None))) };
    assert!(bench.session.received(again, NOW).is_err());
    // A rejection of something that was never sent is not believed.
    let update = bench.update(&target(2, vec![fixtures::channel(2)]));
    let made_up = dp::Rejection {
        item: Some(ItemKey::Channel(ChannelId(9)).to_ref()),
        version: 9,
        ..Default::default()
    };
    bench.ack(update.frame, vec![made_up]).unwrap();
    assert!(bench.session.rejections().is_empty());
}
