//! Part 4: a private cluster, its starts, stops and accidents.

use std::process::Command;
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

use super::{Cluster, PostgresError};

async fn ask(cluster: &Cluster, sql: &'static str) -> i32 {
    let mut conn = PgConnection::connect_with(&cluster.options("postgres")).await.unwrap();
    let answer = sqlx::query_scalar(sql).fetch_one(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    answer
}

fn server_pid(cluster: &Cluster) -> u32 {
    let text = std::fs::read_to_string(cluster.dir().join("data/postmaster.pid")).unwrap();
    text.lines().next().unwrap().trim().parse().unwrap()
}

fn gone(pid: u32, within: Duration) -> bool {
    let end = Instant::now() + within;
    while std::path::Path::new(&format!("/proc/{pid}")).exists() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn state_dir() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_data_survives_a_restart_a_second_user_is_refused_and_kill_9_is_recovered() {
    let dir = state_dir();
    let cluster = Cluster::start(dir.path()).unwrap();
    assert!(cluster.dir().starts_with(dir.path().canonicalize().unwrap()));
    let mut conn = PgConnection::connect_with(&cluster.options("postgres")).await.unwrap();
    sqlx::raw_sql("CREATE TABLE kept (n int); INSERT INTO kept VALUES (42)")
        .execute(&mut conn)
        .await
        .unwrap();
    conn.close().await.unwrap();
    assert!(matches!(Cluster::start(dir.path()), Err(PostgresError::InUse(_))));
    let url = cluster.url("postgres");
    let mut conn = PgConnection::connect(&url).await.unwrap();
    conn.ping().await.unwrap();
    drop(conn);

    let pid = server_pid(&cluster);
    cluster.stop();
    assert!(gone(pid, Duration::from_secs(1)), "a stop waits for the server");

    let mut cluster = Cluster::start(dir.path()).unwrap();
    assert_eq!(ask(&cluster, "SELECT n FROM kept").await, 42);
    assert!(cluster.is_running());
    let pid = server_pid(&cluster);
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    assert!(gone(pid, Duration::from_secs(5)));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!cluster.is_running());
    drop(cluster);
    let cluster = Cluster::start(dir.path()).unwrap();
    assert_eq!(ask(&cluster, "SELECT n FROM kept").await, 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_it_listens_on_a_socket_only_and_never_runs_as_root() {
    use std::os::unix::fs::MetadataExt;
    let cluster = Cluster::start_temporary().unwrap();
    let pid = server_pid(&cluster);
    assert_ne!(std::fs::metadata(format!("/proc/{pid}")).unwrap().uid(), 0);
    assert_eq!(ask(&cluster, "SELECT (current_setting('listen_addresses') = '')::int").await, 1);
    let home = cluster.dir().to_owned();
    drop(cluster);
    assert!(!home.exists(), "a throwaway cluster leaves nothing behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_a_directory_the_server_may_not_enter_is_replaced_by_one_it_may() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let state = dir.path().join("state");
    let cluster = Cluster::start(&state).unwrap();
    assert_eq!(ask(&cluster, "SELECT 1").await, 1);
    let home = cluster.dir().to_owned();
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
    assert_eq!(home.starts_with(dir.path()), !root);
    drop(cluster);
    if root {
        let again = Cluster::start(&state).unwrap();
        assert_eq!(again.dir(), home, "it is found again");
        drop(again);
        std::fs::remove_dir_all(home).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn part4_a_path_too_long_for_a_socket_still_works() {
    let dir = state_dir();
    let long = dir.path().join("x".repeat(90));
    let cluster = Cluster::start(&long).unwrap();
    assert_eq!(ask(&cluster, "SELECT 7").await, 7);
}

#[test]
fn part4_missing_binaries_name_the_package() {
    assert!(PostgresError::NoBinaries.to_string().contains("`postgresql`"));
    assert!(matches!(super::binaries::find(Some("3")), Err(PostgresError::NoBinaries)));
}
