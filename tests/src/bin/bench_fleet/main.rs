//! What a fleet costs the control plane, and how soon it knows: every figure beside its goal.
//!
//! The control plane is the release binary as a process of its own, over its private Postgres, so that its memory is its
//! own. The watchers are real gRPC clients with the proxy's own half of the watch, each with a connection and a view of
//! its own, in this process. Loopback only; everything ends with the program. See `tests/bench/README.md`.

mod figures;
mod large;
mod plane;
mod table;
mod writes;

use anyhow::{Result, ensure};
use clap::Parser;
use spareline_tests::fleet::Fleet;

use plane::Plane;
use table::Table;

#[derive(Clone, Parser)]
#[command(about = "Measures the control plane under a fleet of watchers")]
struct Arguments {
    /// Watchers of the large fleet.
    #[arg(long, default_value_t = 1000)]
    watchers: usize,
    /// Watchers of the small fleet, which sees many writes.
    #[arg(long, default_value_t = 200)]
    some: usize,
    /// How many of the small fleet stop reading meanwhile.
    #[arg(long, default_value_t = 20)]
    stalled: usize,
    /// Disables, one after the other, reported by a proxy of the large fleet.
    #[arg(long, default_value_t = 50)]
    disables: usize,
    /// Storms of the same verdict from every proxy of the large fleet.
    #[arg(long, default_value_t = 5)]
    storms: usize,
    /// Admin writes a second.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// For how many seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Channels of the large registry.
    #[arg(long, default_value_t = 10_000)]
    channels: usize,
    /// Models of each of them.
    #[arg(long, default_value_t = 10)]
    models: usize,
    /// Only these parts: `fleet`, `writes`, `large`.
    #[arg(long, value_delimiter = ',', default_value = "fleet,writes,large")]
    only: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.watchers >= 2 && arguments.watchers <= 10_000, "2 to 10 000 watchers");
    ensure!(arguments.some > arguments.stalled && arguments.seconds <= 600, "too many or too long");
    spareline_upstream::raise_open_files();
    let mut table = Table::default();
    let part = |name: &str| arguments.only.iter().any(|only| only == name);
    if part("fleet") {
        fleet(&arguments, &mut table).await?;
    }
    if part("writes") {
        writes::run(&arguments, &mut table).await?;
    }
    if part("large") {
        large::run(&arguments, &mut table).await?;
    }
    table.end()
}

/// A small registry and many watchers.
async fn fleet(arguments: &Arguments, table: &mut Table) -> Result<()> {
    let mut plane = Plane::start().await?;
    let keys = plane.seed(20, 3).await?;
    let before = plane.rss_kib()?;
    let fleet = Fleet::start(plane.data(), arguments.watchers);
    figures::connected(&plane, &fleet, before, table).await?;
    figures::disables(&mut plane, &fleet, &keys, arguments.disables, table).await?;
    figures::storms(&mut plane, &fleet, &keys, arguments.storms, table).await?;
    figures::restart(&mut plane, &fleet, table).await
}
