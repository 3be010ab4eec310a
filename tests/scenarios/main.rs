//! What the product must do, with its real binaries, its real clients and a provider that misbehaves on command.
//!
//! One module per numbered part of the product's description; the others are named by what they are about.

#![allow(clippy::print_stdout, reason = "a long scenario says what it does, and from which seed")]

mod abuses;
mod bad_input;
mod chaos;
mod clients;
mod history;
mod last_known_good;
mod outage;
mod part01_workspace;
mod part02_proto;
mod part03_store;
mod part04_embedded;
mod part05_admin;
mod part06_watch;
mod part07_verdicts;
mod part08_prober;
mod part09_proxy;
mod part10_configuration;
mod part11_logs;
mod part12_readme;
mod part13_benches;
mod presets;
mod replicas;
mod rollout_leases;
mod rollouts;
mod support;
mod verdicts;
mod watch_scale;
