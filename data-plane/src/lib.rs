//! The sidecar: an OpenAI-compatible front that fails over between channels.
//!
//! [`app`] puts the parts together; [`http`] faces callers, [`failover`] runs one request over several channels,
//! [`watch`] and [`report`] speak to the control plane, [`lkg`] keeps the registry on disk, [`standalone`] reads it from a
//! file where there is no control plane, [`admin`] speaks to whoever operates this process.

pub mod admin;
pub mod app;
pub mod config;
pub mod failover;
pub mod http;
pub mod lkg;
pub mod log;
pub mod metrics;
pub mod plan;
pub mod record;
pub mod report;
pub mod standalone;
pub mod state;
pub mod watch;
pub mod words;
