//! Part 3 and 6: loading everything, following by events, hints.

use std::time::Duration;

use super::super::{Changes, Hint, Snapshot};
use super::*;

/// What a follower that applies change sets holds.
fn apply(mut held: Snapshot, changes: Changes) -> Snapshot {
    let Changes::Some(set) = changes else { panic!("{changes:?}") };
    held.head = set.head;
    for item in set.removed {
        match item.kind.unwrap() {
            dp::item_ref::Kind::ChannelId(id) => held.channels.retain(|c| c.channel_id != id),
            dp::item_ref::Kind::CredentialId(id) => held.credentials.retain(|c| c.credential_id != id),
            dp::item_ref::Kind::Status(s) => held.statuses.retain(|t| t.subject.as_ref() != Some(&s)),
            dp::item_ref::Kind::PolicyGroup(g) => held.policies.retain(|p| p.group != g),
        }
    }
    for c in set.channels {
        held.channels.retain(|o| o.channel_id != c.channel_id);
        held.channels.push(c);
    }
    for c in set.credentials {
        held.credentials.retain(|o| o.credential_id != c.credential_id);
        held.credentials.push(c);
    }
    for s in set.statuses {
        held.statuses.retain(|o| o.subject != s.subject);
        held.statuses.push(s);
    }
    for p in set.policies {
        held.policies.retain(|o| o.group != p.group);
        held.policies.push(p);
    }
    held
}

fn sorted(mut s: Snapshot) -> Snapshot {
    s.channels.sort_by_key(|c| c.channel_id);
    s.credentials.sort_by_key(|c| c.credential_id);
    s.statuses.sort_by_key(|s| format!("{:?}", s.subject));
    s.policies.sort_by(|a, b| a.group.cmp(&b.group));
    s
}

#[tokio::test(flavor = "multi_thread")]
async fn part3_following_by_events_ends_where_loading_does() {
    let (_db, store) = fresh().await;
    let mut held = store.load().await.unwrap();
    assert_eq!(store.changes_since(held.head).await.unwrap(), Changes::None);
    let one = create(&store, spec("one"), &["sk-0123456789abcde1", "sk-0123456789abcde2"]).await;
    let two = create(&store, spec("two"), &["sk-0123456789abcde3"]).await;
    report_one(&store, verdict(&key(one.credential_ids[0]), pb::Cause::Credential, 2)).await;
    report_one(
        &store,
        verdict(
            &ability(two.channel_id, "gpt-4o-mini", Some(two.credential_ids[0])),
            pb::Cause::Throttled,
            2,
        ),
    )
    .await;
    write(&store, |tx| {
        Box::pin(async move { tx.put_policy(pb::Policy { group: "vip".into(), ..Default::default() }).await })
    })
    .await
    .unwrap();
    let changes = store.changes_since(held.head).await.unwrap();
    held = apply(held, changes);
    assert_eq!(sorted(held.clone()), sorted(store.load().await.unwrap()));
    assert_eq!(held.credentials.len(), 3);
    assert!(held.credentials.iter().all(|c| c.secret.starts_with("sk-")));

    rotate(&store, "two", "sk-0123456789abcde4").await;
    write(&store, |tx| Box::pin(async move { tx.delete_policy("vip").await })).await.unwrap();
    write(&store, |tx| Box::pin(async move { tx.delete_channel(&"one".into(), "").await })).await.unwrap();
    let changes = store.changes_since(held.head).await.unwrap();
    held = apply(held, changes);
    assert_eq!(sorted(held.clone()), sorted(store.load().await.unwrap()));
    assert_eq!((held.channels.len(), held.credentials.len(), held.statuses.len()), (1, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn part3_a_commit_is_announced_here_and_to_other_replicas() {
    let (db, store) = fresh().await;
    let other = db.store().await.unwrap();
    let mut listener = other.listen().await.unwrap();
    let mut committed = store.committed();
    create(&store, spec("one"), &[]).await;
    assert_eq!(*committed.borrow_and_update(), 1);
    let hint = tokio::time::timeout(Duration::from_secs(5), listener.next()).await.unwrap().unwrap();
    assert_eq!(hint, Hint::Revision(1));
    // Reports notify nobody.
    report_one(&store, verdict(&key(77), pb::Cause::Quota, 1)).await;
    assert!(tokio::time::timeout(Duration::from_millis(200), listener.next()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_epoch_moves_past_everything_handed_out() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let old = store.head().await.unwrap();
    let new = store.new_epoch("operator").await.unwrap();
    assert!(new.epoch != old.epoch && new.revision > old.revision + 100_000);
    assert_eq!(store.head().await.unwrap(), new);
    assert_eq!(store.changes_since(old).await.unwrap(), Changes::Reload);
    let two = create(&store, spec("two"), &["sk-0123456789abcde2"]).await;
    assert!(two.channel_id > one.channel_id + 100_000);
    let ahead = super::super::Head { revision: new.revision + 10, ..new };
    assert_eq!(store.changes_since(ahead).await.unwrap(), Changes::Reload);
}
