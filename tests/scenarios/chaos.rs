//! Three replicas over one Postgres under everything that goes wrong at once: kill -9, SIGSTOP, partitions, restarts of the
//! database, drawn from a printed seed, under a steady load of writes, reports and requests.
//!
//! `SPARELINE_CHAOS_SECONDS` makes it longer, `SPARELINE_CHAOS_SEED` repeats a run.

mod check;
mod load;

use std::time::Duration;

use anyhow::{Context as _, Result};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use spareline_proto::registry::v1::Channel;
use spareline_tests::{chaos::Mode, database::Stop, provider::script::KeyState, replicas::Replicas};
use tokio::time::{Instant, sleep, sleep_until};

use crate::support::number;
use load::Load;

/// As short as still meets every kind of trouble.
const SHORT: u64 = 40;
/// Replicas, sidecars, plain watch clients.
const SIZE: (usize, usize, usize) = (3, 4, 20);
/// How long everything may take to come together afterwards.
const HEAL: Duration = Duration::from_secs(120);

/// Something that was broken and is to be mended again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wound {
    /// A replica is dead.
    Dead(usize),
    /// A replica is stopped.
    Stopped(usize),
    /// A replica does not reach the database; whether its connections are forgotten meanwhile.
    Database(usize, bool),
    /// A proxy or a watch client reaches no replica; the same.
    Wire(usize, bool),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn chaos_loses_nothing_and_everybody_ends_with_the_same() -> Result<()> {
    let seconds = number("SPARELINE_CHAOS_SECONDS").unwrap_or(SHORT);
    let seed = number("SPARELINE_CHAOS_SEED").unwrap_or_else(|| rand::random_range(0..1_000_000));
    println!("SPARELINE_CHAOS_SECONDS={seconds} SPARELINE_CHAOS_SEED={seed}");
    run(Duration::from_secs(seconds), seed).await.with_context(|| format!("SPARELINE_CHAOS_SEED={seed}"))
}

async fn run(time: Duration, seed: u64) -> Result<()> {
    let mut fleet = Replicas::start(SIZE.0).await?;
    fleet.provider.key("sk-dead", KeyState::Dead);
    fleet.create(0, fleet.channel("steady", "steady"), &["sk-steady"]).await?;
    let preferred = Channel { priority: 10, ..fleet.channel("flaky-first", "flaky") };
    fleet.create(0, preferred, &["sk-dead"]).await?;
    fleet.create(1, fleet.channel("flaky-second", "flaky"), &["sk-second"]).await?;
    fleet.add_proxies(SIZE.1, &[]).await?;
    fleet.add_watchers(SIZE.2).await?;
    fleet.agree(HEAL).await.context("before it began")?;

    let load = Load::start(&fleet).await?;
    let mut trouble = Trouble { rng: StdRng::seed_from_u64(seed), wounds: Vec::new(), begun: Instant::now() };
    trouble.make(&mut fleet, time).await?;
    let healing = Instant::now();
    let done = load.stop().await?;
    check::up(&fleet, HEAL).await?;
    let (revision, items) = fleet.agree(HEAL).await?;
    println!(
        "healed within {:.1} s at revision {revision} with {} items; {}",
        healing.elapsed().as_secs_f64(),
        items.len(),
        done.summary()
    );
    check::everything(&fleet, &done, revision).await
}

struct Trouble {
    rng: StdRng,
    wounds: Vec<(Instant, Wound)>,
    begun: Instant,
}

impl Trouble {
    /// Breaks things until the time is over, then mends what is still broken.
    async fn make(&mut self, fleet: &mut Replicas, time: Duration) -> Result<()> {
        let end = self.begun + time;
        while Instant::now() < end {
            let next = Instant::now() + Duration::from_millis(self.rng.random_range(500..3500));
            while let Some(n) = self.next_due(next) {
                let (at, wound) = self.wounds.swap_remove(n);
                sleep_until(at).await;
                self.mend(fleet, wound).await?;
            }
            sleep_until(next.min(end)).await;
            self.wound(fleet).await?;
        }
        for (_, wound) in std::mem::take(&mut self.wounds) {
            self.mend(fleet, wound).await?;
        }
        Ok(())
    }

    fn next_due(&self, limit: Instant) -> Option<usize> {
        let due = self.wounds.iter().enumerate().filter(|(_, (at, _))| *at <= limit);
        due.min_by_key(|(_, (at, _))| *at).map(|(n, _)| n)
    }

    fn is_hurt(&self, replica: usize) -> bool {
        self.wounds.iter().any(|(_, w)| matches!(w, Wound::Dead(n) | Wound::Stopped(n) if *n == replica))
    }

    fn say(&self, what: &str) {
        let answered = load::ANSWERED.load(std::sync::atomic::Ordering::Relaxed);
        println!("{:6.1} s, {answered:5} calls answered: {what}", self.begun.elapsed().as_secs_f64());
    }

    async fn wound(&mut self, fleet: &mut Replicas) -> Result<()> {
        let replica = self.rng.random_range(0..fleet.all.len());
        let forget = self.rng.random_bool(0.5);
        let mut lasts = Duration::from_millis(self.rng.random_range(1000..10_000));
        let wound = match self.rng.random_range(0..100) {
            0..20 if !self.is_hurt(replica) => {
                lasts /= 4;
                self.say(&format!("kill -9 of {replica}"));
                fleet.all[replica].control.crash().await?;
                Wound::Dead(replica)
            }
            20..40 if !self.is_hurt(replica) => {
                lasts *= 2;
                self.say(&format!("{replica} stops for {lasts:?}"));
                fleet.all[replica].control.process.signal("STOP").await?;
                Wound::Stopped(replica)
            }
            40..60 => {
                self.say(&format!("{replica} loses the database for {lasts:?}, {}", how(forget)));
                apart(&fleet.all[replica].database, &mut self.rng);
                Wound::Database(replica, forget)
            }
            60..88 => {
                let wire = self.rng.random_range(0..fleet.wires().count());
                self.say(&format!("wire {wire} breaks for {lasts:?}, {}", how(forget)));
                apart(fleet.wires().nth(wire).context("a wire")?, &mut self.rng);
                Wound::Wire(wire, forget)
            }
            88..100 => {
                let stop = if forget { Stop::Immediate } else { Stop::Fast };
                let down = lasts / 5;
                self.say(&format!("the database restarts, {stop:?}, down for {down:?}"));
                fleet.database.stop(stop).await?;
                sleep(down).await;
                return fleet.database.run().await;
            }
            _ => return Ok(()),
        };
        self.wounds.push((Instant::now() + lasts, wound));
        Ok(())
    }

    async fn mend(&self, fleet: &mut Replicas, wound: Wound) -> Result<()> {
        self.say(&format!("mending {wound:?}"));
        let wire = match wound {
            Wound::Dead(n) => return fleet.all[n].control.respawn(),
            Wound::Stopped(n) => return fleet.all[n].control.process.signal("CONT").await,
            Wound::Database(n, forget) => (&fleet.all[n].database, forget),
            Wound::Wire(n, forget) => (fleet.wires().nth(n).context("a wire")?, forget),
        };
        if wire.1 {
            wire.0.cut();
        }
        wire.0.set(Mode::Pass);
        Ok(())
    }
}

fn how(forget: bool) -> &'static str {
    if forget { "its connections forgotten" } else { "its connections kept" }
}

/// Silence, or a clear refusal.
fn apart(wire: &spareline_tests::chaos::ChaosProxy, rng: &mut StdRng) {
    if rng.random_bool(0.6) {
        wire.set(Mode::Freeze);
    } else {
        wire.set(Mode::Refuse);
        wire.reset();
    }
}
