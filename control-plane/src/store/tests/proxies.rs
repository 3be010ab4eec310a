//! Part 5: what the fleet last said.

use super::super::ProxyRow;
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn part5_a_proxys_row_belongs_to_its_newest_session() {
    let (_db, store) = fresh().await;
    let row = |session: uuid::Uuid, revision: i64| ProxyRow {
        node: dp::Node {
            proxy_id: "p1".into(),
            instance_id: "i".into(),
            build: "1".into(),
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            features: vec![],
            groups: vec!["default".into()],
        },
        session_id: Some(session),
        replica_id: "r1".into(),
        applied: Some(dp::Position { epoch: "e".into(), revision, digest: u64::MAX - 5 }),
        rejections: vec![dp::Rejection {
            item: None,
            version: 3,
            message: "no".into(),
            ..Default::default()
        }],
        last_seen_at: time::OffsetDateTime::UNIX_EPOCH,
    };
    let (old, new) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    store.open_sessions(&[row(old, 1)]).await.unwrap();
    store.open_sessions(&[row(new, 2)]).await.unwrap();
    assert_eq!(store.put_proxies(&[row(old, 9)]).await.unwrap(), ["p1"], "a ghost's position is not written");
    assert!(store.put_proxies(&[row(new, 3)]).await.unwrap().is_empty());
    store.end_sessions(&[old]).await.unwrap();
    let (rows, now) = store.proxies().await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].session_id, rows[0].applied.as_ref().unwrap().revision), (Some(new), 3));
    assert_eq!(rows[0].applied.as_ref().unwrap().digest, u64::MAX - 5);
    assert_eq!(rows[0].rejections[0].message, "no");
    assert!(now - rows[0].last_seen_at < time::Duration::seconds(5));
    store.end_sessions(&[new]).await.unwrap();
    assert_eq!(store.proxies().await.unwrap().0[0].session_id, None);
    assert_eq!(store.forget_proxies(std::time::Duration::ZERO).await.unwrap(), 1);
}
