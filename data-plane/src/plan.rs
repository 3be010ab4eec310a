//! One request as the failover loop sees it: written once, never changed between attempts.

use std::sync::Arc;

use spareline_core::Endpoint;
use spareline_upstream::{CommitMode, Outgoing};

/// What is to be done.
#[derive(Debug)]
pub struct Plan {
    /// The caller's group.
    pub group: Arc<str>,
    /// As the caller named it; empty on stored objects without one.
    pub model: Arc<str>,
    /// `None`: any.
    pub endpoint: Option<Endpoint>,
    /// The caller's key to stick by.
    pub affinity: Option<String>,
    /// The channel it must go to.
    pub pin: Option<Pin>,
    /// When a stream is committed.
    pub commit: CommitMode,
    /// It is about an object that one account stores: no choice, no failover.
    pub stateful: bool,
    /// Doing it twice is worse than not knowing whether it was done.
    pub side_effects: bool,
    /// What is sent.
    pub outgoing: Outgoing,
}

/// A channel named by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Its name.
    pub channel: Arc<str>,
    /// Whether the request may go elsewhere when it fails.
    pub switch: bool,
}
