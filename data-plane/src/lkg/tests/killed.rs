//! Processes killed by force while they write.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use super::scene::*;

const DIR: &str = "SPARELINE_TEST_LKG_DIR";

/// Not a test: what the killed process does.
#[test]
#[ignore = "run by the test below"]
fn writes_until_killed() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let (shared, mut keeper) = started(&dir);
    keeper.guard.settled();
    let mut revision = shared.view().revision().0;
    loop {
        revision = revision % 40 + 1;
        // Copies of every length, now longer, now shorter than what they replace.
        publish(&shared, &items(revision), revision);
        keeper.write_view(&shared).unwrap();
    }
}

#[test]
fn part2_lkg_kill_9_during_the_write() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[1, 2]);
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..20_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["lkg::tests::killed::writes_until_killed", "--exact", "--ignored"])
            .env(DIR, dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(30 + round * 7));
        child.kill().unwrap();
        child.wait().unwrap();
        let (shared, mut keeper) = started(dir.path());
        let revision = shared.view().revision().0;
        serves(&shared, revision);
        assert!(keeper.unused.is_empty(), "a copy in place is always whole");
        keeper.guard.settled();
        seen.insert(revision);
    }
    assert!(seen.len() > 3, "the processes wrote: {seen:?}");
}
