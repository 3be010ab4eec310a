//! The presets, as data: what follows from each kind of evidence, and the values beneath all policies.

use std::str::FromStr;

use spareline_proto::registry::v1 as pb;

use crate::classify::EvidenceKind;
use crate::words::UnknownWord;

/// A set of answers to "what follows from a failure".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Switch wherever that may help, and take out what failed.
    #[default]
    Availability,
    /// Switch on plain upstream trouble only; keys and limits are the operator's business.
    Conservative,
    /// One layer down per retry.
    Layered,
}

/// What follows from one kind of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// Try another channel or key.
    pub switch: bool,
    /// Let it count against the channel, key or model.
    pub penalise: bool,
}

const BOTH: Reaction = Reaction { switch: true, penalise: true };
const SWITCH: Reaction = Reaction { switch: true, penalise: false };
const COUNT: Reaction = Reaction { switch: false, penalise: true };
const PASS: Reaction = Reaction { switch: false, penalise: false };

/// Evidence, then what availability, conservative and layered make of it.
const TABLE: [(EvidenceKind, [Reaction; 3]); 11] = [
    (EvidenceKind::Network, [BOTH, BOTH, BOTH]),
    (EvidenceKind::ServerError, [BOTH, BOTH, BOTH]),
    (EvidenceKind::UnknownOutcome, [BOTH, BOTH, COUNT]),
    (EvidenceKind::Throttle, [BOTH, PASS, SWITCH]),
    (EvidenceKind::DeadKey, [BOTH, PASS, BOTH]),
    (EvidenceKind::ModelUnavailable, [BOTH, PASS, PASS]),
    (EvidenceKind::EndpointMissing, [BOTH, PASS, PASS]),
    (EvidenceKind::RequestTimeout, [BOTH, PASS, PASS]),
    (EvidenceKind::Redirect, [BOTH, PASS, BOTH]),
    (EvidenceKind::OtherClientError, [PASS, PASS, PASS]),
    (EvidenceKind::Nothing, [PASS, PASS, PASS]),
];

/// The kinds of evidence that `Policy.reactions` may name.
pub const CONFIGURABLE: [EvidenceKind; 9] = [
    EvidenceKind::Network,
    EvidenceKind::ServerError,
    EvidenceKind::UnknownOutcome,
    EvidenceKind::Throttle,
    EvidenceKind::DeadKey,
    EvidenceKind::ModelUnavailable,
    EvidenceKind::RequestTimeout,
    EvidenceKind::Redirect,
    EvidenceKind::OtherClientError,
];

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 3] = [Self::Availability, Self::Conservative, Self::Layered];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Availability => "availability",
            Self::Conservative => "conservative",
            Self::Layered => "layered",
        }
    }

    /// What follows from one kind of evidence.
    pub fn reaction(self, kind: EvidenceKind) -> Reaction {
        let row = TABLE.iter().find(|(k, _)| *k == kind);
        row.map_or(PASS, |(_, by_preset)| by_preset[self as usize])
    }

    /// The values beneath all policies: what the preset says, else what is built in. Every field is set but those
    /// whose default is "none".
    pub(super) fn base(self) -> pb::Policy {
        let layered = self == Self::Layered;
        let order = if layered { pb::LayerOrder::NextLayer } else { pb::LayerOrder::FinishLayer };
        pb::Policy {
            preset: self.as_str().to_owned(),
            max_attempts: Some(3),
            last_resort: Some(true),
            layer_order: order.into(),
            max_dead_credentials: Some(if self == Self::Availability { 16 } else { 0 }),
            same_channel_retries: Some(0),
            switch_on_unknown_outcome: (!layered).then_some(true),
            expose_channels: Some(true),
            allow_pinning: Some(false),
            pinned_switch_on_channel_error: Some(false),
            passthrough: Some(true),
            request_usage: Some(false),
            affinity: Some(pb::AffinityPolicy { strict: Some(false), ..Default::default() }),
            stream: Some(pb::StreamPolicy { commit: pb::StreamCommit::FirstContent.into() }),
            error_text: Some(pb::ErrorTextPolicy {
                mode: pb::ErrorTextMode::Passthrough.into(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

impl FromStr for Preset {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let known = Self::ALL.into_iter().find(|p| p.as_str() == word);
        known.ok_or(UnknownWord { expected: &["availability", "conservative", "layered"] })
    }
}
