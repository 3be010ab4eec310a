//! Part 4: the control plane's own Postgres.

use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use anyhow::Result;
use spareline_tests::{
    http::Call,
    stack::{Control, Plan, Stack},
};

use crate::support::MODEL;

#[tokio::test]
async fn part04_what_was_stored_survives_kill_9_and_a_clean_stop() -> Result<()> {
    let mut stack = Stack::start(Plan { embedded: true, ..Plan::default() }).await?;
    stack.create(stack.channel("one", MODEL), &["sk-1"]).await?;
    let before = stack.settled().await?;

    stack.control.crash().await?;
    stack.control.restart().await?;
    assert_eq!(stack.settled().await?, before, "the revision after kill -9");
    assert_eq!(stack.send(&Call::chat(MODEL)).await?.status, 200);

    stack.control.process.signal("TERM").await?;
    let status = stack.control.process.ended(Duration::from_secs(20)).await?;
    assert!(status.success(), "a clean stop ended with {status}");
    let sockets = walk(stack.directory()).into_iter().filter(|p| p.ends_with(".s.PGSQL.5432"));
    assert_eq!(sockets.count(), 0, "the database outlived a clean stop");
    stack.control.restart().await?;
    assert_eq!(stack.settled().await?, before, "the revision after a clean stop");
    Ok(())
}

#[tokio::test]
async fn part04_a_state_directory_nobody_else_may_enter_works() -> Result<()> {
    // As a clone under root's home: the database's unprivileged user cannot go there.
    let home = tempfile::tempdir()?;
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o700))?;
    let state = home.path().join("clone/state").to_string_lossy().into_owned();
    let mut control = Control::start("control", ["--state-dir".to_owned(), state]).await?;
    let head =
        control.fleet()?.get_fleet_summary(spareline_proto::admin::v1::GetFleetSummaryRequest {}).await?;
    assert!(head.into_inner().connected == 0);
    control.process.signal("TERM").await?;
    control.process.ended(Duration::from_secs(20)).await?;
    Ok(())
}

fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().map(|e| e.path()).flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}
