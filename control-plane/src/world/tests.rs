use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spareline_core::items::Item;
use spareline_core::{ChannelId, Revision};
use spareline_proto::registry::v1 as pb;

use super::{GroupSet, Viewer, World, channel, of};

fn line(id: i64, revision: i64, groups: &[&str], credentials: &[i64]) -> Item {
    Item::Channel(Arc::new(pb::Channel {
        channel_id: id,
        name: format!("c{id}"),
        groups: groups.iter().map(|g| (*g).to_owned()).collect(),
        credential_ids: credentials.to_vec(),
        spec_revision: revision,
        ..Default::default()
    }))
}

#[test]
fn part6_a_world_never_goes_back_within_its_epoch() {
    let (publisher, worlds) = channel();
    assert!(worlds.current().is_none());
    publisher.publish(of("one", 5, []));
    publisher.publish(of("one", 4, []));
    assert_eq!(worlds.current().unwrap().revision, Revision(5));
    publisher.publish(of("two", 1, []));
    assert_eq!(worlds.current().unwrap().revision, Revision(1));
}

#[test]
fn part6_a_world_that_came_since_a_session_was_opened_is_news_to_it() {
    let (publisher, worlds) = channel();
    publisher.publish(of("one", 1, []));
    let first = worlds.current().unwrap();
    assert!(!worlds.since(&first).has_changed().unwrap());
    publisher.publish(of("one", 2, []));
    assert!(worlds.since(&first).has_changed().unwrap(), "it would be heard of with the one after it only");
    assert!(!worlds.since(&worlds.current().unwrap()).has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn part6_waiting_for_a_revision_ends_with_it_or_in_time() {
    let (publisher, worlds) = channel();
    assert!(worlds.at_least(Revision(1), Duration::from_secs(1)).await.is_none());
    let waiter = tokio::spawn({
        let worlds = worlds.clone();
        async move { worlds.at_least(Revision(3), Duration::from_secs(60)).await }
    });
    tokio::task::yield_now().await;
    publisher.publish(of("one", 2, []));
    publisher.publish(of("one", 7, []));
    assert_eq!(waiter.await.unwrap().unwrap().revision, Revision(7));
}

#[test]
fn part6_equal_groups_share_one_part_and_it_follows() {
    let (_, worlds) = channel();
    let groups = GroupSet::new(&["vip".into(), "default".into(), "vip".into()]);
    assert_eq!(groups, GroupSet::new(&["default".into(), "vip".into()]));
    assert_eq!(GroupSet::new(&[]), GroupSet::new(&["default".into()]), "none means default");

    let labels = BTreeMap::new();
    let narrowed =
        |world: &World| worlds.view(&Viewer { groups: &groups, proxy_id: "proxy-1", labels: &labels }, world);

    let first = of("one", 1, [line(1, 1, &["vip"], &[]), line(2, 1, &["other"], &[])]);
    let part = narrowed(&first);
    assert_eq!(part.channels().map(|(id, _)| id).collect::<Vec<_>>(), [ChannelId(1)]);

    let mut items = first.items.clone();
    items.insert(line(3, 2, &[], &[]));
    let second = first.with(Revision(2), items);
    let part = narrowed(&second);
    assert_eq!(part.channels().map(|(id, _)| id).collect::<Vec<_>>(), [ChannelId(1), ChannelId(3)]);
    // An older world is answered too, and does not replace what is followed.
    assert_eq!(narrowed(&first).channel_count(), 1);
    assert_eq!(narrowed(&second).digest(), part.digest());
    // The same revision of another epoch is another registry.
    assert_eq!(narrowed(&of("two", 2, [])).channel_count(), 0);
}

#[test]
fn part6_no_channels_is_a_decision_only_after_there_were_some() {
    assert!(!of("one", 0, []).had_channels);
    let world = of("one", 1, [line(1, 1, &[], &[])]);
    assert!(world.with(Revision(2), Default::default()).had_channels);
}
