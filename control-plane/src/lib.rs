//! The control plane: channels, statuses, probes and the registry watch.

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod decide;
pub mod fleet;
pub mod log;
pub mod metrics;
pub mod postgres;
pub mod prober;
pub(crate) use spareline_core::reflect;
pub mod refuse;
pub mod report;
pub mod rollout;
pub mod store;
#[cfg(test)]
mod testing;
pub mod watch;
pub mod world;

/// The build, as it introduces itself.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");
