//! What callers see of a proxy with a registry, scripted providers behind it, and no control plane.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod alone;
mod failover;
mod front;
mod streams;
mod support;
