//! Starts the program: reads the configuration, takes the ports, turns signals into an orderly end.

use anyhow::Context as _;
use clap::Parser as _;
use spareline_proxy::{
    app::{Proxy, Stop},
    config::{Config, Flags},
    log, standalone,
};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> anyhow::Result<()> {
    let flags = Flags::parse();
    let config = Config::load(&flags)?;
    if flags.check_config {
        return Ok(standalone::check(&config)?);
    }
    let (logger, _flush) = log::init(config.log_format, &config.log_level);
    tracing::debug!(event = "open_files", limit = spareline_upstream::raise_open_files());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let result = runtime.block_on(run(config, logger));
    // A thread of the blocking pool that is stuck must not keep the process.
    runtime.shutdown_background();
    if let Err(error) = &result {
        tracing::error!(event = "start_failed", "{error:#}");
    }
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
