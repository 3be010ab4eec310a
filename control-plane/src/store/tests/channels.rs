//! Part 3 and 5: channels, history, abilities, etags, request ids.

use super::super::{ChannelFilter, Request};
use super::*;
use spareline_core::convert::Violation;

#[tokio::test(flavor = "multi_thread")]
async fn part3_a_channel_its_history_and_its_abilities_are_written_at_once() {
    let (_db, store) = fresh().await;
    let mut first = spec("one");
    first.groups = vec!["default".into(), "vip".into()];
    first.models.push(pb::ModelEntry {
        model: "embed".into(),
        upstream_model: "text-embedding-3".into(),
        weight: Some(0),
        priority: Some(-1),
        ..Default::default()
    });
    let made = create(&store, first.clone(), &["sk-secret-number-one"]).await;
    assert_eq!((made.spec_revision, made.etag.as_str(), made.credential_ids.len()), (1, "1", 1));

    let rows: Vec<(String, String, String, i32, i64, bool)> = sqlx::query_as(
        "SELECT group_name, model, upstream_model, priority, weight, enabled FROM abilities ORDER BY 1, 2",
    )
    .fetch_all(&store.registry)
    .await
    .unwrap();
    let row = |g: &str, m: &str, u: &str, p, w| (g.to_owned(), m.to_owned(), u.to_owned(), p, w, true);
    assert_eq!(
        rows,
        [
            row("default", "embed", "text-embedding-3", -1, 0),
            row("default", "gpt-4o-mini", "gpt-4o-mini", 0, 1),
            row("vip", "embed", "text-embedding-3", -1, 0),
            row("vip", "gpt-4o-mini", "gpt-4o-mini", 0, 1),
        ]
    );

    let mut next = made.clone();
    next.models.truncate(1);
    next.groups.clear();
    next.weight = Some(7);
    let changed = update(&store, next.clone()).await.unwrap();
    assert_eq!((changed.revision, changed.changed, changed.value.weight), (2, true, Some(7)));
    assert_eq!(enabled_models(&store, made.channel_id).await, [("gpt-4o-mini".to_owned(), true)]);
    let specs: i64 =
        sqlx::query_scalar("SELECT count(*) FROM channel_specs").fetch_one(&store.registry).await.unwrap();
    assert_eq!(specs, 2, "every spec it ever had is kept");

    // The same again: nothing happens. An old etag: a lost race.
    next.etag.clear();
    let same = update(&store, next).await.unwrap();
    assert_eq!((same.revision, same.changed), (2, false));
    assert!(matches!(update(&store, made).await, Err(StoreError::Conflict(_))));
    let read = store.channel(&"one".into()).await.unwrap();
    assert_eq!(read.channel, changed.value);
    assert_eq!(read.credentials[0].secret, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_names_are_unique_while_alive_and_a_failure_leaves_nothing_behind() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &[]).await;
    let again = write(&store, |tx| {
        Box::pin(async move { tx.create_channel(spec("one"), &["sk-aaaaaaaaaaaaaaaa".into()]).await })
    })
    .await;
    assert!(matches!(again, Err(StoreError::AlreadyExists(_))));
    let bad = write(&store, |tx| {
        Box::pin(async move {
            tx.create_channel(spec("two"), &["sk-good-secret-1".into(), "bad secret".into()]).await
        })
    })
    .await;
    let Err(StoreError::Invalid(violations)) = bad else { panic!("{bad:?}") };
    assert_eq!(violations[0].field, "secrets[1]");
    let credentials: i64 =
        sqlx::query_scalar("SELECT count(*) FROM credentials").fetch_one(&store.registry).await.unwrap();
    assert_eq!((credentials, head(&store).await), (0, 1), "nothing half written, no revision spent");

    write(&store, |tx| Box::pin(async move { tx.delete_channel(&"one".into(), "").await })).await.unwrap();
    let second = create(&store, spec("one"), &[]).await;
    assert!(second.channel_id > one.channel_id, "ids are never reused");
    assert!(matches!(update(&store, one).await, Err(StoreError::NotFound(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_a_dry_run_checks_everything_and_writes_nothing() {
    let (_db, store) = fresh().await;
    let done = write(&store, |tx| {
        Box::pin(async move {
            tx.dry_run();
            tx.create_channel(spec("one"), &["sk-0123456789abcdef".into()]).await
        })
    })
    .await
    .unwrap();
    assert_eq!((done.changed, done.revision, done.value.name.as_str()), (false, 0, "one"));
    assert!(matches!(store.channel(&"one".into()).await, Err(StoreError::NotFound(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_a_request_id_is_answered_once_and_refused_for_another_body() {
    let (_db, store) = fresh().await;
    let id = uuid::Uuid::new_v4();
    let call = |body: &'static [u8], name: &'static str| {
        let store = store.clone();
        async move {
            let request = Some(Request { id, method: "CreateChannel", body });
            store
                .write_once::<pb::Channel, StoreError>("tester", request, |tx| {
                    Box::pin(async move { tx.create_channel(spec(name), &[]).await })
                })
                .await
        }
    };
    let first = call(b"one", "one").await.unwrap();
    let second = call(b"one", "one").await.unwrap();
    assert_eq!(first.value, second.value);
    assert_eq!((first.changed, second.changed, head(&store).await), (true, false, 1));
    assert!(matches!(call(b"two", "two").await, Err(StoreError::RequestReused)));
    // Many at once: one is made.
    let id = uuid::Uuid::new_v4();
    let calls = (0..8).map(|_| {
        let store = store.clone();
        async move {
            let request = Some(Request { id, method: "CreateChannel", body: b"x" });
            store
                .write_once::<pb::Channel, StoreError>("tester", request, |tx| {
                    Box::pin(async move { tx.create_channel(spec("many"), &[]).await })
                })
                .await
                .unwrap()
                .value
                .channel_id
        }
    });
    let made = futures_util::future::join_all(calls).await;
    assert!(made.iter().all(|id| *id == made[0]));
    assert_eq!(head(&store).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_lists_page_by_page_newest_first_with_filters() {
    let (_db, store) = fresh().await;
    for i in 0..5 {
        let mut s = spec(&format!("c{i}"));
        if i % 2 == 0 {
            s.provider = "openai_compatible".into();
            s.models[0].model = "other".into();
        }
        create(&store, s, &[]).await;
    }
    let names = |page: &super::super::Page<crate::decide::Channel>| {
        page.items.iter().map(|c| c.channel.name.clone()).collect::<Vec<_>>()
    };
    let first = store.channels(&ChannelFilter::default(), 2, "").await.unwrap();
    let second = store.channels(&ChannelFilter::default(), 2, &first.next_page_token).await.unwrap();
    let third = store.channels(&ChannelFilter::default(), 2, &second.next_page_token).await.unwrap();
    assert_eq!([names(&first), names(&second), names(&third)].concat(), ["c4", "c3", "c2", "c1", "c0"]);
    assert_eq!((third.next_page_token.as_str(), third.revision), ("", 5));
    let other = ChannelFilter { model: Some("other".into()), ..Default::default() };
    assert_eq!(names(&store.channels(&other, 10, "").await.unwrap()), ["c4", "c2", "c0"]);
    let id = store.channel(&"c3".into()).await.unwrap().channel.channel_id;
    disable(&store, channel(id)).await;
    let out = ChannelFilter { state: Some(pb::ServingState::Disabled), ..Default::default() };
    let page = store.channels(&out, 1, "").await.unwrap();
    assert_eq!((names(&page), page.next_page_token.as_str()), (vec!["c3".to_owned()], ""));
    let bad = store.channels(&out, 1, "zzz").await;
    assert!(
        matches!(bad, Err(StoreError::Invalid(v)) if v == [Violation::new("page_token", "is not one of ours")])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_policies_are_replaced_by_etag_and_the_global_one_stays() {
    let (_db, store) = fresh().await;
    let put = |policy: pb::Policy| {
        let store = store.clone();
        async move { write(&store, |tx| Box::pin(async move { tx.put_policy(policy).await })).await }
    };
    let policy = pb::Policy { group: "vip".into(), max_attempts: Some(5), ..Default::default() };
    let first = put(policy.clone()).await.unwrap();
    assert_eq!((first.value.revision, first.changed), (1, true));
    assert!(!put(policy.clone()).await.unwrap().changed);
    let stale = pb::Policy { etag: "99".into(), max_attempts: Some(6), ..policy.clone() };
    assert!(matches!(put(stale).await, Err(StoreError::Conflict(_))));
    put(pb::Policy { preset: "layered".into(), ..Default::default() }).await.unwrap();
    let groups: Vec<String> = store.policies().await.unwrap().into_iter().map(|p| p.group).collect();
    assert_eq!(groups, ["", "vip"]);
    let global = write(&store, |tx| Box::pin(async move { tx.delete_policy("").await })).await;
    assert!(matches!(global, Err(StoreError::Precondition(_))));
    write(&store, |tx| Box::pin(async move { tx.delete_policy("vip").await })).await.unwrap();
    assert!(store.policy("vip").await.unwrap().is_none());
}
