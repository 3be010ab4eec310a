//! Which channel and which credential the next attempt uses.
//!
//! Candidates of (group, model, endpoint), minus what is out by status, by overlay or by breaker, minus what this
//! request tried, minus the drained; layers in order; within a layer a weighted draw, or the order of a rendezvous hash.
//! Decides only from its arguments; no allocation where nothing is out.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;

use crate::health::{Health, Ticket};
use crate::ids::{ChannelId, CredentialId};
use crate::overlay::Overlays;
use crate::policy::RequestPolicy;
use crate::spec::{ChannelSpec, Credential, ModelSpec};
use crate::view::View;
use crate::words::Endpoint;

/// What to pick for, and from.
#[derive(Clone, Copy)]
pub struct Pick<'a> {
    /// The registry in force.
    pub view: &'a View,
    /// The caller's group.
    pub group: &'a str,
    /// The model, as the caller names it.
    pub model: &'a str,
    /// What is asked of it; `None`: any.
    pub endpoint: Option<Endpoint>,
    /// The group's policy.
    pub policy: &'a RequestPolicy,
    /// What this request tried.
    pub tried: &'a Tried,
    /// Soft evidence.
    pub health: &'a Health,
    /// Hard evidence of our own.
    pub overlays: &'a Overlays,
    /// The key to stick by.
    pub affinity: Option<&'a str>,
    /// The channel the caller insists on, by name.
    pub pinned: Option<&'a str>,
    /// The control plane has been away for 60 s: what a machine disabled may be tried when its time has come.
    pub alone: bool,
    /// Since the process started.
    pub now: Duration,
}

/// What the attempt is to use.
#[derive(Debug)]
pub struct Picked {
    /// The channel.
    pub channel: Arc<ChannelSpec>,
    /// The model's entry there: upstream name, limits.
    pub model: Arc<ModelSpec>,
    /// The credential; `None`: none is sent.
    pub credential: Option<Arc<Credential>>,
    /// The layer's priority.
    pub priority: i32,
    /// Nothing was usable; this is the least bad.
    pub last_resort: bool,
    /// A trial: one request after a breaker, a throttle or an overlay ran out.
    pub trial: bool,
    /// To be told how the attempt went.
    pub ticket: Ticket,
}

/// What this request tried so far.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    channels: Vec<ChannelId>,
    credentials: Vec<CredentialId>,
    last_priority: Option<i32>,
}

/// Nothing to pick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoneLeft {
    /// Why.
    pub reason: Reason,
    /// When waiting would help: until the earliest return. Then the answer is 503, otherwise 502.
    pub retry_after: Option<Duration>,
}

/// Why there is nothing to pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nobody in the group serves the model: 404 `model_not_found`.
    ModelNotFound,
    /// Somebody does, but without that endpoint: 404 `endpoint_not_available`.
    EndpointNotAvailable,
    /// The pinned channel does not exist or does not serve it: 404 `channel_not_found`.
    ChannelNotFound,
    /// Everything is tried or out; some of it for a known time only: 503 `all_throttled` with Retry-After.
    AllThrottled,
    /// Everything is tried or out: 502 `all_channels_failed`.
    AllFailed,
}

impl Tried {
    /// After a verdict about a key only: its siblings may be next. Where no key was sent, the channel.
    pub fn key(&mut self, picked: &Picked) {
        match &picked.credential {
            Some(key) => self.credentials.push(key.id),
            None => self.channels.push(picked.channel.id),
        }
        self.last_priority = Some(picked.priority);
    }

    /// After any other verdict.
    pub fn channel(&mut self, picked: &Picked) {
        self.channels.push(picked.channel.id);
        self.last_priority = Some(picked.priority);
    }

    /// Whether nothing was tried yet.
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.credentials.is_empty()
    }
}

/// Picks.
///
/// # Errors
/// Why there is nothing to pick, and whether waiting would help.
pub fn pick(_pick: &Pick<'_>, _rng: &mut impl Rng) -> Result<Picked, NoneLeft> {
    todo!()
}
