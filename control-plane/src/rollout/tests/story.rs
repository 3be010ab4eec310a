//! The operator's story, told over a real database.

use std::collections::BTreeMap;

use spareline_core::{ChannelId, CredentialId, Subject};
use spareline_proto::admin::v1::rollout_service_server::RolloutService as _;
use spareline_proto::admin::v1::*;
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::registry::v1 as pb;
use tonic::{Code, Request};
use uuid::Uuid;

use super::harness::{NEW, OLD, Story, candidate, stage};
use crate::store::{ChannelKey, EventFilter, StoreError};
use crate::testing::{Registry, cause};

#[tokio::test(flavor = "multi_thread")]
async fn part4_a_rollout_spreads_by_acknowledgements_and_becomes_the_registry() {
    let mut story = Story::new(10).await;
    story.ack().await;
    let rollout = story.start(story.moved(), vec![stage(10), stage(50), stage(100)]).await.unwrap();
    assert_eq!(rollout.state(), RolloutState::Active);
    assert_eq!(rollout.author, "operator");
    let counts = rollout.counts.clone().unwrap();
    assert!(counts.connected >= 1 && counts.acked == 0, "{counts:?}");
    let first = story.on(NEW).await;
    assert!((1..10).contains(&first), "{first}");
    let before = story.seen().await;

    story.round().await;
    assert_eq!(story.get(&rollout).await.current_stage, 0, "nobody has acknowledged");
    story.ack().await;
    story.round().await;
    assert_eq!(story.get(&rollout).await.current_stage, 1);
    let second = story.seen().await;
    let was_in = |id: &String| before[id].0 == NEW;
    assert!(second.iter().filter(|(id, _)| was_in(id)).all(|(_, (url, _))| url == NEW), "nobody is put back");
    story.ack().await;
    story.round().await;
    assert_eq!((story.get(&rollout).await.current_stage, story.on(NEW).await), (2, 10));
    let before_the_end = story.digests().await;
    story.ack().await;
    story.round().await;
    let done = story.get(&rollout).await;
    assert_eq!(done.state(), RolloutState::Succeeded);
    assert_eq!((story.on(NEW).await, story.digests().await.len()), (10, 1));
    // The cohort had it already: but for the fences that a moved endpoint raises, finishing changes nothing for it.
    assert_eq!(before_the_end.len(), 1);
    let stored = story.registry.store.channel(&ChannelKey::from("one")).await.unwrap().channel;
    assert_eq!(stored, candidate(&rollout));
    let kinds = story.kinds().await;
    for kind in ["rollout.created", "rollout.advanced", "rollout.succeeded", "channel.updated"] {
        assert!(kinds.iter().any(|k| k == kind), "{kind} is not in {kinds:?}");
    }
    // A replica that loads afresh holds the same.
    let other = Registry::replica(story.registry.database.clone()).await;
    let here = story.registry.worlds.current().unwrap();
    assert_eq!(other.reached(here.revision.0).await.items.digest(), here.items.digest());
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_an_abort_gives_everybody_the_baseline_back() {
    let mut story = Story::new(6).await;
    story.ack().await;
    let baseline = story.digests().await;
    let rollout = story.start(story.moved(), vec![stage(50), stage(100)]).await.unwrap();
    assert_eq!(story.digests().await.len(), 2);
    let aborted = story.abort(&rollout).await;
    assert_eq!((aborted.state(), aborted.why.as_str()), (RolloutState::Aborted, "no"));
    assert_eq!(story.digests().await, baseline);
    assert_eq!(story.on(OLD).await, 6);
    // A verdict that was still on its way says nothing of the baseline.
    let key = pb::subject::Kind::CredentialId(story.channel.credential_ids[0]);
    let spec = candidate(&rollout).spec_revision;
    assert_eq!(story.verdict(key, pb::Cause::Credential, spec).await, dp::Disposition::Rollout);
    assert_eq!(story.digests().await, baseline);
    // Its channel is free again.
    story.start(story.moved(), vec![stage(100)]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_a_rejection_pauses_and_names_the_proxy() {
    let mut story = Story::new(3).await;
    story.ack().await;
    let rollout = story.start(story.moved(), vec![stage(100)]).await.unwrap();
    story.ack().await;
    let version = candidate(&rollout).spec_revision;
    let row = story.fleet.get_mut("proxy-1").unwrap();
    let item = dp::ItemRef { kind: Some(dp::item_ref::Kind::ChannelId(story.channel.channel_id)) };
    row.rejections = vec![dp::Rejection { item: Some(item), version, message: "?".into(), kept_version: 1 }];
    story.ack().await;
    story.round().await;
    let paused = story.get(&rollout).await;
    assert_eq!(paused.state(), RolloutState::Paused);
    assert!(paused.why.contains("proxy-1"), "{}", paused.why);
    assert_eq!(paused.counts.unwrap().rejected_proxy_ids, ["proxy-1"]);
    story.round().await;
    assert_eq!(story.get(&rollout).await.state(), RolloutState::Paused, "it stays so");
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_a_dead_key_of_its_own_pauses_and_a_shared_one_is_out_for_all() {
    let mut story = Story::new(2).await;
    story.ack().await;
    let own = story.registry.store.write::<_, StoreError>("test", |tx| {
        Box::pin(async move { tx.rotate_credential(&ChannelKey::from("one"), "sk-own-1", &[], true).await })
    });
    let own = own.await.unwrap().value.credential.credential_id;
    let shared = story.channel.credential_ids[0];
    let next = pb::Channel { credential_ids: vec![own, shared], ..story.channel.clone() };
    let rollout = story.start(next, vec![stage(100)]).await.unwrap();
    let spec = candidate(&rollout).spec_revision;
    let statuses = |w: &crate::world::World| w.items.statuses().count();
    let before = statuses(&story.registry.worlds.current().unwrap());

    let answer = story.verdict(pb::subject::Kind::CredentialId(own), pb::Cause::Credential, spec).await;
    assert_eq!(answer, dp::Disposition::Rollout);
    let paused = story.get(&rollout).await;
    assert_eq!(paused.state(), RolloutState::Paused);
    assert!(paused.why.contains("proxy-7"), "{}", paused.why);
    let head = story.registry.store.head().await.unwrap();
    let world = story.registry.reached(head.revision).await;
    assert_eq!(statuses(&world), before, "no status was touched");

    let answer = story.verdict(pb::subject::Kind::CredentialId(shared), pb::Cause::Credential, spec).await;
    assert_eq!(answer, dp::Disposition::Applied);
    let head = story.registry.store.head().await.unwrap();
    let world = story.registry.reached(head.revision).await;
    assert!(cause(&world, &Subject::Credential(CredentialId(shared))).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_a_wrong_base_url_pauses_by_failures_in_a_row_and_by_the_gate() {
    let mut story = Story::new(4).await;
    story.ack().await;
    let rollout = story.start(story.moved(), vec![stage(100)]).await.unwrap();
    let spec = candidate(&rollout).spec_revision;
    story.tally(0, 5, spec).await;
    let paused = story.get(&rollout).await;
    assert_eq!(paused.state(), RolloutState::Paused, "{paused:?}");
    assert!(paused.why.contains("failures in a row"), "{}", paused.why);
    let world = story.registry.worlds.current().unwrap();
    assert_eq!(world.items.statuses().count(), 0, "the baseline is neither degraded nor probed");
    story.abort(&rollout).await;

    let gate = Gate { min_attempts: Some(10), max_failure_delta: Some(20.0), ..Default::default() };
    let stages = vec![Stage { gate: Some(gate), ..stage(50) }, stage(100)];
    let rollout = story.start(story.moved(), stages).await.unwrap();
    let spec = candidate(&rollout).spec_revision;
    story.ack().await;
    story.tally(5, 2, spec).await;
    story.round().await;
    let held = story.get(&rollout).await;
    assert_eq!((held.state(), held.current_stage), (RolloutState::Active, 0));
    assert!(held.waiting_for.iter().any(|w| w.contains("7 of 10")), "{:?}", held.waiting_for);
    story.tally(1, 4, spec).await;
    story.round().await;
    assert_eq!(story.get(&rollout).await.state(), RolloutState::Active, "nothing to compare with yet");
    story.tally(20, 1, story.channel.spec_revision).await;
    story.round().await;
    let paused = story.get(&rollout).await;
    assert_eq!(paused.state(), RolloutState::Paused);
    assert_eq!(paused.counts.unwrap().baseline_attempts, 21);
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_meanwhile_the_channel_is_changed_by_the_rollout_alone_but_keys_rotate() {
    let mut story = Story::new(2).await;
    story.ack().await;
    let rollout = story.start(story.moved(), vec![stage(50), stage(100)]).await.unwrap();
    let again = story.start(story.moved(), vec![stage(100)]).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    assert!(again.message().contains(&format!("rollout {}", rollout.rollout_id)), "{again}");
    let mut other = story.channel.clone();
    other.priority = 7;
    let update = story
        .registry
        .store
        .write::<_, StoreError>("test", |tx| Box::pin(async move { tx.update_channel(other).await }));
    assert!(matches!(update.await, Err(StoreError::Precondition(_))));
    let delete = story.registry.store.write::<_, StoreError>("test", |tx| {
        Box::pin(async move { tx.delete_channel(&ChannelKey::from("one"), "").await })
    });
    assert!(matches!(delete.await, Err(StoreError::Precondition(_))));
    let subject = Subject::Channel(ChannelId(story.channel.channel_id));
    story.registry.disable(&subject).await;
    story.registry.enable(&subject).await;

    let rotate = story.registry.store.write::<_, StoreError>("test", |tx| {
        Box::pin(async move { tx.rotate_credential(&ChannelKey::from("one"), "sk-test-2", &[], false).await })
    });
    let rotated = rotate.await.unwrap();
    let world = story.registry.reached(rotated.revision).await;
    let key = rotated.value.credential.credential_id;
    let baseline = world.items.channel(ChannelId(story.channel.channel_id)).unwrap();
    let candidate = candidate(&story.get(&rollout).await);
    assert_eq!((&baseline.credential_ids, &candidate.credential_ids), (&vec![key], &vec![key]));
    assert_ne!(baseline.spec_revision, candidate.spec_revision, "two contents, two versions");
    let events = story.registry.store.events(&EventFilter::default(), 1000, "").await.unwrap().items;
    let revisions: std::collections::BTreeSet<i64> = events.iter().map(|e| e.revision).collect();
    assert_eq!(revisions, (1..=rotated.revision).collect(), "revisions are free of gaps");
    // It still finishes.
    for _ in 0..2 {
        story.ack().await;
        story.round().await;
    }
    assert_eq!(story.get(&rollout).await.state(), RolloutState::Succeeded);
    assert_eq!(story.on(NEW).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_a_new_channel_and_a_deletion_are_staged_too() {
    let mut story = Story::new(4).await;
    story.ack().await;
    let new = pb::Channel {
        channel_id: 0,
        name: "two".into(),
        credential_ids: story.channel.credential_ids.clone(),
        ..story.channel.clone()
    };
    let changes = [change::Kind::Upsert(new), change::Kind::DeleteChannel("one".into())];
    let changes = changes.map(|kind| Change { kind: Some(kind), update_mask: None }).to_vec();
    let policy = pb::Policy { group: "default".into(), max_attempts: Some(3), ..Default::default() };
    let mut changes = changes;
    changes.push(Change { kind: Some(change::Kind::UpsertPolicy(policy)), update_mask: None });
    let rollout = Rollout { changes, stages: vec![stage(50), stage(100)], ..Default::default() };
    let mut request =
        CreateRolloutRequest { rollout: Some(rollout), validate_only: true, ..Default::default() };
    let head = story.registry.store.head().await.unwrap();
    let dry = story.rollouts.create_rollout(Request::new(request.clone())).await.unwrap().into_inner();
    assert_eq!(story.registry.store.head().await.unwrap(), head, "nothing was written");
    let actions: Vec<_> = dry.effects.iter().map(|e| e.action.as_str()).collect();
    assert_eq!(actions, ["create", "delete", "create"]);
    assert_eq!((dry.reach[0].eligible, dry.reach[1].proxies), (4, 4));

    request.validate_only = false;
    request.request_id = Uuid::now_v7().to_string();
    let made = story.rollouts.create_rollout(Request::new(request.clone())).await.unwrap().into_inner();
    let rollout = made.rollout.unwrap();
    let again = story.rollouts.create_rollout(Request::new(request)).await.unwrap().into_inner();
    assert_eq!(again.rollout.unwrap().rollout_id, rollout.rollout_id, "once per request id");
    let gone = story.on("").await;
    assert!((1..=4).contains(&gone));
    let missing = story.registry.store.channel(&ChannelKey::from("two")).await.unwrap_err();
    assert!(matches!(missing, StoreError::NotFound(_)), "it is no channel yet");
    let create = story.registry.store.write::<_, StoreError>("test", |tx| {
        let spec = pb::Channel {
            name: "two".into(),
            provider: "openai".into(),
            base_url: OLD.into(),
            groups: vec!["default".into()],
            ..Default::default()
        };
        Box::pin(async move { tx.create_channel(spec, &[]).await })
    });
    assert!(matches!(create.await, Err(StoreError::AlreadyExists(_))), "its name is taken");
    for _ in 0..2 {
        story.ack().await;
        story.round().await;
    }
    assert_eq!(story.get(&rollout).await.state(), RolloutState::Succeeded, "{:?}", story.get(&rollout).await);
    let two = story.registry.store.channel(&ChannelKey::from("two")).await.unwrap();
    assert_eq!(two.credentials.len(), 1, "the key went over");
    assert_eq!(story.registry.store.policy("default").await.unwrap().unwrap().max_attempts, Some(3));
    assert_eq!(story.on("").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_moving_by_hand_needs_the_etag_and_a_pause_holds() {
    let mut story = Story::new(3).await;
    let rollout = story.start(story.moved(), vec![stage(0), stage(100)]).await.unwrap();
    story.ack().await;
    story.round().await;
    assert_eq!(
        (story.get(&rollout).await.current_stage, story.on(NEW).await),
        (0, 0),
        "0 % waits for a hand"
    );
    let id = rollout.rollout_id.clone();
    let service = story.rollouts.clone();
    let advance = |etag: &str| {
        let request =
            AdvanceRolloutRequest { rollout_id: id.clone(), etag: etag.into(), comment: String::new() };
        service.advance_rollout(Request::new(request))
    };
    assert_eq!(advance("").await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(advance("1").await.unwrap_err().code(), Code::Aborted);
    let moved = advance(&rollout.etag).await.unwrap().into_inner().rollout.unwrap();
    assert_eq!((moved.current_stage, story.on(NEW).await), (1, 3));
    assert_eq!(advance(&rollout.etag).await.unwrap_err().code(), Code::Aborted, "never twice by accident");
    let pause = PauseRolloutRequest { rollout_id: id.clone(), comment: "lunch".into() };
    let paused =
        story.rollouts.pause_rollout(Request::new(pause)).await.unwrap().into_inner().rollout.unwrap();
    assert_eq!((paused.state(), paused.why.as_str()), (RolloutState::Paused, "lunch"));
    story.ack().await;
    story.round().await;
    assert_eq!(story.get(&rollout).await.state(), RolloutState::Paused);
    assert_eq!(story.on(NEW).await, 3, "the cohort keeps it");
    let resume = ResumeRolloutRequest { rollout_id: id, comment: String::new() };
    story.rollouts.resume_rollout(Request::new(resume)).await.unwrap();
    story.round().await;
    assert_eq!(story.get(&rollout).await.state(), RolloutState::Succeeded);
    assert_eq!(
        story
            .rollouts
            .abort_rollout(Request::new(AbortRolloutRequest {
                rollout_id: rollout.rollout_id,
                ..Default::default()
            }))
            .await
            .unwrap_err()
            .code(),
        Code::FailedPrecondition
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_a_holder_that_comes_back_is_refused_by_its_token() {
    let story = Story::new(1).await;
    let store = &story.registry.store;
    let term = std::time::Duration::from_millis(1);
    let first = store.lease("rollouts", "a", term).await.unwrap().unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let second = store.lease("rollouts", "b", std::time::Duration::from_secs(60)).await.unwrap().unwrap();
    assert!(second.token > first.token);
    assert_eq!(store.lease("rollouts", "a", term).await.unwrap(), None);
    let hold = |lease: crate::store::Lease| {
        store.write::<_, StoreError>("test", move |tx| Box::pin(async move { tx.hold(&lease).await }))
    };
    assert!(matches!(hold(first).await, Err(StoreError::Precondition(_))));
    hold(second).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_a_proxy_that_connects_to_an_empty_cohort_is_in_and_selectors_hold() {
    let mut story = Story::new(0).await;
    let canary = BTreeMap::from([("tier".to_owned(), "canary".to_owned())]);
    let stages = vec![Stage { selector: canary, ..stage(1) }, stage(100)];
    let rollout = story.start(story.moved(), stages).await.unwrap();
    story.connect("plain", &[("tier", "prod")]).await;
    story.ack().await;
    story.round().await;
    assert_eq!((story.get(&rollout).await.current_stage, story.on(NEW).await), (0, 0));
    story.connect("bird", &[("tier", "canary")]).await;
    story.round().await;
    let seen = story.seen().await;
    assert_eq!((seen["bird"].0.as_str(), seen["plain"].0.as_str()), (NEW, OLD));
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_any_earlier_spec_can_be_returned_to() {
    let story = Story::new(0).await;
    let mut next = story.channel.clone();
    next.priority = 7;
    let update = story
        .registry
        .store
        .write::<_, StoreError>("test", |tx| Box::pin(async move { tx.update_channel(next).await }));
    update.await.unwrap();
    let request = ListChannelSpecsRequest { channel: "one".into(), ..Default::default() };
    let specs = story.rollouts.list_channel_specs(Request::new(request)).await.unwrap().into_inner().specs;
    assert_eq!(specs.iter().map(|s| s.current).collect::<Vec<_>>(), [true, false]);
    let back = RollbackChannelRequest {
        channel: "one".into(),
        spec_revision: story.channel.spec_revision,
        comment: "oh".into(),
        ..Default::default()
    };
    let mut request = Request::new(back);
    request.metadata_mut().insert("x-spareline-actor", "alice".parse().unwrap());
    let channel = story.rollouts.rollback_channel(request).await.unwrap().into_inner().channel.unwrap();
    assert_eq!((channel.priority, channel.credential_ids), (0, story.channel.credential_ids.clone()));
    let filter = EventFilter { kind: Some("channel.rolled_back".into()), ..Default::default() };
    let events = story.registry.store.events(&filter, 1, "").await.unwrap().items;
    assert_eq!(events[0].actor, "user:alice");
    assert!(events[0].detail.contains("oh"), "{}", events[0].detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_progress_is_streamed_until_the_end() {
    use futures_util::StreamExt as _;
    let mut story = Story::new(1).await;
    let rollout = story.start(story.moved(), vec![stage(100)]).await.unwrap();
    let request = WatchRolloutRequest { rollout_id: rollout.rollout_id.clone() };
    let mut stream = story.rollouts.watch_rollout(Request::new(request)).await.unwrap().into_inner();
    let first = stream.next().await.unwrap().unwrap().rollout.unwrap();
    assert_eq!(first.counts.unwrap().acked, 0);
    story.ack().await;
    let second = stream.next().await.unwrap().unwrap().rollout.unwrap();
    assert_eq!(second.counts.unwrap().acked, 1);
    story.round().await;
    let last = stream.next().await.unwrap().unwrap().rollout.unwrap();
    assert_eq!(last.state(), RolloutState::Succeeded);
    assert!(stream.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_what_is_wrong_is_named_where_it_stands() {
    let story = Story::new(0).await;
    let told = async |change: Change, stage: Stage| {
        let rollout = Rollout { changes: vec![change], stages: vec![stage], ..Default::default() };
        let request =
            CreateRolloutRequest { rollout: Some(rollout), validate_only: true, ..Default::default() };
        let status = story.rollouts.create_rollout(Request::new(request)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        status.message().to_owned()
    };
    let masked = |channel: pb::Channel, path: &str| Change {
        kind: Some(change::Kind::Upsert(channel)),
        update_mask: Some(prost_types::FieldMask { paths: vec![path.to_owned()] }),
    };
    let foreign = pb::Channel { credential_ids: vec![99], ..story.channel.clone() };
    let unknown = pb::Channel { name: "nobody".into(), ..pb::Channel::default() };
    let pasted = pb::Channel { base_url: "https://h/v1/messages".into(), ..story.channel.clone() };
    for (change, wanted) in [
        (masked(foreign, "credential_ids"), "rollout.changes[0].upsert.credential_ids[0]: "),
        (masked(story.channel.clone(), "nonsense"), "rollout.changes[0].update_mask.paths[0]: "),
        (masked(unknown, "priority"), "rollout.changes[0].upsert.name: there is no channel"),
        (masked(pasted, "base_url"), "rollout.changes[0].upsert.base_url: ends in /messages"),
    ] {
        let message = told(change, stage(100)).await;
        assert!(message.starts_with(wanted), "{message}");
    }
    let moved = || Change { kind: Some(change::Kind::Upsert(story.moved())), update_mask: None };
    let selector = BTreeMap::from([("tier".to_owned(), "a\0b".to_owned())]);
    let bake = Some(prost_types::Duration { seconds: 31 * 24 * 3600, nanos: 0 });
    for (stage, wanted) in [
        (Stage { selector, ..stage(100) }, "rollout.stages[0].selector: "),
        (Stage { bake_time: bake, ..stage(100) }, "rollout.stages[0].bake_time: "),
    ] {
        let message = told(moved(), stage).await;
        assert!(message.starts_with(wanted), "{message}");
    }
}
