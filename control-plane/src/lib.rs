//! The control plane: channels, statuses, probes and the registry watch.

pub mod config;
pub mod decide;
pub mod log;
pub mod postgres;
pub mod store;
pub mod watch;
