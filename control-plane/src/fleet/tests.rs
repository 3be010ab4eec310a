use std::sync::Arc;

use spareline_core::Revision;
use spareline_core::items::Item;
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::registry::v1 as pb;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::filter::Filter;
use super::roster::{self, Roster};
use crate::rollout::Overlay;
use crate::rollout::cohort::{self, Cohort, Reach};
use crate::store::ProxyRow;
use crate::watch::LocalSession;
use crate::world::{self, GroupSet, World, Worlds};

const HERE: &str = "replica-1";

fn node(proxy_id: &str, instance_id: &str) -> dp::Node {
    dp::Node {
        proxy_id: proxy_id.into(),
        instance_id: instance_id.into(),
        groups: vec!["default".into()],
        ..Default::default()
    }
}

fn the_world() -> World {
    let channel = pb::Channel { channel_id: 1, name: "one".into(), spec_revision: 1, ..Default::default() };
    world::of("epoch", 5, [Item::Channel(Arc::new(channel))])
}

fn position(world: &World, revision: i64) -> dp::Position {
    dp::Position { epoch: world.epoch.to_string(), revision, digest: world.items.digest() }
}

fn row(name: &str, replica: &str, seen_ago: i64, applied: Option<dp::Position>) -> ProxyRow {
    ProxyRow {
        node: node(name, "i"),
        session_id: Some(Uuid::new_v4()),
        replica_id: replica.into(),
        applied,
        rejections: Vec::new(),
        last_seen_at: OffsetDateTime::UNIX_EPOCH - Duration::seconds(seen_ago),
    }
}

fn local(name: &str, instance: &str, applied: Option<dp::Position>, agrees_at: Option<i64>) -> LocalSession {
    LocalSession {
        session_id: Uuid::new_v4(),
        node: Arc::new(node(name, instance)),
        groups: GroupSet::new(&["default".into()]),
        applied,
        rejections: Arc::default(),
        agrees_at,
        opened: 1,
    }
}

fn roster(rows: Vec<ProxyRow>, sessions: Vec<LocalSession>, world: &World) -> Vec<(String, bool, bool)> {
    let (_, worlds): (_, Worlds) = world::channel();
    let world = Some(Arc::new(world.clone()));
    let roster = Roster::new(rows, OffsetDateTime::UNIX_EPOCH, sessions, HERE, world, &worlds);
    let mut entries: Vec<_> = roster.entries;
    entries.sort_by_key(roster::Entry::order);
    entries.iter().map(|e| (e.proxy_id().to_owned(), e.proxy.connected, e.current)).collect()
}

#[test]
fn part5_a_proxy_is_current_by_digest_and_connected_by_sight() {
    let world = the_world();
    let right = Some(position(&world, 1));
    let wrong = Some(dp::Position { digest: 1, ..position(&world, 2) });
    let rows = vec![
        row("far-right", "replica-2", 5, right.clone()),
        row("far-wrong", "replica-2", 5, wrong.clone()),
        row("far-gone", "replica-2", 60, right.clone()),
        row("once-here", HERE, 5, right.clone()),
    ];
    let sessions = vec![local("near", "i", right, Some(5)), local("new", "i", None, None)];
    let found = roster(rows, sessions, &world);
    let expected = [
        ("new", true, false),
        ("far-gone", false, true),
        ("far-right", true, true),
        ("near", true, true),
        ("once-here", false, true),
        ("far-wrong", true, false),
    ];
    assert_eq!(found, expected.map(|(name, connected, current)| (name.to_owned(), connected, current)));
}

#[test]
fn part5_two_live_instances_with_one_id_are_two_entries() {
    let world = the_world();
    let right = Some(position(&world, 5));
    let sessions = vec![local("twin", "a", right.clone(), None), local("twin", "b", right.clone(), None)];
    let stale = row("twin", HERE, 1, right.clone());
    let elsewhere = row("twin", "replica-2", 1, right);
    assert_eq!(roster(vec![stale], sessions.clone(), &world).len(), 2);
    assert_eq!(roster(vec![elsewhere], sessions, &world).len(), 3);
}

#[test]
fn part5_a_proxy_shows_the_rollouts_whose_candidates_it_serves() {
    let mut world = the_world();
    let all = Reach { points: cohort::ALL, selector: [("tier".into(), "canary".into())].into(), entered: 5 };
    let rollout = |id| Overlay {
        rollout_id: id,
        revision: Revision(5),
        cohort: Cohort { rollout_id: id, stages: if id == 7 { vec![all.clone()] } else { Vec::new() } },
        changes: Vec::new(),
    };
    world.rollouts = [rollout(7), rollout(8)].into();
    let mut canary = row("canary", "replica-2", 5, Some(position(&world, 5)));
    canary.node.labels.insert("tier".into(), "canary".into());
    let other = local("other", "i", Some(position(&world, 5)), None);
    let (_, worlds): (_, Worlds) = world::channel();
    let world = Some(Arc::new(world));
    let roster = Roster::new(vec![canary], OffsetDateTime::UNIX_EPOCH, vec![other], HERE, world, &worlds);
    let passing = |filter: &str| {
        let filter = Filter::parse(filter).unwrap();
        let names = roster.entries.iter().filter(|e| e.passes(&filter)).map(|e| e.proxy_id());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(passing("rollout = 7 AND NOT lagging"), "canary");
    assert_eq!(passing("rollout != 7"), "other");
    assert_eq!(passing("rollout = 8"), "", "nobody is in a stage of it yet");
}

#[test]
fn part5_page_tokens_hold_any_name_and_belong_to_their_filter() {
    let order = (-3, "a.b.c".to_owned(), "i.1".to_owned());
    let token = roster::token(&order, "connected");
    assert_eq!(roster::read_token(&token, "connected"), Some(order));
    assert_eq!(roster::read_token(&token, "lagging"), None);
    for garbage in ["", "x", "0.0.0", "0.0.9.abc", "zz.1.1.a.b"] {
        assert_eq!(roster::read_token(garbage, "connected"), None, "{garbage}");
    }
}
