//! The control plane: channels, statuses, probes and the registry watch.

pub mod config;
pub mod log;
