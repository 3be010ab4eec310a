//! Which channel and which credential the next attempt uses.
//!
//! Candidates of (group, model, endpoint), minus what is out by status, by overlay or by breaker, minus what this
//! request tried, minus the drained; layers in order; within a layer a weighted draw, or the order of a rendezvous hash.
//! Decides only from its arguments; no allocation where nothing is out.

mod draw;
mod last;
mod scene;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;

use crate::health::{Health, Mark, Ticket};
use crate::ids::{ChannelId, CredentialId};
use crate::overlay::Overlays;
use crate::policy::{LayerOrder, RequestPolicy};
use crate::spec::{ChannelSpec, Credential, ModelSpec};
use crate::table::{Candidates, Layer, Member};
use crate::view::View;
use crate::words::Endpoint;
use scene::{Fit, Scene};

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
    domains: Vec<Arc<str>>,
    last_priority: Option<i32>,
}

/// Nothing to pick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoneLeft {
    /// Why.
    pub reason: Reason,
    /// When waiting would help: until the earliest return. Then the answer is 503, otherwise 502.
    pub retry_after: Option<Duration>,
    /// How the candidates stand, for the error's text.
    pub left: Left,
}

/// How many candidates there are of each kind, when none can be picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// This request has been there.
    pub tried: u32,
    /// Asked to wait.
    pub throttled: u32,
    /// Failures in a row.
    pub failing: u32,
    /// A dead key, an empty account, an unknown model, an operator's decision.
    pub disabled: u32,
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
        self.domains.extend(picked.channel.failure_domain.clone());
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
pub fn pick(pick: &Pick<'_>, rng: &mut impl Rng) -> Result<Picked, NoneLeft> {
    let none = |reason| NoneLeft { reason, retry_after: None, left: Left::default() };
    let entry = pick.view.table().entry(pick.group, pick.model).ok_or(none(Reason::ModelNotFound))?;
    let candidates = entry.candidates(pick.endpoint).ok_or(none(Reason::EndpointNotAvailable))?;
    if let Some(name) = pick.pinned
        && !candidates.iter().any(|m| *m.line.spec.name == *name)
    {
        return Err(none(Reason::ChannelNotFound));
    }
    let mut scene = Scene::new(pick);
    if let Some(member) = strict(pick, candidates) {
        let (member, priority) = member;
        if scene.standing(member, Some(pick.tried)).0 <= Fit::Trial {
            return Ok(scene.take(member, priority, Some(pick.tried), rng));
        }
        return Err(last::none_left(&scene, std::iter::once(member)));
    }
    if let Some((layer, member, tried)) = usable(&scene, candidates, rng) {
        return Ok(scene.take(member, layer.priority, tried, rng));
    }
    if pick.policy.last_resort
        && let Some((layer, member)) = last::resort(&mut scene, candidates, rng)
    {
        let mut picked = scene.take(member, layer.priority, Some(pick.tried), rng);
        picked.last_resort = true;
        return Ok(picked);
    }
    Err(last::none_left(&scene, candidates.iter().filter(|m| pinned_or_any(pick, m))))
}

/// The one member a strict affinity allows.
fn strict<'m>(pick: &Pick<'_>, candidates: &'m Candidates) -> Option<(&'m Member, i32)> {
    let key = pick.affinity.filter(|_| pick.policy.affinity.strict && pick.pinned.is_none())?;
    let layer = candidates.layers.first()?;
    Some((draw::favourite(key, layer)?, layer.priority))
}

/// A usable member of the right layer, and what it was kept apart from.
fn usable<'m, 'p>(
    scene: &Scene<'p>,
    candidates: &'m Candidates,
    rng: &mut impl Rng,
) -> Option<(&'m Layer, &'m Member, Option<&'p Tried>)> {
    let pick = scene.pick;
    let tried = (!pick.tried.is_empty()).then_some(pick.tried);
    if let Some(last) = pick.tried.last_priority.filter(|_| pick.policy.layer_order == LayerOrder::NextLayer)
    {
        let below = candidates.layers.iter().filter(|l| l.priority < last);
        let lowest = candidates.layers.last().map(|l| (l, None));
        let next = below.map(|l| (l, tried)).chain(lowest);
        let found = first_usable(scene, next, rng);
        if found.is_some() {
            return found;
        }
    }
    first_usable(scene, candidates.layers.iter().map(|l| (l, tried)), rng)
}

fn first_usable<'m, 'p>(
    scene: &Scene<'p>,
    layers: impl Iterator<Item = (&'m Layer, Option<&'p Tried>)>,
    rng: &mut impl Rng,
) -> Option<(&'m Layer, &'m Member, Option<&'p Tried>)> {
    for (layer, tried) in layers {
        let fits = |m: &Member| scene.standing(m, tried).0 <= Fit::Trial;
        let domains = tried.map_or(&[][..], |t| &t.domains);
        if !domains.is_empty() {
            let elsewhere =
                |m: &Member| m.line.spec.failure_domain.as_ref().is_none_or(|d| !domains.contains(d));
            if let Some(member) = draw::member(scene.pick, layer, |m| elsewhere(m) && fits(m), rng) {
                return Some((layer, member, tried));
            }
        }
        if let Some(member) = draw::member(scene.pick, layer, fits, rng) {
            return Some((layer, member, tried));
        }
    }
    None
}

fn pinned_or_any(pick: &Pick<'_>, member: &Member) -> bool {
    pick.pinned.is_none_or(|name| *member.line.spec.name == *name)
}

impl Scene<'_> {
    /// Takes a member, one of its keys, and the trials that go with them.
    fn take(&mut self, member: &Member, priority: i32, tried: Option<&Tried>, rng: &mut impl Rng) -> Picked {
        let pick = self.pick;
        let spec = &member.line.spec;
        let fit = self.standing(member, tried).0.max(Fit::Trial);
        let credential = draw::key(self, member, tried, fit, rng);
        let mut held = None;
        if self.health.is_some() {
            let outs = pick.view.outs(spec.id);
            held = Some(Vec::new());
            self.around(member, outs, &mut held);
            if let Some(key) = &credential {
                self.key(member, outs, key, None, &mut held);
            }
        }
        let held = held.unwrap_or_default();
        if let Some(health) = &mut self.health {
            held.iter().for_each(|held| health.enter(held, pick.now));
        }
        let mark = Mark {
            channel: spec.id,
            model: member.model.name.clone(),
            credential: credential.as_ref().map(|c| c.id),
            revision: pick.view.revision(),
            spec_revision: spec.spec_revision,
        };
        Picked {
            channel: spec.clone(),
            model: member.model.clone(),
            credential,
            priority,
            last_resort: false,
            trial: !held.is_empty(),
            ticket: Ticket::new(mark, pick.health.clone(), held),
        }
    }
}
