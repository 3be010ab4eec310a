//! The control plane: channels, statuses, probes and the registry watch.

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod decide;
pub mod log;
pub mod postgres;
mod reflect;
pub mod store;
pub mod watch;

/// The build, as it introduces itself.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");
