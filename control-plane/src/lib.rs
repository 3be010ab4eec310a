//! The control plane: channels, statuses, probes and the registry watch.

mod admin;
pub mod app;
pub mod cli;
pub mod config;
mod decide;
mod fleet;
pub mod log;
mod metrics;
pub mod postgres;
mod prober;
pub(crate) use spareline_core::reflect;
mod refuse;
mod report;
mod rollout;
pub mod store;
#[cfg(test)]
mod testing;
pub mod watch;
pub mod world;

/// The build, as it introduces itself.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");
