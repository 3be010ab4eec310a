//! Part 5 and 7: enabling, disabling, and what a corrected channel clears.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn part5_an_operator_wins_and_enable_raises_the_fence_even_of_what_is_active() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcdef"]).await;
    let subject = key(one.credential_ids[0]);
    let out = disable(&store, subject.clone()).await;
    assert_eq!(
        (out.state(), out.cause(), out.reason.as_str()),
        (pb::ServingState::Disabled, pb::Cause::Operator, "maintenance")
    );
    assert_eq!(out.actor, "tester");
    let before = head(&store).await;
    disable(&store, subject.clone()).await;
    assert_eq!(head(&store).await, before, "again, the same: no revision");
    assert_eq!(
        report_one(&store, verdict(&subject, pb::Cause::Credential, before)).await,
        dp::Disposition::Already
    );

    let first = enable(&store, subject.clone()).await.status;
    assert_eq!((first.state(), first.fence_revision), (pb::ServingState::Active, before + 1));
    let second = enable(&store, subject.clone()).await.status;
    assert_eq!(second.fence_revision, before + 2, "always writes");
    assert_eq!(
        report_one(&store, verdict(&subject, pb::Cause::Credential, before + 1)).await,
        dp::Disposition::Stale
    );
    assert_eq!(
        report_one(&store, verdict(&subject, pb::Cause::Credential, before + 2)).await,
        dp::Disposition::Applied
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_enabling_a_channel_clears_what_machines_did_beneath_it_and_lists_the_rest() {
    let (_db, store) = fresh().await;
    let mut s = spec("one");
    s.models.push(pb::ModelEntry { model: "second".into(), ..Default::default() });
    let one = create(&store, s, &["sk-0123456789abcdef", "sk-0123456789abcdeg"]).await;
    let id = one.channel_id;
    let (k1, k2) = (key(one.credential_ids[0]), key(one.credential_ids[1]));
    let throttled = ability(id, "gpt-4o-mini", Some(one.credential_ids[0]));
    report(&store, vec![verdict(&k1, pb::Cause::Quota, 1), verdict(&throttled, pb::Cause::Throttled, 1)])
        .await;
    disable(&store, ability(id, "second", None)).await;
    disable(&store, channel(id)).await;
    assert_eq!(
        enabled_models(&store, id).await,
        [("gpt-4o-mini".to_owned(), false), ("second".to_owned(), false)]
    );

    let done = enable(&store, channel(id)).await;
    assert_eq!(done.cleared.len(), 2);
    assert_eq!(done.still_disabled.len(), 1);
    assert_eq!(
        enabled_models(&store, id).await,
        [("gpt-4o-mini".to_owned(), true), ("second".to_owned(), false)]
    );
    // Late evidence about anything beneath it is stale, also about the key that had no row.
    for subject in [k1, k2, throttled, ability(id, "gpt-4o-mini", None)] {
        let late =
            report_one(&store, verdict(&subject, pb::Cause::Credential, done.status.fence_revision - 1))
                .await;
        assert_eq!(late, dp::Disposition::Stale, "{subject:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_a_corrected_endpoint_or_model_name_clears_and_fences() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcdef"]).await;
    let (id, k) = (one.channel_id, key(one.credential_ids[0]));
    let model = ability(id, "gpt-4o-mini", None);
    report_one(&store, verdict(&k, pb::Cause::Credential, 1)).await;

    // A weight is no reason.
    let mut next = one.clone();
    next.etag.clear();
    next.weight = Some(3);
    update(&store, next.clone()).await.unwrap();
    assert_eq!(status(&store, &k).await.state(), pb::ServingState::Disabled);

    next.base_url = "http://one.test/v2".into();
    let moved = update(&store, next.clone()).await.unwrap().revision;
    let after = status(&store, &k).await;
    assert_eq!((after.state(), after.fence_revision), (pb::ServingState::Active, moved));
    assert_eq!(status(&store, &channel(id)).await.fence_revision, moved);
    assert_eq!(
        report_one(&store, verdict(&model, pb::Cause::Throttled, moved - 1)).await,
        dp::Disposition::Stale
    );

    assert_eq!(
        report_one(&store, verdict(&model, pb::Cause::Throttled, moved)).await,
        dp::Disposition::Applied
    );
    next.models[0].upstream_model = "gpt-4o-mini-2024".into();
    let renamed = update(&store, next).await.unwrap().revision;
    let after = status(&store, &model).await;
    assert_eq!((after.state(), after.fence_revision), (pb::ServingState::Active, renamed));
    assert_eq!(status(&store, &channel(id)).await.fence_revision, moved, "only that ability");

    // Dropped and listed again under another name upstream: the fence does not go with the row.
    let mut without = store.channel(&"one".into()).await.unwrap().channel;
    let mut again = without.clone();
    without.models[0].model = "another".into();
    let gone = update(&store, without).await.unwrap().revision;
    again.etag.clear();
    again.models[0].upstream_model = "gpt-4o-mini-2025".into();
    let listed = update(&store, again).await.unwrap().revision;
    assert_eq!(report_one(&store, verdict(&model, pb::Cause::Throttled, gone)).await, dp::Disposition::Stale);
    assert_eq!(
        report_one(&store, verdict(&model, pb::Cause::Throttled, listed)).await,
        dp::Disposition::Applied
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn part5_subjects_are_named_as_people_do() {
    let (_db, store) = fresh().await;
    let one = create(&store, spec("one"), &["sk-0123456789abcdef"]).await;
    let name = |channel: &str, credential: Option<&str>, model: Option<&str>| admin::SubjectName {
        channel: channel.into(),
        credential: credential.map(Into::into),
        model: model.map(Into::into),
    };
    let k = one.credential_ids[0];
    let id = one.channel_id.to_string();
    let resolve = |name| resolve(&store, name);
    assert_eq!(resolve(name("one", None, None)).await.unwrap(), channel(one.channel_id));
    assert_eq!(resolve(name(&id, None, None)).await.unwrap(), channel(one.channel_id));
    assert_eq!(resolve(name("one", Some(&k.to_string()), None)).await.unwrap(), key(k));
    assert_eq!(resolve(name("", Some(&k.to_string()), None)).await.unwrap(), key(k));
    assert_eq!(
        resolve(name("one", Some(&k.to_string()), Some("gpt-4o-mini"))).await.unwrap(),
        ability(one.channel_id, "gpt-4o-mini", Some(k))
    );
    for wrong in [name("two", None, None), name("one", Some("77"), None), name("one", None, Some("nope"))] {
        assert!(matches!(resolve(wrong.clone()).await, Err(StoreError::NotFound(_))), "{wrong:?}");
    }
    assert!(matches!(resolve(name("", None, Some("m"))).await, Err(StoreError::Invalid(_))));
}
