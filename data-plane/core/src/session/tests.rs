use rand::SeedableRng;
use rand::rngs::StdRng;
use spareline_proto::registry::v1 as pb;

use super::*;
use crate::fixtures;
use crate::items::digest;
use crate::{ChannelId, items::ItemKey};

const NOW: Duration = Duration::from_secs(100);

fn session() -> ClientSession {
    let node = dp::Node { proxy_id: "p".into(), ..Default::default() };
    ClientSession::new(node, Arc::new(View::empty(1)), NOW)
}

fn welcomed(resumed: bool) -> ClientSession {
    let mut session = session();
    welcome(&mut session, resumed);
    session
}

fn welcome(session: &mut ClientSession, resumed: bool) {
    session.connected(NOW);
    let welcome = dp::Welcome {
        heartbeat_interval: Some(prost_types::Duration { seconds: 10, nanos: 0 }),
        resumed,
        ..Default::default()
    };
    assert!(matches!(say(session, Response::Welcome(welcome))[..], [Action::Welcomed(_)]));
}

fn say(session: &mut ClientSession, message: Response) -> Vec<Action> {
    session.received(dp::WatchResponse { message: Some(message) }, NOW)
}

fn chunk(frame: u64, revision: i64, channels: Vec<pb::Channel>) -> dp::SnapshotChunk {
    dp::SnapshotChunk {
        frame,
        last: true,
        position: Some(dp::Position { epoch: "e".into(), revision, digest: 0 }),
        channels,
        server_time: Some(fixtures::at(1000)),
        ..Default::default()
    }
}

fn served(session: &ClientSession) -> Vec<i64> {
    session.view().lines().map(|l| l.spec.id.0).collect()
}

fn closes(actions: &[Action]) -> &Why {
    match actions {
        [Action::Close(why)] => why,
        other => panic!("{other:?}"),
    }
}

fn synced() -> ClientSession {
    let mut session = welcomed(false);
    let actions =
        say(&mut session, Response::Snapshot(chunk(1, 5, vec![fixtures::channel(1), fixtures::channel(2)])));
    assert!(matches!(actions[..], [Action::Publish(_), Action::Send(_)]));
    session
}

fn update(frame: u64, revision: i64) -> dp::Update {
    dp::Update {
        frame,
        position: Some(dp::Position { epoch: "e".into(), revision, digest: 0 }),
        ..Default::default()
    }
}

#[test]
fn a_snapshot_is_staged_and_swapped_at_the_last_chunk() {
    let mut session = welcomed(false);
    assert!(!session.is_ready());
    let first = dp::SnapshotChunk { last: false, position: None, ..chunk(1, 5, vec![fixtures::channel(1)]) };
    assert!(say(&mut session, Response::Snapshot(first)).is_empty());
    assert!(served(&session).is_empty());
    let actions = say(&mut session, Response::Snapshot(chunk(1, 5, vec![fixtures::channel(2)])));
    assert_eq!(served(&session), [1, 2]);
    assert!(session.is_ready());
    let [Action::Publish(published), Action::Send(ack)] = &actions[..] else { panic!("{actions:?}") };
    assert!(published.snapshot);
    assert_eq!(published.delta.channels.len(), 2);
    let Some(Request::Ack(ack)) = &ack.message else { panic!("{ack:?}") };
    let digest = digest::item(&ItemKey::Channel(ChannelId(1)), 1)
        .wrapping_add(digest::item(&ItemKey::Channel(ChannelId(2)), 2));
    assert_eq!(ack.applied, Some(dp::Position { epoch: "e".into(), revision: 5, digest }));
}

#[test]
fn a_snapshot_that_starts_over_forgets_what_it_staged() {
    let mut session = welcomed(false);
    let half = dp::SnapshotChunk { last: false, position: None, ..chunk(1, 5, vec![fixtures::channel(1)]) };
    say(&mut session, Response::Snapshot(half));
    say(&mut session, Response::Snapshot(chunk(2, 6, vec![fixtures::channel(2)])));
    assert_eq!(served(&session), [2]);
}

#[test]
fn bad_items_are_rejected_one_by_one_and_said_so() {
    let mut session = synced();
    let bad = pb::Channel { base_url: "ftp://x".into(), spec_revision: 9, ..fixtures::channel(1) };
    let good = pb::Channel { spec_revision: 9, weight: Some(4), ..fixtures::channel(2) };
    let actions =
        say(&mut session, Response::Update(dp::Update { channels: vec![bad, good], ..update(2, 9) }));
    let [Action::Publish(_), Action::Send(request)] = &actions[..] else { panic!("{actions:?}") };
    let Some(Request::Ack(ack)) = &request.message else { panic!("{request:?}") };
    assert_eq!(ack.rejections.len(), 1);
    assert_eq!((ack.rejections[0].version, ack.rejections[0].kept_version), (9, 1));
    assert_eq!(session.view().line(ChannelId(2)).unwrap().spec.weight, 4);
    assert_eq!(session.view().line(ChannelId(1)).unwrap().spec.base_url.scheme(), "https");
}

#[test]
fn a_fall_to_no_channels_is_refused_unless_it_is_meant() {
    let gone = |allow_empty| dp::Update {
        removed: vec![ItemKey::Channel(ChannelId(1)).to_ref(), ItemKey::Channel(ChannelId(2)).to_ref()],
        allow_empty,
        ..update(2, 9)
    };
    let mut session = synced();
    assert_eq!(*closes(&say(&mut session, Response::Update(gone(false)))), Why::Emptied);
    assert_eq!(served(&session), [1, 2]);
    let mut session = synced();
    say(&mut session, Response::Update(gone(true)));
    assert!(served(&session).is_empty());

    let mut session = synced();
    assert_eq!(*closes(&say(&mut session, Response::Snapshot(chunk(2, 9, vec![])))), Why::Emptied);
    assert_eq!(served(&session), [1, 2]);
    let mut cold = welcomed(false);
    assert_eq!(say(&mut cold, Response::Snapshot(chunk(1, 9, vec![]))).len(), 2, "nothing to lose");
}

#[test]
fn nothing_goes_back_in_time_within_an_epoch() {
    let mut session = synced();
    let why = Why::Backwards { held: Revision(5), offered: Revision(4) };
    assert_eq!(*closes(&say(&mut session, Response::Update(update(2, 4)))), why);
    let mut session = synced();
    assert_eq!(*closes(&say(&mut session, Response::Snapshot(chunk(2, 4, vec![fixtures::channel(1)])))), why);
    let mut session = synced();
    let mut other = chunk(2, 1, vec![fixtures::channel(1)]);
    other.position.as_mut().unwrap().epoch = "f".into();
    say(&mut session, Response::Snapshot(other));
    assert_eq!((&**session.view().epoch(), session.view().revision().0), ("f", 1));
}

#[test]
fn the_protocol_is_kept_or_the_session_ends() {
    let protocol = |actions: &[Action]| assert!(matches!(closes(actions), Why::Protocol(_)));
    let mut opening = session();
    opening.connected(NOW);
    protocol(&say(&mut opening, Response::Update(update(1, 5))));
    protocol(&say(&mut welcomed(false), Response::Update(update(1, 5))));
    protocol(&say(&mut welcomed(true), Response::Update(update(1, 5))));
    protocol(&say(&mut synced(), Response::Update(update(1, 9))));
    protocol(&say(&mut synced(), Response::Welcome(dp::Welcome::default())));
    protocol(&say(&mut synced(), Response::Update(dp::Update { position: None, ..update(2, 9) })));
    protocol(&say(
        &mut welcomed(false),
        Response::Snapshot(dp::SnapshotChunk { position: None, ..chunk(1, 5, vec![]) }),
    ));
    protocol(&synced().received(dp::WatchResponse { message: None }, NOW));
    let mut closing = synced();
    closing.received(dp::WatchResponse { message: None }, NOW);
    assert!(say(&mut closing, Response::Update(update(2, 9))).is_empty(), "deaf once it hangs up");
}

#[test]
fn a_digest_that_differs_asks_for_a_resync_at_most_once_a_minute() {
    let mut session = synced();
    let ours = session.position();
    let mut check = |revision: i64, digest: u64, at: Duration| {
        let position = Some(dp::Position { epoch: "e".into(), revision, digest });
        let checkpoint = Response::Checkpoint(dp::Checkpoint { position, server_time: None });
        session.received(dp::WatchResponse { message: Some(checkpoint) }, at).len()
    };
    assert_eq!(check(5, ours.digest, NOW), 0);
    assert_eq!(check(4, 1, NOW), 0, "our ack is on its way");
    assert_eq!(check(5, 1, NOW), 2, "a warning and the request");
    assert_eq!(check(5, 1, NOW + Duration::from_secs(59)), 0);
    assert_eq!(check(5, 1, NOW + Duration::from_secs(60)), 2);
}

#[test]
fn three_missed_heartbeats_are_the_end() {
    let mut session = synced();
    assert!(session.tick(NOW + Duration::from_secs(30)).is_empty());
    let timer = session.next_timer().unwrap();
    assert_eq!(timer, NOW + Duration::from_secs(33));
    assert_eq!(*closes(&session.tick(timer)), Why::Silent(Duration::from_secs(33)));
}

#[test]
fn pauses_grow_to_their_cap_keep_their_jitter_and_start_over_only_after_a_frame() {
    let mut rng = StdRng::seed_from_u64(1);
    let mut session = session();
    let mut pauses = Vec::new();
    for _ in 0..200 {
        // It accepts and welcomes, then ends: no reason to come back faster.
        welcome(&mut session, false);
        session.disconnected(NOW, &mut rng);
        pauses.push(session.dial_at().unwrap() - NOW);
    }
    assert!(pauses.iter().all(|p| (Duration::from_millis(100)..=Duration::from_secs(15)).contains(p)));
    let late = &pauses[20..];
    assert!(late.iter().max() > late.iter().min(), "jitter survives the cap");
    assert!(late.iter().max() > Some(&Duration::from_secs(12)));

    welcome(&mut session, false);
    say(&mut session, Response::Snapshot(chunk(1, 5, vec![fixtures::channel(1)])));
    session.disconnected(NOW, &mut rng);
    assert!(session.dial_at().unwrap() - NOW <= Duration::from_millis(200));
}

#[test]
fn a_goodbye_is_obeyed() {
    let mut rng = StdRng::seed_from_u64(1);
    let mut session = synced();
    let goodbye = dp::Goodbye {
        reconnect_after: Some(prost_types::Duration { seconds: 7, nanos: 0 }),
        why: "restart".into(),
    };
    assert_eq!(*closes(&say(&mut session, Response::Goodbye(goodbye))), Why::Goodbye("restart".into()));
    session.disconnected(NOW, &mut rng);
    assert!(session.dial_at().unwrap() >= NOW + Duration::from_secs(7));
    assert!(!session.is_connected());
    assert_eq!(served(&session), [1, 2], "it keeps serving");
}

#[test]
fn a_proxy_says_what_it_holds_and_resumes() {
    let held = |request: dp::WatchRequest| match request.message {
        Some(Request::Hello(hello)) => hello.held,
        other => panic!("{other:?}"),
    };
    assert_eq!(held(session().connected(NOW)), None);
    let mut session = synced();
    session.disconnected(NOW, &mut StdRng::seed_from_u64(1));
    assert_eq!(held(session.connected(NOW)), Some(session.position()));
    let restored = ClientSession::new(dp::Node::default(), session.view().clone(), NOW);
    assert!(restored.is_ready());
    let mut restored = restored;
    welcome(&mut restored, true);
    assert_eq!(say(&mut restored, Response::Update(update(1, 9))).len(), 2);
}

#[test]
fn alone_after_a_minute_without_a_word() {
    let mut session = session();
    assert!(!session.is_alone(NOW + Duration::from_secs(59)));
    assert!(session.is_alone(NOW + Duration::from_secs(60)));
    welcome(&mut session, false);
    assert!(!session.is_alone(NOW));
}
