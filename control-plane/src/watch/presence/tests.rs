use super::*;

fn node(proxy_id: &str, instance_id: &str) -> dp::Node {
    dp::Node { proxy_id: proxy_id.into(), instance_id: instance_id.into(), ..Default::default() }
}

fn open(presence: &Presence, proxy_id: &str, instance_id: &str) -> Guard {
    presence.open(Uuid::new_v4(), node(proxy_id, instance_id), GroupSet::new(&[]), None)
}

#[tokio::test(start_paused = true)]
async fn part6_a_ghost_of_the_same_process_is_told_to_end() {
    let presence = Presence::new("replica-1");
    let ghost = open(&presence, "p", "i");
    let other = open(&presence, "p", "another");
    let newer = open(&presence, "p", "i");
    ghost.superseded().await;
    let still = Duration::from_secs(3600);
    assert!(tokio::time::timeout(still, other.superseded()).await.is_err());
    assert!(tokio::time::timeout(still, newer.superseded()).await.is_err());
    assert_eq!(presence.sessions().len(), 3);
    drop(ghost);
    assert_eq!(presence.sessions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn part6_positions_are_written_in_batches_and_refreshed() {
    let presence = Presence::new("replica-1");
    let one = open(&presence, "one", "i");
    let _two = open(&presence, "two", "i");
    let due = |presence: &Presence| {
        let mut names: Vec<_> =
            presence.due(Instant::now()).into_iter().map(|(row, _)| row.node.proxy_id).collect();
        names.sort();
        names
    };
    assert_eq!(due(&presence), ["one", "two"]);
    assert!(due(&presence).is_empty());

    let mut changes = presence.subscribe();
    changes.mark_unchanged();
    let position = dp::Position { epoch: "e".into(), revision: 3, digest: 9 };
    one.acked(position.clone(), &[], Some(3));
    assert!(changes.has_changed().unwrap());
    assert_eq!(due(&presence), ["one"]);
    let sessions = presence.sessions();
    let session = sessions.iter().find(|s| s.node.proxy_id == "one").unwrap();
    assert_eq!((session.applied.as_ref(), session.agrees_at), (Some(&position), Some(3)));

    tokio::time::advance(REFRESH).await;
    assert_eq!(due(&presence), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn part6_a_first_row_that_could_not_be_written_is_still_a_first_row() {
    let presence = Presence::new("replica-1");
    let _one = open(&presence, "one", "i");
    let (rows, new): (Vec<_>, Vec<_>) = presence.due(Instant::now()).into_iter().unzip();
    assert_eq!(new, [true]);
    presence.not_written(&StoreError::Unavailable(sqlx::Error::PoolTimedOut), &rows, &[]);
    let (rows, new): (Vec<_>, Vec<_>) = presence.due(Instant::now()).into_iter().unzip();
    assert_eq!(new, [true], "another session's row would be left to it");
    presence.not_written(&StoreError::Unavailable(sqlx::Error::PoolTimedOut), &[], &rows);
    let again: Vec<_> = presence.due(Instant::now()).into_iter().map(|(_, new)| new).collect();
    assert_eq!(again, [false]);
}

#[tokio::test(start_paused = true)]
async fn part6_of_two_instances_with_one_id_the_newest_stands_in_the_table() {
    let presence = Presence::new("replica-1");
    let _older = open(&presence, "p", "a");
    let newer = open(&presence, "p", "b");
    let instances = |presence: &Presence| -> Vec<String> {
        presence.due(Instant::now()).into_iter().map(|(row, _)| row.node.instance_id).collect()
    };
    assert_eq!(instances(&presence), ["b"]);
    drop(newer);
    assert_eq!(instances(&presence), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn part6_twins_are_told_from_a_restart_by_living_on() {
    let presence = Presence::new("replica-1");
    let _first = open(&presence, "p", "a");
    let _restarted = open(&presence, "p", "b");
    let said = |presence: &Presence| {
        presence.due(Instant::now());
        presence.locked().sessions.values().filter(|session| session.warned).count()
    };
    assert_eq!(said(&presence), 0);
    tokio::time::advance(DUPLICATE_AFTER - Duration::from_secs(1)).await;
    assert_eq!(said(&presence), 0, "a dead connection is noticed within as long");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(said(&presence), 1, "and said once");
    // The same process that came back over another connection is no twin: its older session is told to end.
    let presence = Presence::new("replica-1");
    let _ghost = open(&presence, "p", "a");
    let _newer = open(&presence, "p", "a");
    tokio::time::advance(2 * DUPLICATE_AFTER).await;
    assert_eq!(said(&presence), 0);
}
