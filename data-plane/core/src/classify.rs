//! What an upstream's answer, or the lack of one, means: class, scope, cause and how long to wait.
//!
//! Pure: everything is in [`Input`], the rules and `now`. Structure decides (codes, types, the error's own message
//! anchored at its start); text that a model wrote or a caller sent never does. At most 16 KiB of an error body are
//! looked at, in linear time, and no bytes can make it panic.
//!
//! It does *not* decide whether a class switches or penalises: that is policy, by [`EvidenceKind`].

mod chinese;
mod facts;
mod hints;
mod inflate;
mod input;
pub(crate) mod json;
mod judge;
mod operator;
mod recorded;
mod redact;
mod rules;
mod success;
mod vendor;
mod verdict;

pub use input::{Evidence, Input, Limit, StreamFault, Transport};
pub use recorded::{Recorded, classify_recorded, classify_stream};
pub use redact::excerpt as redacted;
pub use success::CountsAt;
pub use verdict::{Detail, EvidenceKind, Hint, RuleId, Verdict};

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use spareline_proto::registry::v1 as pb;

use crate::words::{Class, Endpoint, Scope};

/// Most of an error body that is looked at, in bytes, after inflating.
pub const ERROR_BODY_LIMIT: usize = 16 * 1024;

/// Most of a plain answer that is inflated to be checked.
const ANSWER_LIMIT: usize = 32 * 1024 * 1024;

/// The rules in force: an operator's own first, then the built-in ones. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    operator: Arc<[operator::OperatorRule]>,
}

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
    pub fn with_operator(rules: &[pb::Rule]) -> Result<Self, Vec<RuleViolation>> {
        operator::compile(rules).map(|rules| Self { operator: rules.into() })
    }

    /// The ids of the built-in rules that read bodies and statuses, in the order in which they are tried.
    pub fn builtin_ids() -> impl Iterator<Item = &'static str> {
        rules::all().iter().map(|rule| rule.id)
    }

    /// Every string the built-in rules look for.
    pub fn builtin_texts() -> impl Iterator<Item = &'static str> {
        rules::all().iter().flat_map(|rule| rule.find.texts().iter().copied())
    }
}

/// Reads one failed (or possibly failed) attempt. A 2xx whose structure shows no error reads as [`Class::Ok`].
pub fn classify(input: &Input<'_>, rules: &Rules, now: SystemTime) -> Verdict {
    match input.evidence {
        Evidence::Response { status: 200..=299, .. } => {
            check_success(input, rules, now).map_or_else(|v| *v, |_| ok(input))
        }
        Evidence::Response { status, headers, body } => {
            let (body, _) = inflate::inflate(headers, body, ERROR_BODY_LIMIT);
            judge::judge(input, rules, headers, &body, status, Some(status), now)
        }
        Evidence::Event { .. } => check_stream_event(input, rules, now).map_or_else(|| ok(input), |v| *v),
        Evidence::Stream(fault) => judge::stream(fault),
        Evidence::Transport(fault) => judge::transport(fault),
        Evidence::CallerLeft => nobody("caller.left", "cancelled"),
        Evidence::Internal => nobody("internal", "internal"),
    }
}

/// Whether a plain 2xx answer is one: `Err` where its structure says error, where it is empty, where it is not the JSON that
/// was asked for, and where a remark stands in the place of an answer (`{"code": "Throttling", "message": ...}`). `input.evidence` must be [`Evidence::Response`] with the whole body, of any size; anything
/// else passes. Where a stream was asked for, one whole JSON answer is none. On the way it is seen where the body has
/// its token counts.
///
/// # Errors
/// The verdict on what is not a success.
pub fn check_success(input: &Input<'_>, rules: &Rules, now: SystemTime) -> Result<CountsAt, Box<Verdict>> {
    let Evidence::Response { status, headers, body } = input.evidence else {
        return Ok(CountsAt::Unknown);
    };
    // What is not an endpoint of ours (a file's content) is a caller's own.
    if input.endpoint.is_none() || !(200..300).contains(&status) {
        return Ok(CountsAt::Unknown);
    }
    let given = body;
    let (body, cut) = inflate::inflate(headers, given, ANSWER_LIMIT);
    let text = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&body).trim_ascii();
    let none = |rule, word| Err(Box::new(judge::no_answer(rule, word, status)));
    match text.first() {
        None => return none("body.empty", "empty_response"),
        // JSON that says nothing: servers that know no such path answer so to whatever they are asked.
        Some(_) if text == b"{}" || (text == b"[]" && success::needs_choices(input.endpoint)) => {
            return none("body.empty", "empty_response");
        }
        Some(b'{' | b'[' | b'"') => {}
        Some(_) if !answers_json(input.endpoint) => return Ok(CountsAt::Unknown),
        Some(b'<') => return none("body.html", "parse_error"),
        Some(_) => return none("body.unparsable", "parse_error"),
    }
    let outline = success::outline(text);
    let judged = || {
        let start = text.get(..ERROR_BODY_LIMIT).unwrap_or(text);
        Err(Box::new(judge::judge(input, rules, headers, start, status, None, now)))
    };
    if outline.error {
        return judged();
    }
    if !outline.whole && !cut {
        return none("body.unparsable", "parse_error");
    }
    if input.stream {
        return none("body.not_a_stream", "parse_error");
    }
    if success::needs_choices(input.endpoint) {
        if !outline.object && text.first() != Some(&b'[') {
            return none("body.not_an_answer", "parse_error");
        }
        if outline.no_choices {
            return none("body.no_choices", "empty_response");
        }
        // What has no place for an answer is none; a code may say why.
        if outline.failure {
            return judged();
        }
        if outline.remark && outline.whole {
            return none("body.not_an_answer", "parse_error");
        }
    }
    Ok(match (outline.counts, &body) {
        // The places are those in the body as it was given.
        (CountsAt::Usage(from, to), Cow::Borrowed(_)) => {
            let before = text.as_ptr() as usize - given.as_ptr() as usize;
            CountsAt::Usage(before + from, before + to)
        }
        (CountsAt::Usage(..), Cow::Owned(_)) => CountsAt::Unknown,
        (counts, _) => counts,
    })
}

/// Whether one event of a stream is an error, by structure only. `input.evidence` must be [`Evidence::Event`], its
/// `status` that of the head, or the one that a `:HTTP_STATUS/400` comment before the event names.
pub fn check_stream_event(input: &Input<'_>, rules: &Rules, now: SystemTime) -> Option<Box<Verdict>> {
    let Evidence::Event { status, headers, event, data } = input.evidence else { return None };
    let named = event == Some("error");
    let outline = success::outline(data);
    if !named && !outline.error && !outline.failure {
        return None;
    }
    let start = data.get(..ERROR_BODY_LIMIT).unwrap_or(data);
    let effective = (status >= 300).then_some(status);
    let mut verdict = judge::judge(input, rules, headers, start, status, effective, now);
    if verdict.rule.as_str() == "status.server" && verdict.kind == EvidenceKind::ServerError {
        verdict.rule = RuleId::Builtin("stream.error_event");
    }
    Some(Box::new(verdict))
}

/// The vendor whose rules apply to a host of a `base_url`, such as `api.moonshot.cn`; `None` where it is not known.
pub fn vendor_of_host(host: &str) -> Option<&'static str> {
    vendor::of_host(host)
}

/// Whether an endpoint answers with JSON (audio may not).
pub fn answers_json(endpoint: Option<Endpoint>) -> bool {
    endpoint != Some(Endpoint::Audio)
}

fn ok(input: &Input<'_>) -> Verdict {
    let status = match input.evidence {
        Evidence::Response { status, .. } | Evidence::Event { status, .. } => status,
        _ => 0,
    };
    judge::bare("ok", Class::Ok, Scope::None, EvidenceKind::Nothing, Detail::Status(status), status)
}

fn nobody(rule: &'static str, word: &'static str) -> Verdict {
    judge::bare(rule, Class::None, Scope::None, EvidenceKind::Nothing, Detail::Word(word), 0)
}

#[cfg(test)]
mod tests;
