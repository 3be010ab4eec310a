//! Part 3: migrations, and a database that is not there.

use std::time::Duration;

use sqlx::{Connection, PgConnection};

use super::super::{Store, StoreError, StoreOptions};
use crate::postgres::TestDatabase;

#[tokio::test(flavor = "multi_thread")]
async fn part3_two_control_planes_starting_at_once_on_an_empty_database_both_come_up() {
    let database = TestDatabase::empty().await.unwrap();
    let start = || async {
        let options = StoreOptions::new(database.options.clone());
        Store::migrate(&options).await?;
        Store::connect(options).await
    };
    let (a, b) = tokio::join!(start(), start());
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.head().await.unwrap(), b.head().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn part3_an_older_binary_starts_on_a_newer_schema() {
    let database = TestDatabase::new().await.unwrap();
    let mut conn = PgConnection::connect_with(&database.options).await.unwrap();
    sqlx::raw_sql(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'from the future', true, ''::bytea, 0)",
    )
    .execute(&mut conn)
    .await
    .unwrap();
    conn.close().await.unwrap();
    Store::migrate(&StoreOptions::new(database.options.clone())).await.unwrap();
    database.store().await.unwrap().load().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn part3_an_unreachable_database_is_unavailable_not_a_crash() {
    let mut options = StoreOptions::from_url("postgres://nobody@127.0.0.1:1/none").unwrap();
    options.acquire_timeout = Duration::from_millis(300);
    assert!(Store::migrate(&options).await.unwrap_err().is_unavailable());
    assert!(Store::connect(options).await.unwrap_err().is_unavailable());
    let error = StoreOptions::from_url("mysql://user:hunter2@host/db").unwrap_err();
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let options = StoreOptions::from_url("postgres://user:hunter2@host/db").unwrap();
    assert!(!format!("{options:?}").contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn part3_a_statement_cannot_hold_a_connection_for_ever() {
    let database = TestDatabase::new().await.unwrap();
    let mut options = StoreOptions::new(database.options.clone());
    options.statement_timeout = Duration::from_millis(200);
    let store = Store::connect(options).await.unwrap();
    let holder = super::super::Store::begin(&database.store().await.unwrap(), "holder").await.unwrap();
    let blocked = store.write("blocked", |_| Box::pin(async { Ok::<_, StoreError>(()) })).await;
    assert!(
        blocked.unwrap_err().is_unavailable(),
        "the head's holder costs a waiter its time limit, no more"
    );
    drop(holder);
    store.write("free", |_| Box::pin(async { Ok::<_, StoreError>(()) })).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_writer_of_a_process_waits_in_front_of_others() {
    let database = TestDatabase::new().await.unwrap();
    let (ours, theirs) = (database.store().await.unwrap(), database.store().await.unwrap());
    let holder = super::super::Store::begin(&theirs, "holder").await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = ours.clone();
        writers.spawn(async move {
            store.write("w", |_| Box::pin(async { Ok::<_, StoreError>(()) })).await.is_ok()
        });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    // Were this process stopped now, so many turns would be spent on nobody.
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let mut conn = PgConnection::connect_with(&database.options).await.unwrap();
    let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&mut conn).await.unwrap();
    assert_eq!(waiting, 1, "so many wait for the head");
    drop(holder);
    assert!(writers.join_all().await.into_iter().all(|written| written));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_falls_silent_frees_the_head() {
    let database = TestDatabase::new().await.unwrap();
    let silent = super::super::Store::begin(&database.store().await.unwrap(), "silent").await.unwrap();
    let begun = std::time::Instant::now();
    let other = database.store().await.unwrap();
    other.write("w", |_| Box::pin(async { Ok::<_, StoreError>(()) })).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    drop(silent);
}

#[tokio::test]
async fn a_caller_who_leaves_while_a_transaction_begins_leaves_nothing_behind() {
    let database = TestDatabase::new().await.unwrap();
    let store = database.store().await.unwrap();
    for patience in 0..300 {
        let leaves = async {
            for _ in 0..patience {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = leaves => {}
            _ = store.begin("impatient") => {}
        }
    }
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    let mut conn = PgConnection::connect_with(&database.options).await.unwrap();
    for _ in 0..100 {
        let open: i64 = sqlx::query_scalar(open).fetch_one(&mut conn).await.unwrap();
        if open == 0 {
            break;
        }
        // A connection on its way back to the pool; one that was forgotten would end only by the server's time limit.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let open: i64 = sqlx::query_scalar(open).fetch_one(&mut conn).await.unwrap();
    assert_eq!(open, 0, "transactions that nobody ends");
    // What is written on any of these connections is there for others.
    for n in 0..16 {
        let sql = format!("INSERT INTO settings VALUES ('n{n}', ''::bytea)");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&store.registry).await.unwrap();
    }
    let written = "SELECT count(*) FROM settings WHERE name LIKE 'n%'";
    let written: i64 = sqlx::query_scalar(written).fetch_one(&mut conn).await.unwrap();
    assert_eq!(written, 16);
}
