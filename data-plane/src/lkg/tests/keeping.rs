//! Writing: when, how often, and what never.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use spareline_core::{Secret, items::Items};
use tokio_util::sync::CancellationToken;

use super::super::{disk::Files, keep, restore::Keeper};
use super::scene::*;

#[test]
fn part2_lkg_files_are_ours_alone_and_hold_no_readable_secret() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("made/on/the/way");
    written(&state, &[1, 2]);
    let mut files = 0;
    for entry in fs::read_dir(&state).unwrap().map(Result::unwrap) {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        let bytes = fs::read(entry.path()).unwrap();
        if entry.file_name() != "registry.lock" {
            assert_eq!(mode, 0o600, "{:?}", entry.path());
        }
        assert!(!bytes.windows(9).any(|w| w == b"sk-canary"), "{:?}", entry.path());
        assert!(!bytes.windows(9).any(|w| w == b"127.0.0.1"), "{:?}", entry.path());
        files += 1;
    }
    assert!(files >= 3);
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn part2_lkg_a_key_from_outside_leaves_none_beside_the_copy() {
    let dir = tempfile::tempdir().unwrap();
    let key = Secret::new("an operator's key of 32 characters or more");
    let open = |key: &Secret| Keeper::open(dir.path(), Some(key), Box::new(Files)).unwrap();
    let before = shared(dir.path(), "default");
    publish(&before, &items(2), 2);
    open(&key).write_view(&before).unwrap();
    assert!(!dir.path().join("registry.key").exists());
    let after = shared(dir.path(), "default");
    open(&key).restore(&after);
    serves(&after, 2);
    let stranger = shared(dir.path(), "default");
    open(&Secret::new("another operator's key of 32 characters")).restore(&stranger);
    assert!(!stranger.is_ready());
}

#[tokio::test(start_paused = true)]
async fn part2_lkg_a_full_disk_keeps_the_copies_and_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[1, 2]);
    let disk = Full::default();
    disk.0.store(true, Ordering::Relaxed);
    let shared = shared(dir.path(), "default");
    let mut keeper = Keeper::open(dir.path(), None, Box::new(disk.clone())).unwrap();
    keeper.restore(&shared);
    keeper.guard.settled();
    let stop = CancellationToken::new();
    let keeping = tokio::spawn(keep(shared.clone(), keeper, stop.clone()));
    publish(&shared, &items(3), 3);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let failures = shared.metrics.registry_file_failures.get();
    assert!((8..30).contains(&failures), "{failures} tries in ten minutes");
    assert!(!dir.path().join("registry.tmp").exists(), "room for others");
    assert_eq!(shared.metrics.registry_file_writes.get(), 0);
    serves(&shared, 3);

    disk.0.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(shared.metrics.registry_file_writes.get(), 1);
    stop.cancel();
    keeping.await.unwrap();
    serves(&started(dir.path()).0, 3);
}

#[test]
fn part2_lkg_after_a_write_that_failed_the_newest_copy_serves() {
    let dir = tempfile::tempdir().unwrap();
    let shared = written(dir.path(), &[1, 2]);
    let disk = Full::default();
    disk.0.store(true, Ordering::Relaxed);
    let mut keeper = Keeper::open(dir.path(), None, Box::new(disk)).unwrap();
    keeper.restore(&shared);
    publish(&shared, &items(3), 3);
    for _ in 0..5 {
        keeper.write_view(&shared).unwrap_err();
    }
    keeper.guard.settled();
    drop(keeper);
    // As a kill would leave it.
    fs::write(dir.path().join("registry.tmp"), b"half").unwrap();
    serves(&started(dir.path()).0, 2);
}

#[tokio::test(start_paused = true)]
async fn part2_lkg_writes_are_merged_and_the_last_view_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, keeper) = started(dir.path());
    let stop = CancellationToken::new();
    let keeping = tokio::spawn(keep(shared.clone(), keeper, stop.clone()));
    for revision in 1..=50 {
        publish(&shared, &items(revision), revision);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.cancel();
    keeping.await.unwrap();
    let writes = shared.metrics.registry_file_writes.get();
    assert!((2..=7).contains(&writes), "{writes} writes in five seconds");
    let (shared, _) = started(dir.path());
    serves(&shared, 50);
    assert!(shared.registry_age().unwrap() < Duration::from_secs(60));
}

#[test]
fn part2_lkg_an_empty_registry_takes_no_place_unless_it_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[1, 2]);
    fs::rename(dir.path().join("registry.key"), dir.path().join("elsewhere")).unwrap();
    let (shared, mut keeper) = started(dir.path());
    publish(&shared, &Items::default(), 5);
    assert!(!keeper.wants(&shared, Duration::MAX), "the copies may be good, with the right key");
    publish(&shared, &items(6), 6);
    assert!(keeper.wants(&shared, Duration::MAX));
    // The session lets an empty one through after that only where it is flagged.
    publish(&shared, &Items::default(), 7);
    assert!(keeper.wants(&shared, Duration::MAX));
    keeper.write_view(&shared).unwrap();
    assert!(!keeper.wants(&shared, Duration::MAX));
}

#[test]
fn part2_lkg_two_processes_never_write_to_one_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (old, mut draining) = (written(dir.path(), &[1, 2]), keeper(dir.path()));
    draining.restore(&old);
    let (young, mut keeper) = started(dir.path());
    serves(&young, 2);
    publish(&young, &items(4), 4);
    keeper.write_view(&young).unwrap_err();
    publish(&old, &items(3), 3);
    draining.write_view(&old).unwrap();
    drop(draining);
    keeper.write_view(&young).unwrap();
    keeper.guard.settled();
    drop(keeper);
    serves(&started(dir.path()).0, 4);
    assert_eq!(Arc::strong_count(&old), 1);
}
