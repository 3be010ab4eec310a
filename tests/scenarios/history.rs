//! A database that comes back with less than it had: noticed, named, and mended by one command, with everybody served.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use spareline_tests::{
    chaos::Mode,
    database::Stop,
    process::{Launch, Process},
    replicas::Replicas,
    stack::{Plan, SOON, Stack},
};
use tokio::time::{Instant, sleep};

use crate::support::Trickle;

/// Two replicas with watchers and proxies, all of one mind.
async fn fleet() -> Result<Replicas> {
    let mut fleet = Replicas::start(2).await?;
    fleet.create(0, fleet.channel("steady", "m"), &["sk-steady"]).await?;
    fleet.add_proxies(2, &[]).await?;
    fleet.add_watchers(4).await?;
    fleet.agree(SOON).await?;
    Ok(fleet)
}

async fn noticed(process: &Process) -> Result<()> {
    let line = process.wait_for_log(2 * SOON, |l| l.is("history_lost")).await?;
    ensure!(line.text.contains("run `spareline-control new-epoch`"), "no command is named: {}", line.text);
    Ok(())
}

async fn says(fleet: &Replicas, lost: bool) -> Result<()> {
    for replica in &fleet.all {
        let begun = Instant::now();
        while (replica.control.metric("spareline_control_history_lost").await? > 0.5) != lost {
            ensure!(begun.elapsed() < SOON, "history_lost does not become {lost}");
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// Runs the command, and sees everybody in the new epoch.
async fn mended(fleet: &Replicas) -> Result<()> {
    let before = fleet.database.registry("default").await?.0;
    let url = fleet.database.plain_url();
    let launch =
        Launch::product("new-epoch", "spareline-control")?.arguments(["new-epoch", "--database-url", &url]);
    let (status, text) = launch.run(SOON).await?;
    ensure!(status.success() && text.contains("begins at revision"), "{text}");
    let begun = Instant::now();
    fleet.agree(Duration::from_secs(60)).await?;
    println!("everybody was in the new epoch after {:?}", begun.elapsed());
    let now = fleet.database.registry("default").await?.0;
    ensure!(now.epoch != before.epoch && now.revision > before.revision, "{before:?} became {now:?}");
    says(fleet, false).await?;
    fleet.create(0, fleet.channel("afterwards", "m2"), &["sk-afterwards"]).await?;
    fleet.agree(SOON).await?;
    ensure!(fleet.faults().is_empty(), "{:?}", fleet.faults());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_lost_by_a_restored_dump_is_noticed_and_mended_while_all_serve() -> Result<()> {
    let mut fleet = fleet().await?;
    fleet.create(0, fleet.channel("yesterday", "m"), &["sk-yesterday"]).await?;
    let dump = fleet.database.dump().await?;
    for n in 0..5 {
        fleet.create(n % 2, fleet.channel(&format!("today-{n}"), "m"), &[&format!("sk-today-{n}")]).await?;
    }
    let (held, _) = fleet.agree(SOON).await?;
    let trickle = Trickle::start(&fleet, &["m"]);

    fleet.database.restore(&dump).await?;
    for replica in &fleet.all {
        noticed(&replica.control.process).await?;
    }
    says(&fleet, true).await?;
    // One that starts now knows nothing of it, until somebody comes who holds more.
    fleet.all[0].control.crash().await?;
    fleet.all[0].control.restart().await?;
    fleet.wires().for_each(|wire| wire.cut());
    noticed(&fleet.all[0].control.process).await?;
    says(&fleet, true).await?;
    for (proxy, _) in &fleet.proxies {
        let position = proxy.position().await?;
        assert_eq!(position.revision, held, "{} does not serve what it had", proxy.id);
    }
    mended(&fleet).await?;
    trickle.ended_well().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_forked_by_a_failover_that_lost_commits_is_noticed_and_mended_while_all_serve() -> Result<()>
{
    let mut fleet = fleet().await?;
    fleet.database.stop(Stop::Fast).await?;
    let standby = fleet.database.put_aside().await?;
    fleet.database.run().await?;
    let lost =
        async |n: usize| fleet.create(n % 2, fleet.channel(&format!("lost-{n}"), "m"), &["sk-lost"]).await;
    let begun = Instant::now();
    while lost(0).await.is_err() {
        ensure!(begun.elapsed() < SOON, "no write after a restart of the database");
        sleep(Duration::from_millis(100)).await;
    }
    lost(1).await?;
    let (held, _) = fleet.agree(SOON).await?;
    let trickle = Trickle::start(&fleet, &["m"]);

    fleet.database.stop(Stop::Immediate).await?;
    fleet.database.put_back(&standby).await?;
    // The second replica is away until others have taken the numbers that were lost: it cannot tell by them.
    fleet.all[1].database.set(Mode::Refuse);
    fleet.all[1].database.cut();
    fleet.database.run().await?;
    noticed(&fleet.all[0].control.process).await?;
    for n in 0..4 {
        fleet.create(0, fleet.channel(&format!("since-{n}"), "m"), &["sk-since"]).await?;
    }
    let (head, _) = fleet.database.registry("default").await?;
    assert!(head.revision > held, "the numbers that were lost are not taken");
    fleet.all[1].database.set(Mode::Pass);
    noticed(&fleet.all[1].control.process).await.context("a fork further back than the head")?;
    says(&fleet, true).await?;
    mended(&fleet).await?;
    trickle.ended_well().await
}

#[tokio::test]
async fn history_is_not_begun_anew_beneath_a_control_plane_that_runs() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 0, embedded: true, ..Plan::default() }).await?;
    let state = stack.directory().join("control");
    let state = state.to_str().context("a path that is not UTF-8")?;
    let launch = Launch::product("new-epoch", "spareline-control")?;
    let launch = launch.arguments(["new-epoch", "--state-dir", state]);
    let (status, text) = launch.run(SOON).await?;
    assert!(!status.success(), "{text}");
    assert!(text.contains("no new epoch was started") && text.contains("stop it first"), "{text}");
    stack.settled().await?;
    Ok(())
}
