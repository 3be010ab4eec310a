//! How requests of one group are handled, ready to use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spareline_proto::registry::v1 as pb;

use super::fold::effective;
use super::presets::{CONFIGURABLE, Preset, Reaction};
use crate::classify::EvidenceKind;
use crate::convert::{self, duration};
use crate::errortext::ErrorText;
use crate::limits::{Limits, PartialLimits};
use crate::words::{Endpoint, Provider};

/// Every level folded in.
#[derive(Clone, Debug)]
pub struct RequestPolicy {
    /// The preset beneath.
    pub preset: Preset,
    /// Attempts per request, at least one; dead keys apart where `max_dead_credentials` is not zero.
    pub max_attempts: u32,
    /// Attempts that may end in a credential or quota verdict without counting; zero: all attempts count.
    pub max_dead_credentials: u32,
    /// Limits of attempts, before those of channel and model entry: see [`RequestPolicy::limits_of`].
    pub limits: Limits,
    /// The whole request, over all attempts; ends phase one only.
    pub deadline: Option<Duration>,
    /// Whether a request that finds nothing usable tries the least bad once.
    pub last_resort: bool,
    /// Where a retry goes.
    pub layer_order: LayerOrder,
    /// Retries on the same channel after a transient failure.
    pub same_channel_retries: u32,
    /// Wait for a hint up to this long on the same channel instead of switching.
    pub throttle_wait_max: Option<Duration>,
    /// Whether to switch when the outcome of an attempt cannot be known. `None`: where there was no answer at all, which
    /// is a network error too, but not after an answer that says so (504, 524, a 2xx that cannot be read).
    pub switch_on_unknown_outcome: Option<bool>,
    /// Bounds retries.
    pub retry_budget: Option<RetryBudget>,
    /// How callers stick to a channel.
    pub affinity: Affinity,
    /// When the first byte of a stream goes to the caller.
    pub stream_commit: StreamCommit,
    /// What callers see of an upstream's error text.
    pub error_text: Arc<ErrorText>,
    /// The channel, by name, that holds the group's stored objects.
    pub stateful_channel: Option<Arc<str>>,
    /// Whether answers and errors name channels.
    pub expose_channels: bool,
    /// Whether callers may pin a request.
    pub allow_pinning: bool,
    /// Whether a pinned request may switch when its channel fails.
    pub pinned_switch: bool,
    /// Models to fill in, by endpoint.
    pub default_models: BTreeMap<Endpoint, Arc<str>>,
    /// Whether unknown `/v1/*` JSON paths are routed like the rest.
    pub passthrough: bool,
    /// Whether usage is asked for upstream when the caller did not ask.
    pub request_usage: bool,
    reactions: Vec<(EvidenceKind, Override)>,
}

/// What a policy says about one kind of evidence beyond its preset.
#[derive(Clone, Copy, Debug)]
struct Override {
    switch: Option<bool>,
    penalise: Option<bool>,
}

/// Where a retry goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerOrder {
    /// The rest of the layer, then the next one.
    #[default]
    FinishLayer,
    /// One layer down per retry; in the last layer what was tried is tried again.
    NextLayer,
}

/// Bounds retries: the first switch of a request is free, further ones draw from a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// Retries per second that are always allowed.
    pub min_per_second: u32,
    /// Further retries, as a percentage of recent successes.
    pub percent: u32,
}

/// How callers stick to a channel and a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// A request header, besides `x-spareline-affinity`.
    pub header: Option<Arc<str>>,
    /// A top-level string field of the body.
    pub body_field: Option<Arc<str>>,
    /// Do not switch away from the channel the key points at.
    pub strict: bool,
}

/// When the first byte of a stream goes to the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamCommit {
    /// At the first event with content.
    #[default]
    FirstContent,
    /// At the head of a 2xx response.
    Headers,
    /// At the terminal event: the whole stream is held.
    Assured,
}

impl RequestPolicy {
    /// From the policies as they were written.
    pub fn resolve(global: Option<&pb::Policy>, group: Option<&pb::Policy>) -> Self {
        let p = effective(global, group);
        let preset = p.preset.parse().unwrap_or_default();
        let word = |s: &str| (!s.is_empty()).then(|| Arc::from(s));
        let affinity = p.affinity.as_ref();
        let commit = p.stream.as_ref().map_or(pb::StreamCommit::Unspecified, |s| s.commit());
        Self {
            preset,
            max_attempts: p.max_attempts.unwrap_or(3).max(1),
            max_dead_credentials: p.max_dead_credentials.unwrap_or(16),
            limits: convert::limits(p.attempt_policy.as_ref()).over(Limits::default()),
            deadline: duration(p.deadline.as_ref()).filter(|d| !d.is_zero()),
            last_resort: p.last_resort.unwrap_or(true),
            layer_order: match p.layer_order() {
                pb::LayerOrder::NextLayer => LayerOrder::NextLayer,
                _ => LayerOrder::FinishLayer,
            },
            same_channel_retries: p.same_channel_retries.unwrap_or(0),
            throttle_wait_max: duration(p.throttle_wait_max.as_ref()).filter(|d| !d.is_zero()),
            switch_on_unknown_outcome: p.switch_on_unknown_outcome,
            retry_budget: p
                .retry_budget
                .as_ref()
                .map(|b| RetryBudget { min_per_second: b.min_per_second, percent: b.percent }),
            affinity: Affinity {
                header: affinity.and_then(|a| word(&a.header)),
                body_field: affinity.and_then(|a| word(&a.body_field)),
                strict: affinity.and_then(|a| a.strict).unwrap_or(false),
            },
            stream_commit: match commit {
                pb::StreamCommit::Headers => StreamCommit::Headers,
                pb::StreamCommit::Assured => StreamCommit::Assured,
                _ => StreamCommit::FirstContent,
            },
            error_text: Arc::new(ErrorText::new(&p.error_text.clone().unwrap_or_default())),
            stateful_channel: p.stateful_channel.as_deref().and_then(word),
            expose_channels: p.expose_channels.unwrap_or(true),
            allow_pinning: p.allow_pinning.unwrap_or(false),
            pinned_switch: p.pinned_switch_on_channel_error.unwrap_or(false),
            default_models: p
                .default_models
                .iter()
                .filter_map(|(endpoint, model)| Some((endpoint.parse().ok()?, Arc::from(model.as_str()))))
                .collect(),
            passthrough: p.passthrough.unwrap_or(true),
            request_usage: p.request_usage.unwrap_or(false),
            reactions: p.reactions.iter().filter_map(reaction_override).collect(),
        }
    }

    /// What follows from one kind of evidence. `provider` and `status` are the attempt's.
    pub fn reaction(&self, kind: EvidenceKind, provider: Provider, status: u16) -> Reaction {
        let mut reaction = self.preset.reaction(kind);
        match kind {
            EvidenceKind::UnknownOutcome => {
                reaction.switch = self.switch_on_unknown_outcome.unwrap_or(status == 0);
            }
            EvidenceKind::OtherClientError => {
                let odd = status == 400 && provider == Provider::Anthropic;
                reaction.switch = odd && self.preset == Preset::Layered;
            }
            _ => {}
        }
        if let Some((_, own)) = self.reactions.iter().find(|(k, _)| *k == kind) {
            reaction.switch = own.switch.unwrap_or(reaction.switch);
            reaction.penalise = own.penalise.unwrap_or(reaction.penalise);
        }
        reaction
    }

    /// The limits of one attempt, given those of its model entry (which has the channel's folded in).
    pub fn limits_of(&self, model: PartialLimits) -> Limits {
        model.over(self.limits)
    }
}

fn reaction_override(wire: &pb::Reaction) -> Option<(EvidenceKind, Override)> {
    let kind = CONFIGURABLE.into_iter().find(|k| k.as_str() == wire.evidence)?;
    Some((kind, Override { switch: wire.switch, penalise: wire.penalise }))
}
