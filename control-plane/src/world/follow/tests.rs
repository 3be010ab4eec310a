use std::time::Duration;

use spareline_core::{ChannelId, Revision, Subject};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::testing::{Registry, cause};

const KEY: &[&str] = &["sk-test-1"];

#[tokio::test(flavor = "multi_thread")]
async fn part6_a_commit_is_followed_at_once_by_every_replica() {
    let one = Registry::new().await;
    let two = Registry::replica(one.database.clone()).await;
    let created = one.channel("first", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let id = ChannelId(created.channel_id);
    let world = two.shows("the channel", |w| w.items.channel(id).is_some()).await;
    let credential = spareline_core::CredentialId(created.credential_ids[0]);
    assert_eq!(world.items.credential(credential).unwrap().secret, KEY[0], "proxies need the secret");
    assert!(world.had_channels);

    let subject = Subject::Channel(id);
    let revision = two.disable(&subject).await;
    assert!(cause(&*one.reached(revision).await, &subject).is_some());
    let revision = one.delete("first").await;
    let world = two.reached(revision).await;
    assert_eq!((world.items.channel_count(), world.had_channels), (0, true));
    assert!(world.items.credential(credential).is_none());

    // Both hold the same, and so does one that loads afresh.
    let three = Registry::replica(one.database.clone()).await;
    let fresh = three.reached(revision).await;
    assert_eq!(fresh.items.digest(), world.items.digest());
    assert_eq!(one.reached(revision).await.items.digest(), world.items.digest());
    assert!(
        fresh.had_channels,
        "an emptied registry is not an empty one, also for a replica that starts now"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_nothing_is_reloaded_for_one_change() {
    let registry = Registry::new().await;
    registry.channel("first", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let before = registry.worlds.current().unwrap();
    let second = registry.channel("second", "http://127.0.0.1:9/v1", &["m"], &["sk-test-2"]).await;
    let after = registry.reached(second.spec_revision).await;
    let (_, old) = before.items.channels().next().unwrap();
    let (_, new) = after.items.channels().next().unwrap();
    assert!(std::sync::Arc::ptr_eq(old, new), "an unchanged channel is the very same message");
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_a_lost_database_keeps_the_world_and_heals() {
    let registry = Registry::new().await;
    let created = registry.channel("first", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let name = &registry.database.name;
    let admin = registry.database.options.clone().database("postgres");
    let mut admin = PgConnection::connect_with(&admin).await.unwrap();
    let cut = async |admin: &mut PgConnection| {
        let kill = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
        );
        admin.execute(AssertSqlSafe(kill)).await.unwrap();
    };
    admin.execute(AssertSqlSafe(format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"))).await.unwrap();
    cut(&mut admin).await;
    assert!(registry.store.head().await.is_err());
    tokio::time::sleep(Duration::from_millis(300)).await;
    let kept = registry.worlds.current().unwrap();
    assert!(kept.items.channel(ChannelId(created.channel_id)).is_some());

    admin.execute(AssertSqlSafe(format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"))).await.unwrap();
    // Somebody else commits while we may not be listening yet.
    let other = Registry::replica(registry.database.clone()).await;
    let revision = other.disable(&Subject::Channel(ChannelId(created.channel_id))).await;
    registry.reached(revision).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn part6_history_that_goes_back_freezes_the_world_until_a_new_epoch() {
    let registry = Registry::new().await;
    let created = registry.channel("first", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let before = registry.worlds.current().unwrap();
    let mut conn = PgConnection::connect_with(&registry.database.options).await.unwrap();
    conn.execute("UPDATE registry_head SET revision = 0").await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let now = registry.worlds.current().unwrap();
    assert_eq!(now.revision, before.revision);
    assert!(now.items.channel(ChannelId(created.channel_id)).is_some());

    let head = registry.store.new_epoch("test").await.unwrap();
    let world = registry.shows("the new epoch", |w| *w.epoch == head.epoch.to_string()).await;
    assert_eq!(world.revision, Revision(head.revision));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_whose_numbers_were_taken_by_others_is_not_followed_until_it_is_the_old_one_again() {
    let registry = Registry::new().await;
    let created = registry.channel("first", "http://127.0.0.1:9/v1", &["m"], KEY).await;
    let subject = Subject::Channel(ChannelId(created.channel_id));
    let held = registry.disable(&subject).await;
    registry.reached(held).await;
    // As after a failover that lost the last commit, where another one has its number now.
    let mut conn = PgConnection::connect_with(&registry.database.options).await.unwrap();
    let other = format!("UPDATE events SET created_at = created_at - interval '1 s' WHERE revision = {held}");
    conn.execute(AssertSqlSafe(other)).await.unwrap();
    registry.enable(&subject).await;
    while registry.worlds.metrics().history_lost.get() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(registry.worlds.current().unwrap().revision, Revision(held));

    let old = format!("UPDATE events SET created_at = created_at + interval '1 s' WHERE revision = {held}");
    conn.execute(AssertSqlSafe(old)).await.unwrap();
    let newest = registry.channel("second", "http://127.0.0.1:9/v1", &["m"], &["sk-test-2"]).await;
    registry.reached(newest.spec_revision).await;
    assert_eq!(registry.worlds.metrics().history_lost.get(), 0);
}
