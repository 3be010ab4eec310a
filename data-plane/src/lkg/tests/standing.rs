//! What a proxy that starts from its copy does next.

use std::{fs, path::Path, sync::Arc, time::Duration};

use spareline_core::{
    CredentialId, Subject,
    items::{Item, Items},
    pick::{Pick, Tried, pick},
    session::ClientSession,
};
use spareline_proto::{
    dataplane::v1::{Node, watch_request::Message},
    registry::v1 as pb,
};

use super::super::{codec::Kept, guard::STARTS, slots::Slot};
use super::scene::*;
use crate::state::Shared;

#[test]
fn part2_lkg_what_is_held_is_said_in_the_hello() {
    let dir = tempfile::tempdir().unwrap();
    let before = written(dir.path(), &[3]);
    let (shared, _) = started(dir.path());
    let mut session = ClientSession::new(Node::default(), shared.view(), shared.now());
    let Some(Message::Hello(hello)) = session.connected(shared.now()).message else { panic!("no hello") };
    let held = hello.held.unwrap();
    assert_eq!((held.epoch.as_str(), held.revision), ("e", 3));
    assert_eq!(held.digest, before.view().items().digest());
}

#[test]
fn part2_lkg_a_copy_that_kills_the_process_at_its_start_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), &[1, 2]);
    let suspect = newest(dir.path());
    for _ in 0..STARTS {
        serves(&started(dir.path()).0, 2);
    }
    for _ in 0..STARTS {
        serves(&started(dir.path()).0, 1);
    }
    assert!(!suspect.exists());
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().filter(|e| is_aside(&e.as_ref().unwrap().path())).count(),
        1
    );
    assert!(!started(dir.path()).0.is_ready(), "both are suspect now");

    // A process that lived a while starts the count anew.
    written(dir.path(), &[1, 2]);
    for _ in 0..3 * STARTS {
        let (shared, mut keeper) = started(dir.path());
        serves(&shared, 2);
        keeper.guard.settled();
    }
}

fn is_aside(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "aside")
}

/// Written a day ago: the first channel's key is dead and was due for a probe a minute later.
fn a_day_old(dir: &Path, cause: pb::Cause) {
    let status = pb::Status {
        subject: Some(spareline_core::convert::subject_ref(&Subject::Credential(CredentialId(1)))),
        state: pb::ServingState::Disabled.into(),
        cause: cause.into(),
        reason: "told".into(),
        revision: 2,
        disabled_at: Some(ago(86_500).into()),
        retry_at: Some(ago(86_340).into()),
        ..Default::default()
    };
    let mut all: Items = items(2);
    all.insert(Item::Status(Arc::new(status)));
    let shared = shared(dir, "default");
    publish(&shared, &all, 2);
    let mut keeper = keeper(dir);
    keeper.write_view(&shared).unwrap();
    // As it was written then.
    let opened =
        keeper.slots.look(Slot::A).unwrap().unwrap().open(&super::super::key::find(dir, None).unwrap());
    let opened = opened.unwrap();
    let mut registry = spareline_proto::dataplane::v1::SnapshotChunk {
        position: Some(opened.position),
        ..Default::default()
    };
    registry.channels = opened.items.channels().map(|(_, m)| (**m).clone()).collect();
    registry.credentials = opened.items.credentials().map(|(_, m)| (**m).clone()).collect();
    registry.statuses = opened.items.statuses().map(|(_, m)| (**m).clone()).collect();
    let (written, confirmed) = (Some(ago(86_400).into()), Some(ago(86_400).into()));
    let kept = Kept { registry: Some(registry), written, confirmed, ..opened.kept };
    keeper.write(&kept).unwrap();
}

fn trials(shared: &Shared, after: Duration, alone: bool) -> usize {
    let view = shared.view();
    let policy = view.policy("default").clone();
    let pick_one = |_| {
        let scene = Pick {
            view: &view,
            group: "default",
            model: "m",
            endpoint: None,
            policy: &policy,
            tried: &Tried::default(),
            health: &shared.health,
            overlays: &shared.overlays,
            affinity: None,
            pinned: None,
            alone,
            now: shared.now() + after,
        };
        pick(&scene, &mut rand::rng()).ok()
    };
    let picked: Vec<_> = (0..50).filter_map(pick_one).filter(|p| !p.last_resort).collect();
    picked.iter().filter(|p| p.trial).count()
}

#[test]
fn part2_lkg_alone_for_a_day_machines_disables_come_back_by_single_trials() {
    for cause in [pb::Cause::Credential, pb::Cause::Quota] {
        let dir = tempfile::tempdir().unwrap();
        a_day_old(dir.path(), cause);
        let (shared, _) = started(dir.path());
        let age = shared.registry_age().unwrap().as_secs();
        assert!((86_400..86_460).contains(&age), "{age}");
        assert_eq!(
            trials(&shared, Duration::ZERO, false),
            0,
            "a control plane may be there: the prober's business"
        );
        assert_eq!(trials(&shared, Duration::from_secs(61), true), 1, "{cause:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    a_day_old(dir.path(), pb::Cause::Operator);
    let (shared, _) = started(dir.path());
    assert_eq!(
        trials(&shared, Duration::from_secs(100_000), true),
        0,
        "an operator's decision is never tried"
    );
}

#[test]
fn part2_lkg_a_clock_set_back_does_not_stretch_a_throttle() {
    let dir = tempfile::tempdir().unwrap();
    a_day_old(dir.path(), pb::Cause::Throttled);
    let (shared, mut keeper) = started(dir.path());
    let opened = keeper.slots.look(Slot::B).unwrap().unwrap();
    let mut kept = opened.open(&super::super::key::find(dir.path(), None).unwrap()).unwrap();
    let ahead = std::time::SystemTime::now() + Duration::from_secs(86_400);
    kept.kept.written = Some(ahead.into());
    kept.kept.confirmed = Some(ahead.into());
    let view = shared.view();
    kept.kept.registry = Some(spareline_proto::dataplane::v1::SnapshotChunk {
        position: Some(kept.position),
        channels: view.items().channels().map(|(_, m)| (**m).clone()).collect(),
        credentials: view.items().credentials().map(|(_, m)| (**m).clone()).collect(),
        statuses: view.items().statuses().map(|(_, m)| (**m).clone()).collect(),
        ..Default::default()
    });
    keeper.write(&kept.kept).unwrap();
    keeper.guard.settled();
    drop(keeper);
    let (shared, _) = started(dir.path());
    assert!(shared.registry_age().unwrap() < Duration::from_secs(60));
    let subject = Subject::Credential(CredentialId(1));
    assert!(shared.view().out(&subject, shared.now()).is_none(), "its time was over when it was written");
}
