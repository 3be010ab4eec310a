//! Whatever happens to the newest copy: the other one serves, and the log says so.

use std::{fs, path::Path};

use super::super::{
    codec::{Kept, Refusal, encode},
    key,
    slots::Slot,
};
use super::scene::*;

fn other_serves(dir: &Path, case: &str) -> Refusal {
    let (shared, mut keeper) = started(dir);
    serves(&shared, 1);
    assert_eq!(keeper.unused.len(), 1, "{case}");
    keeper.guard.settled();
    keeper.unused.remove(0).1
}

#[test]
fn part2_lkg_every_byte_of_the_newest_copy_flipped() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[1, 2]);
    let path = newest(dir.path());
    let good = fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).unwrap();
        let why = other_serves(dir.path(), &format!("byte {at}"));
        assert!(why.is_damage() || (8..12).contains(&at), "byte {at}: {why}");
    }
    fs::write(&path, &good).unwrap();
    serves(&started(dir.path()).0, 2);
}

#[test]
fn part2_lkg_every_truncation_of_the_newest_copy() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[1, 2]);
    let path = newest(dir.path());
    let good = fs::read(&path).unwrap();
    for length in 0..good.len() {
        fs::write(&path, &good[..length]).unwrap();
        let why = other_serves(dir.path(), &format!("{length} bytes"));
        assert!(matches!(why, Refusal::Length { .. }), "{length} bytes: {why}");
    }
    fs::write(&path, [&good[..], b"more"].concat()).unwrap();
    assert!(matches!(other_serves(dir.path(), "longer"), Refusal::Length { .. }));
}

#[test]
fn part2_lkg_the_next_copy_takes_the_place_of_the_damaged_one() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[1, 2]);
    let path = newest(dir.path());
    fs::write(&path, b"nothing of ours").unwrap();
    let (shared, mut keeper) = started(dir.path());
    publish(&shared, &items(3), 3);
    keeper.write_view(&shared).unwrap();
    drop(keeper);
    let (shared, keeper) = started(dir.path());
    serves(&shared, 3);
    assert!(keeper.unused.is_empty());
    assert_eq!(newest(dir.path()), path);
}

#[test]
fn part2_lkg_both_copies_gone_means_waiting() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[1, 2]);
    for slot in ["a", "b"] {
        fs::write(dir.path().join(format!("registry.{slot}.lkg")), b"").unwrap();
    }
    let (shared, keeper) = started(dir.path());
    assert!(!shared.is_ready());
    assert_eq!(keeper.unused.len(), 2);
}

#[test]
fn part2_lkg_a_copy_whose_items_do_not_add_up_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let shared = written(dir.path(), &[1, 2]);
    let all = items(3);
    let mut registry = spareline_proto::dataplane::v1::SnapshotChunk {
        position: Some(super::super::restore::position(&shared.view())),
        ..Default::default()
    };
    registry.channels = all.channels().map(|(_, c)| (**c).clone()).collect();
    registry.credentials = all.credentials().map(|(_, c)| (**c).clone()).collect();
    let kept = Kept { registry: Some(registry), groups: vec!["default".into()], ..Default::default() };
    let key = key::find(dir.path(), None).unwrap();
    fs::write(newest(dir.path()), encode(&kept, 9, &key).unwrap()).unwrap();
    assert!(matches!(other_serves(dir.path(), "digest"), Refusal::Digest { .. }));
}

#[test]
fn part2_lkg_what_is_not_for_this_proxy_is_refused_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[1, 2]);

    let other = shared(dir.path(), "default,vip");
    let mut there = keeper(dir.path());
    there.restore(&other);
    assert!(!other.is_ready());
    assert_eq!(there.unused.len(), 2);
    assert_eq!(there.unused[0].1, Refusal::Groups("default".into()));
    there.guard.settled();
    drop(there);

    let path = newest(dir.path());
    let mut newer = fs::read(&path).unwrap();
    newer[8] = 2;
    fs::write(&path, &newer).unwrap();
    let (shared, there) = started(dir.path());
    serves(&shared, 1);
    assert_eq!(there.unused[0].1, Refusal::Format(2));
    drop(there);

    fs::remove_file(dir.path().join("registry.key")).unwrap();
    let (shared, there) = started(dir.path());
    assert!(!shared.is_ready());
    assert!(there.unused.iter().any(|(_, why)| *why == Refusal::OtherKey), "{:?}", there.unused);
    assert!(there.has_copy);
    assert!(Slot::BOTH.contains(&there.unused[0].0));
}

#[test]
fn part2_lkg_a_proxy_of_fewer_groups_sees_only_theirs() {
    use std::sync::Arc;

    use spareline_core::items::Item;
    use spareline_proto::registry::v1 as pb;

    let dir = tempfile::tempdir().unwrap();
    let wide = shared(dir.path(), "default,vip");
    let mut all = items(1);
    let vip = all.channel(spareline_core::ChannelId(1)).unwrap();
    let vip =
        pb::Channel { channel_id: 2, name: "vip".into(), groups: vec!["vip".into()], ..(**vip).clone() };
    all.insert(Item::Channel(Arc::new(vip)));
    publish(&wide, &all, 1);
    let mut there = keeper(dir.path());
    there.write_view(&wide).unwrap();
    drop(there);
    serves(&started(dir.path()).0, 1);
}
