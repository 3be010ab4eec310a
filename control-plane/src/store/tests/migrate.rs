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
