//! Tells the control plane what this proxy found out. No request waits for any of it.
//!
//! Verdicts get their id when they are reached and keep it over every retry; they wait in a bounded spool while no
//! control plane answers. Tallies of health go every ten seconds, at once when a threshold was crossed.

mod send;
mod spool;
#[cfg(test)]
mod tests;

pub use send::run;
pub use spool::{Report, Spool};
