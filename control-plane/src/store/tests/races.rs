//! Part 3: the same store from several pools at once.

use std::collections::BTreeSet;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn part3_revisions_are_gap_free_and_visible_in_order_whoever_writes() {
    let (db, store) = fresh().await;
    let stores = [store.clone(), db.store().await.unwrap(), db.store().await.unwrap()];
    for i in 0..3 {
        create(&store, spec(&format!("c{i}")), &["sk-0123456789abcde1"]).await;
    }
    // A reader with a cursor must not lose a commit.
    let reader = {
        let store = db.store().await.unwrap();
        tokio::spawn(async move {
            let mut head = store.load().await.unwrap().head;
            let start = head.revision; // writers may have begun before it was read
            let mut seen = BTreeSet::new();
            while head.revision < 93 {
                let revisions: Vec<i64> =
                    sqlx::query_scalar("SELECT DISTINCT revision FROM events WHERE revision > $1")
                        .bind(head.revision)
                        .fetch_all(&store.registry)
                        .await
                        .unwrap();
                let newest = revisions.iter().max().copied().unwrap_or(head.revision);
                seen.extend(revisions);
                head.revision = newest;
            }
            (start, seen)
        })
    };
    let writers = (0..9).map(|w| {
        let store = stores[w % 3].clone();
        tokio::spawn(async move {
            for i in 0..10 {
                let name = format!("c{}", (w + i) % 3);
                let id = store.channel(&name.as_str().into()).await.unwrap().channel.channel_id;
                if i % 2 == 0 {
                    enable(&store, channel(id)).await;
                } else {
                    let comment = format!("{w}-{i}");
                    write(&store, |tx| Box::pin(async move { tx.disable(&channel(id), &comment).await }))
                        .await
                        .unwrap();
                }
            }
        })
    });
    for writer in futures_util::future::join_all(writers).await {
        writer.unwrap();
    }
    assert_eq!(head(&store).await, 93);
    let (start, seen) = reader.await.unwrap();
    assert_eq!(seen, (start + 1..=93).collect(), "a revision was lost");
    let all: Vec<i64> = sqlx::query_scalar("SELECT DISTINCT revision FROM events ORDER BY 1")
        .fetch_all(&store.registry)
        .await
        .unwrap();
    assert_eq!(all, (1..=93).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn part5_of_two_updates_with_one_etag_one_wins() {
    let (db, store) = fresh().await;
    let other = db.store().await.unwrap();
    let one = create(&store, spec("one"), &[]).await;
    let (mut a, mut b) = (one.clone(), one.clone());
    a.weight = Some(2);
    b.weight = Some(3);
    let (a, b) = tokio::join!(update(&store, a), update(&other, b));
    assert!(a.is_ok() != b.is_ok());
    let lost = a.err().or(b.err()).unwrap();
    assert!(matches!(lost, StoreError::Conflict(_)), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_proxies_with_the_same_dead_key_cost_one_write() {
    let (db, store) = fresh().await;
    let stores = [store.clone(), db.store().await.unwrap()];
    let one = create(&store, spec("one"), &["sk-0123456789abcde1"]).await;
    let subject = key(one.credential_ids[0]);
    let epoch = store.head().await.unwrap().epoch.to_string();
    let started = std::time::Instant::now();
    let calls = (0..1000).map(|i| {
        let store = stores[i % 2].clone();
        let batch = dp::ReportVerdictsRequest {
            proxy_id: format!("p{i}"),
            verdicts: vec![verdict(&subject, pb::Cause::Credential, 1)],
            epoch: epoch.clone(),
        };
        tokio::spawn(async move { store.apply_verdicts(&batch).await.unwrap().results[0].disposition() })
    });
    let answers: Vec<_> =
        futures_util::future::join_all(calls).await.into_iter().map(Result::unwrap).collect();
    println!("1000 reports answered in {:?}", started.elapsed());
    assert_eq!(answers.iter().filter(|d| **d == dp::Disposition::Applied).count(), 1);
    assert_eq!(answers.iter().filter(|d| **d == dp::Disposition::Already).count(), 999);
    assert_eq!(head(&store).await, 2, "one write");
}
