//! Many admin writes under a small fleet, of which some stop reading.

use std::time::Duration;

use anyhow::Result;
use spareline_tests::{
    chaos::{ChaosProxy, Mode},
    fleet::{Fleet, Sight},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{
    Arguments,
    plane::Plane,
    table::{Table, Times, ms},
};

/// One write.
struct Commit {
    revision: i64,
    sent: Instant,
    answered: Instant,
}

pub(crate) async fn run(arguments: &Arguments, table: &mut Table) -> Result<()> {
    let plane = Plane::start().await?;
    let keys = plane.seed(50, 3).await?;
    let (some, stalled) = (arguments.some, arguments.stalled);
    let wire = ChaosProxy::start(plane.data()).await?;
    // The last ones go over a wire that will carry nothing for a while.
    let addresses: Vec<_> =
        (0..some).map(|n| if n < some - stalled { plane.data() } else { wire.addr() }).collect();
    let fleet = Fleet::through(&addresses);
    fleet.until(|t| t.connected == some && t.snapshots >= some).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    fleet.board.take_sights();
    let rss = plane.rss_kib()?;
    wire.set(Mode::Freeze);

    let (cpu, start) = (plane.cpu()?, Instant::now());
    let gap = Duration::from_secs(1) / arguments.rate;
    let count = u32::try_from(arguments.seconds)? * arguments.rate;
    let mut calls = JoinSet::new();
    let mut peak = rss;
    for n in 0..count {
        let due = start + gap * n;
        sleep_until(due).await;
        let client = plane.channels.clone();
        let name = keys[usize::try_from(n)? % keys.len()].channel.clone();
        calls.spawn(async move {
            let sent = Instant::now();
            let revision = Plane::reweigh(client, &name, n % 1000 + 1).await?;
            anyhow::Ok(Commit { revision, sent, answered: Instant::now() })
        });
        if n % arguments.rate == 0 {
            peak = peak.max(plane.rss_kib()?);
        }
    }
    let mut commits = Vec::new();
    while let Some(call) = calls.join_next().await {
        commits.push(call??);
    }
    let (took, cpu) = (start.elapsed(), plane.cpu()? - cpu);
    commits.sort_unstable_by_key(|c| c.revision);
    let last = commits.last().map_or(0, |c| c.revision);
    fleet.reach(0..some - stalled, last).await?;
    let sights = fleet.board.take_sights();
    wire.set(Mode::Pass);
    let thawed = Instant::now();
    fleet.reach(0..some, last).await?;
    let thawed = thawed.elapsed();

    let lags = lags(&commits, &sights, some - stalled);
    let frames = sights.len();
    let (sent, answered) = (Times::new(lags.0)?, Times::new(lags.1)?);
    let written = Times::new(commits.iter().map(|c| c.answered - c.sent).collect())?;
    let what = format!("{} admin writes/s for {} s, {some} watchers: lag", arguments.rate, arguments.seconds);
    let agree = fleet.board.agree();
    let measured = format!(
        "{} from the commit's answer; {}",
        answered.text(),
        if agree { "all converged" } else { "NOT ALL EQUAL" }
    );
    let met = answered.at(99) < Duration::from_secs(1) && agree;
    table.figure(&what, "p99 < 1 s, all converge", &measured, met)?;
    let rate = commits.len() as f64 / took.as_secs_f64();
    table.note(&format!("counted from the call: {}", sent.text()))?;
    table.note(&format!(
        "{rate:.0} writes/s done, each {}; {frames} frames; the control plane used {:.2} of a core",
        written.text(),
        cpu.as_secs_f64() / took.as_secs_f64()
    ))?;
    let quarter = Duration::from_millis(250);
    table.figure(
        &format!("the same: commit to {} watchers", some - stalled),
        "p99 < 250 ms",
        &answered.text(),
        answered.at(99) < quarter,
    )?;
    let grown = peak.saturating_sub(rss);
    table.figure(
        &format!("{stalled} of them do not read meanwhile: the control plane's memory"),
        "bounded, < 16 MiB more",
        &format!("{} KiB before, at most {grown} KiB more; all caught up {} later", rss, ms(thawed)),
        grown < 16 * 1024,
    )
}

/// For each commit and watcher: how long until a view with it was in force, from the call and from its answer.
fn lags(commits: &[Commit], sights: &[Sight], watchers: usize) -> (Vec<Duration>, Vec<Duration>) {
    let (mut sent, mut answered) = (Vec::new(), Vec::new());
    let mut next = vec![0; watchers];
    for sight in sights.iter().filter(|s| s.watcher < watchers) {
        let from = &mut next[sight.watcher];
        while let Some(commit) = commits.get(*from).filter(|c| c.revision <= sight.revision) {
            sent.push(sight.at.saturating_duration_since(commit.sent));
            answered.push(sight.at.saturating_duration_since(commit.answered));
            *from += 1;
        }
    }
    (sent, answered)
}
