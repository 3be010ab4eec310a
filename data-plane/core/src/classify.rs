//! What an upstream's answer, or the lack of one, means: class, scope, cause and how long to wait.
//!
//! Pure: everything is in [`Input`], the rules and `now`. Structure decides (codes, types, the error's own message
//! anchored at its start); text that a model wrote or a caller sent never does. At most 16 KiB of an error body are
//! looked at, in linear time, and no bytes can make it panic.
//!
//! It does *not* decide whether a class switches or penalises: that is policy, by [`EvidenceKind`].

mod input;
mod verdict;

pub use input::{Evidence, Input, Limit, StreamFault, Transport};
pub use verdict::{Detail, EvidenceKind, Hint, RuleId, Verdict};

use std::time::SystemTime;

use spareline_proto::registry::v1 as pb;

use crate::words::Endpoint;

/// Most of an error body that is looked at, in bytes, after inflating.
pub const ERROR_BODY_LIMIT: usize = 16 * 1024;

/// The rules in force: an operator's own first, then the built-in ones.
#[derive(Clone, Debug, Default)]
pub struct Rules {}

/// One mistake in an operator's rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleViolation {
    /// Where, such as `rules[2].statuses`.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Rules {
    /// The built-in rules alone; cheap, they are static data.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// An operator's rules before the built-in ones.
    ///
    /// # Errors
    /// Every mistake at once.
    pub fn with_operator(_rules: &[pb::Rule]) -> Result<Self, Vec<RuleViolation>> {
        Ok(Self::default())
    }
}

/// Reads one failed (or possibly failed) attempt. A 2xx whose structure shows no error reads as [`Class::Ok`].
///
/// [`Class::Ok`]: crate::words::Class::Ok
pub fn classify(input: &Input<'_>, _rules: &Rules, _now: SystemTime) -> Verdict {
    Verdict::plain(input)
}

/// Whether a plain 2xx answer is one: `Err` where its structure says error, where it is empty, and where it is not the
/// JSON that was asked for. `input.evidence` must be [`Evidence::Response`] with the whole body, of any size.
///
/// # Errors
/// The verdict on what is not a success.
pub fn check_success(_input: &Input<'_>, _rules: &Rules, _now: SystemTime) -> Result<(), Box<Verdict>> {
    Ok(())
}

/// Whether one event of a stream is an error, by structure only. `input.evidence` must be [`Evidence::Event`].
pub fn check_stream_event(_input: &Input<'_>, _rules: &Rules, _now: SystemTime) -> Option<Box<Verdict>> {
    None
}

/// The vendor whose rules apply to a host of a `base_url`, such as `api.moonshot.cn`; `None` where it is not known.
pub fn vendor_of_host(_host: &str) -> Option<&'static str> {
    None
}

/// Whether an endpoint answers with JSON (audio may not).
pub fn answers_json(endpoint: Option<Endpoint>) -> bool {
    endpoint != Some(Endpoint::Audio)
}
