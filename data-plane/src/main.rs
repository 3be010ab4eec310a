//! Starts the program: reads the configuration, takes the ports, turns signals into an orderly end.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use clap::Parser as _;
use spareline_proxy::{
    app::{Proxy, Stop},
    config::{Config, Flags},
    log, standalone,
};
use tokio::signal::unix::{SignalKind, signal};

/// A request makes some forty short-lived allocations, up to several KiB each: a tenth of its CPU with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let flags = Flags::parse();
    let config = match Config::load(&flags) {
        Ok(config) => config,
        Err(mistakes) => return wrong(&mistakes),
    };
    if flags.check_config {
        return match standalone::check(&config) {
            Ok(()) => {
                let _ = writeln!(std::io::stdout(), "the configuration is valid");
                ExitCode::SUCCESS
            }
            Err(mistakes) => wrong(&mistakes),
        };
    }
    let (logger, _flush) = log::init(config.log_format, &config.log_level);
    tracing::debug!(event = "open_files", limit = spareline_upstream::raise_open_files());
    match serve(config, logger) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(event = "start_failed", "{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What was asked for cannot be done as it stands: 2, as for flags.
fn wrong(mistakes: &dyn std::fmt::Display) -> ExitCode {
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "spareline-proxy: {mistakes}");
    ExitCode::from(2)
}

fn serve(config: Config, logger: log::Logger) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let result = runtime.block_on(run(config, logger));
    // A thread of the blocking pool that is stuck must not keep the process.
    runtime.shutdown_background();
    result
}

async fn run(config: Config, logger: log::Logger) -> anyhow::Result<()> {
    let (listen, admin) = (config.listen, config.admin_listen);
    let proxy =
        Proxy::bind(config, logger).with_context(|| format!("cannot listen on {listen} and {admin}"))?;
    let stop = Stop::default();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let told = stop.clone();
    let signals = tokio::spawn(async move {
        for token in [&told.drain, &told.force] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            token.cancel();
        }
    });
    let result = proxy.run(stop).await;
    signals.abort();
    Ok(result?)
}
