//! Part 3 and 5: credentials, shared, rotated, retired; and the secrets in them.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn part3_credentials_are_shared_at_one_provider_and_host_only() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-shared-secret-000"]).await;
    let id = one.credential_ids[0];
    let mut two = spec("two");
    two.base_url = "http://ONE.test:80/other".into();
    two.credential_ids = vec![id];
    let two = create(&store, two, &[]).await;
    assert_eq!(two.credential_ids, [id]);

    let mut foreign = spec("three");
    foreign.base_url = "http://elsewhere.test/v1".into();
    foreign.credential_ids = vec![id, id, 999];
    let refused =
        write(&store, |tx| Box::pin(async move { tx.create_channel(foreign, &[]).await })).await.unwrap_err();
    let StoreError::Invalid(violations) = refused else { panic!("{refused:?}") };
    assert_eq!(violations.len(), 3, "every problem at once: {violations:?}");
    let mut moved = two.clone();
    moved.base_url = "http://elsewhere.test/v1".into();
    assert!(matches!(update(&store, moved).await, Err(StoreError::Invalid(_))));

    // Learnt to be dead once, out everywhere.
    let dead = report_one(&store, verdict(&key(id), pb::Cause::Credential, head(&store).await)).await;
    assert_eq!(dead, dp::Disposition::Applied);
    for c in [&one, &two] {
        assert_eq!(enabled_models(&store, c.channel_id).await, [("gpt-4o-mini".to_owned(), false)]);
    }
    // Rotated in one place, new everywhere, and usable.
    let new = rotate(&store, "two", "sk-shared-secret-001").await;
    for c in [&one, &two] {
        let read = store.channel(&ChannelKey::Id(c.channel_id)).await.unwrap();
        assert_eq!(read.channel.credential_ids, [new.credential_id]);
        assert_eq!(enabled_models(&store, c.channel_id).await, [("gpt-4o-mini".to_owned(), true)]);
    }
    let late = report_one(&store, verdict(&key(id), pb::Cause::Credential, head(&store).await)).await;
    assert_eq!(late, dp::Disposition::Stale, "a late 401 of the old key");
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_rotation_says_what_it_replaces_or_is_refused() {
    let (_db, store) = fresh().await;
    create(&store, spec("bare"), &[]).await;
    let two = create(&store, spec("two"), &["sk-aaaaaaaaaaaa-1", "sk-aaaaaaaaaaaa-2"]).await;
    let rotate = |name: &'static str, replaces: Vec<i64>| {
        let store = store.clone();
        async move {
            write(&store, |tx| {
                Box::pin(async move {
                    tx.rotate_credential(&name.into(), "sk-aaaaaaaaaaaa-3", &replaces, false).await
                })
            })
            .await
        }
    };
    assert!(matches!(rotate("bare", vec![]).await, Err(StoreError::Precondition(_))));
    assert!(matches!(rotate("two", vec![]).await, Err(StoreError::Precondition(_))));
    assert!(matches!(rotate("two", vec![12345]).await, Err(StoreError::Invalid(_))));
    let done = rotate("two", vec![two.credential_ids[1]]).await.unwrap().value;
    let read = store.channel(&"two".into()).await.unwrap();
    assert_eq!(read.channel.credential_ids, [two.credential_ids[0], done.credential.credential_id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_a_retired_secret_is_wiped_and_its_channel_does_not_go_on_without_a_key() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-canary-secret-xyz"]).await;
    let id = one.credential_ids[0];
    assert_eq!(
        store.equal_credentials_at(&["sk-canary-secret-xyz".into(), "other".into()], &one).await.unwrap(),
        [id, 0]
    );
    write(&store, |tx| Box::pin(async move { tx.retire_credential(CredentialId(id), "leaked").await }))
        .await
        .unwrap();
    assert_eq!(store.equal_credentials_at(&["sk-canary-secret-xyz".into()], &one).await.unwrap(), [0]);
    let left: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM credentials WHERE sealed_secret IS NOT NULL OR secret_hash IS NOT NULL",
    )
    .fetch_one(&store.registry)
    .await
    .unwrap();
    assert_eq!(left, 0);
    let own = status(&store, &channel(one.channel_id)).await;
    assert_eq!((own.state(), own.cause()), (pb::ServingState::Disabled, pb::Cause::Operator));
    let again =
        write(&store, |tx| Box::pin(async move { tx.retire_credential(CredentialId(id), "").await })).await;
    assert!(matches!(again, Err(StoreError::NotFound(_))));
    let dump: Vec<String> = events(&store).await.into_iter().map(|e| format!("{e:?}")).collect();
    assert!(!dump.concat().contains("sk-canary"), "no secret in the audit log");
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_fingerprints_show_four_characters_and_tell_secrets_apart() {
    let (_db, store) = fresh().await;
    let add = |secret: &'static str| {
        let store = store.clone();
        async move {
            write(&store, |tx| Box::pin(async move { tx.add_credential(&"one".into(), secret).await })).await
        }
    };
    create(&store, spec("one"), &[]).await;
    let long = add("sk-long-enough-abcd").await.unwrap().value.credential;
    let other = add("sk-long-other-abcd").await.unwrap().value.credential;
    let short = add("tiny-abcd").await.unwrap().value.credential;
    assert!(long.fingerprint.starts_with("abcd-") && long.fingerprint != other.fingerprint);
    assert!(!short.fingerprint.contains("abcd"), "most of a short secret would be shown");
    assert!(matches!(add("sk-long-enough-abcd").await, Err(StoreError::AlreadyExists(_))));
    let name =
        admin::SubjectName { channel: "one".into(), credential: Some(long.fingerprint.clone()), model: None };
    assert_eq!(resolve(&store, name).await.unwrap(), key(long.credential_id));
}

#[test]
fn part5_a_new_key_stands_once_where_the_first_of_the_old_ones_stood() {
    use super::super::credentials::renewed;

    assert_eq!(renewed(&[1, 2, 3, 4], &[2, 4], Some(9)), [1, 9, 3]);
    assert_eq!(renewed(&[1, 2, 3], &[2], None), [1, 3]);
    assert_eq!(renewed(&[1, 2], &[7], Some(9)), [1, 2], "it replaces nothing here");
    assert!(renewed(&[1], &[1], None).is_empty());
}
