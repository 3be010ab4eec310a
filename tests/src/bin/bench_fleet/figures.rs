//! The figures of a large fleet over a small registry.

use std::time::{Duration, Instant as Wall};

use anyhow::{Result, bail, ensure};
use spareline_proto::dataplane::v1::Disposition;
use spareline_tests::fleet::Fleet;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    plane::{Key, Plane, condemn},
    table::{Table, Times, ms},
};

/// All connected: memory for each.
pub(crate) async fn connected(plane: &Plane, fleet: &Fleet, before: u64, table: &mut Table) -> Result<()> {
    let count = fleet.board.count();
    let start = Wall::now();
    fleet.until(|t| t.connected == count && t.snapshots >= count).await?;
    let took = start.elapsed();
    // Until what is left of the opening is settled.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = plane.rss_kib()?;
    let each = after.saturating_sub(before) as f64 / count as f64;
    let measured = format!("{each:.1} KiB each, {} MiB in all; connected in {}", after / 1024, ms(took));
    table.figure(&format!("{count} watchers, resident memory"), "< 60 KiB each", &measured, each < 60.0)
}

/// One proxy reports a dead key: when do the others serve without it?
pub(crate) async fn disables(
    plane: &mut Plane,
    fleet: &Fleet,
    keys: &[Key],
    rounds: usize,
    table: &mut Table,
) -> Result<()> {
    let count = fleet.board.count();
    let mut times = Vec::new();
    let (cpu, wall) = (plane.cpu()?, Wall::now());
    for (round, key) in keys.iter().cycle().take(rounds).enumerate() {
        fleet.board.take_sights();
        let reporter = round % count;
        let start = Instant::now();
        let (result, _) = condemn(plane.data(), reporter, key.id, &fleet.board.position()).await?;
        ensure!(result.disposition() == Disposition::Applied, "round {round}: {result:?}");
        fleet.reach(0..count, result.status_revision).await?;
        let sights = fleet.board.take_sights();
        let others = sights.iter().filter(|s| s.watcher != reporter && s.revision >= result.status_revision);
        times.extend(others.map(|s| s.at - start));
        let enabled = plane.enable(key).await?;
        fleet.reach(0..count, enabled).await?;
    }
    let (cpu, wall) = (plane.cpu()? - cpu, wall.elapsed());
    let times = Times::new(times)?;
    let met = times.at(50) < Duration::from_millis(50) && times.at(99) < Duration::from_millis(200);
    let what = format!("a disable by one proxy, applied by the {} others", count - 1);
    table.figure(&what, "p50 < 50 ms, p99 < 200 ms", &times.text(), met)?;
    let frame = cpu / u32::try_from(2 * rounds * count)?;
    table.note(&format!("the control plane used {frame:?} CPU for each frame, {cpu:.1?} in {wall:.1?}"))
}

/// All report the same dead key at once.
pub(crate) async fn storms(
    plane: &mut Plane,
    fleet: &Fleet,
    keys: &[Key],
    rounds: usize,
    table: &mut Table,
) -> Result<()> {
    let count = fleet.board.count();
    let (mut answered, mut writes) = (Vec::new(), 0);
    for key in keys.iter().cycle().take(rounds) {
        let (head, seen, to) = (plane.head().await?, fleet.board.position(), plane.data());
        let mut calls = JoinSet::new();
        for proxy in 0..count {
            let (key, seen) = (key.id, seen.clone());
            calls.spawn(async move { condemn(to, proxy, key, &seen).await });
        }
        while let Some(call) = calls.join_next().await {
            let (result, took) = call??;
            match result.disposition() {
                Disposition::Applied | Disposition::Already => answered.push(took),
                _ => bail!("{result:?}"),
            }
        }
        let disabled = plane.head().await?;
        writes = writes.max(disabled - head);
        fleet.reach(0..count, disabled).await?;
        let enabled = plane.enable(key).await?;
        fleet.reach(0..count, enabled).await?;
    }
    let times = Times::new(answered)?;
    let measured = format!("{writes} write(s), answered {}", times.text());
    let met = writes == 1 && times.max() < Duration::from_secs(2);
    let what = format!("{count} proxies report the same dead key at once");
    table.figure(&what, "one write, all answered < 2 s", &measured, met)
}

/// The replica is restarted; nothing changes meanwhile.
pub(crate) async fn restart(plane: &mut Plane, fleet: &Fleet, table: &mut Table) -> Result<()> {
    let count = fleet.board.count();
    let before = fleet.board.tally();
    let told = Wall::now();
    plane.stack.control.process.signal("TERM").await?;
    plane.stack.control.process.ended(Duration::from_secs(30)).await?;
    plane.stack.control.restart().await?;
    let back = Wall::now();
    let after = fleet.until(|t| t.connected == count && t.welcomes >= before.welcomes + count).await?;
    let took = back.elapsed();
    let snapshots = after.snapshots - before.snapshots;
    let resumed = after.resumed - before.resumed;
    let measured = format!(
        "{} after it listens again ({} after the signal), {resumed} resumed, {snapshots} snapshots",
        ms(took),
        ms(told.elapsed())
    );
    let met = took < Duration::from_secs(10) && snapshots == 0 && resumed >= count;
    let what = format!("{count} proxies reconnect after a restart of the replica");
    table.figure(&what, "converged < 10 s, no snapshot", &measured, met)
}
