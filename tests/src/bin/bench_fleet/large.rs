//! A large registry, and a real proxy in front of it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use spareline_tests::{
    process::{LogLine, memory_kib},
    stack::Proxy,
};

use crate::{
    Arguments,
    plane::Plane,
    table::{Table, Times, ms},
};

/// Single changes measured.
const UPDATES: u32 = 50;
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn run(arguments: &Arguments, table: &mut Table) -> Result<()> {
    let (channels, models) = (arguments.channels, arguments.models);
    let mut plane = Plane::start().await?;
    let start = Instant::now();
    let keys = plane.seed(channels, models).await?;
    table
        .note(&format!("{channels} channels with {models} models each created in {:.1?}", start.elapsed()))?;
    let head = plane.head().await?;
    let what = format!("{channels} channels, {} abilities", channels * models);

    let start = Instant::now();
    let proxy = Proxy::start("cold", plane.data(), &[]).await?;
    let full = |line: &LogLine| line.is("registry_applied") && *line.field("channels") == channels;
    let applied = proxy.process.wait_for_log(LIMIT, full).await?;
    let connected = proxy.process.wait_for_log(LIMIT, |l| l.is("watch_connected")).await?;
    let (cold, snapshot) = (applied.at - start, applied.at - connected.at);
    let measured = format!("{} from the start of the process, {} of it the snapshot", ms(cold), ms(snapshot));
    table.figure(
        &format!("{what}: cold snapshot to a proxy"),
        "< 2 s",
        &measured,
        cold < Duration::from_secs(2),
    )?;

    let mut times = Vec::new();
    for n in 0..UPDATES {
        let key = &keys[usize::try_from(n)? * 97 % keys.len()];
        let (mark, start) = (proxy.process.mark(), Instant::now());
        let revision = Plane::reweigh(plane.channels.clone(), &key.channel, 1000 + n).await?;
        let newer = |l: &LogLine| l.is("registry_applied") && l.field("revision").as_i64() >= Some(revision);
        times.push(proxy.process.wait_for_log_after(mark, LIMIT, newer).await?.at - start);
    }
    let times = Times::new(times)?;
    let met = times.at(99) < Duration::from_millis(50);
    table.figure(&format!("{what}: one channel's update, call to proxy"), "< 50 ms", &times.text(), met)?;

    let (rss, peak) = (plane.rss_kib()? / 1024, plane.peak_kib()? / 1024);
    let measured = format!("{rss} MiB, {peak} MiB at its peak");
    table.figure(&format!("{what}: the control plane's memory"), "< 400 MiB", &measured, peak < 400)?;
    let pid = proxy.process.pid()?;
    let own = (memory_kib(pid, "VmRSS")? / 1024, memory_kib(pid, "VmHWM")? / 1024);
    table.note(&format!("the proxy's own memory: {} MiB, {} MiB at its peak", own.0, own.1))?;

    let start = Instant::now();
    plane.stack.control.process.signal("TERM").await?;
    plane.stack.control.process.ended(LIMIT).await?;
    let down = start.elapsed();
    let start = Instant::now();
    plane.stack.control.restart().await?;
    let listening = start.elapsed();
    let loaded = plane.stack.control.process.wait_for_log(LIMIT, |l| l.is("world_loaded")).await?;
    let rss = plane.rss_kib()? / 1024;
    let revision = loaded.field("revision").as_i64().context("a revision")?;
    table.note(&format!(
        "stopped in {}, up again in {} with {rss} MiB at revision {revision} (was {head} before the updates)",
        ms(down),
        ms(listening)
    ))
}
