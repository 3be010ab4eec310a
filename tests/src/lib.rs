//! Fakes and a harness for real processes, and the scenarios (under `scenarios/`) that use them.
//!
//! * [`provider`]: a scriptable model provider, as a library and as the binary `fake-provider`.
//! * [`chaos`]: a TCP proxy that cuts, delays or swallows; [`database`]: a Postgres to restart, restore and set back.
//! * [`fleet`]: many watchers of the registry in one process.
//! * [`process`], [`stack`]: the product's own binaries on free ports, their logs, their end.
//! * [`replicas`]: several control planes over one database; [`watcher`]: a watch client that keeps the order of things.
//! * [`http`]: a client that keeps every byte; [`tools`]: `grpcurl`, Python and Node SDKs.
//!
//! Waiting is always for something that happened (a log line, a recorded request, a revision), with a limit;
//! never for time to pass.

pub mod chaos;
pub mod database;
pub mod fleet;
pub mod http;
pub mod process;
pub mod provider;
pub mod readme;
pub mod replicas;
pub mod stack;
pub mod tools;
pub mod watcher;
