//! What the classifier answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use spareline_proto::registry::v1 as pb;

use super::redact::{EXCERPT, cut};
use crate::words::{Cause, Class, Scope};

/// What an attempt meant.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What to make of it.
    pub class: Class,
    /// What it condemns: the narrowest that fits. For throttles: the ability where model, tokens or tier are named.
    pub scope: Scope,
    /// Why the subject would be out: set for `disable`, `throttle` and `model_unavailable`.
    pub cause: Option<Cause>,
    /// A probe has to confirm it before the fleet believes it (status defaults and `model_unavailable`).
    pub confirm: bool,
    /// The upstream may have acted on the request although no answer is to be had.
    pub unknown_outcome: bool,
    /// What policy goes by: whether to switch, whether to penalise.
    pub kind: EvidenceKind,
    /// What attempt lists and logs show beside the class.
    pub detail: Detail,
    /// The HTTP status as received; zero when there was no response.
    pub status: u16,
    /// The rule that decided.
    pub rule: RuleId,
    /// Rules that claimed it too and lost, in order.
    pub also: Vec<RuleId>,
    /// How long to wait, where the upstream said so and is to be believed.
    pub retry_after: Option<Hint>,
    /// The provider's own code or type; empty when there is none. At most 128 bytes.
    pub provider_code: String,
    /// The error's own message: at most 256 bytes, redacted.
    pub excerpt: String,
}

/// What policy and presets go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EvidenceKind {
    /// No response; also our own egress proxy's refusal.
    Network,
    /// A passing fault of the upstream: 5xx, overloaded, an HTML 403 or 404, 409, 423 to 425, an error event.
    ServerError,
    /// 504, 524, an unparsable or empty 2xx, a reset or time-out after sending.
    UnknownOutcome,
    /// Rate limited.
    Throttle,
    /// Key or account dead.
    DeadKey,
    /// Model unknown or not granted.
    ModelUnavailable,
    /// Endpoint unknown for that model.
    EndpointMissing,
    /// 408.
    RequestTimeout,
    /// 307 and every other redirect: none is followed.
    Redirect,
    /// The request is at fault.
    OtherClientError,
    /// It worked, or nobody is to blame.
    Nothing,
}

/// What attempt lists and logs show beside the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Detail {
    /// The HTTP status.
    Status(u16),
    /// `dns`, `refused`, `tls`, `reset`, `parse_error`, `empty_response`, a limit's name, `internal`, or empty.
    Word(&'static str),
}

/// Names a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleId {
    /// One of ours.
    Builtin(&'static str),
    /// An operator's; shown as it was written.
    Operator(Arc<str>),
}

/// How long the upstream asked us to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// As read, before clamping.
    pub read: Duration,
    /// Where and what was read, such as `retry-after: 4`; at most 64 bytes.
    pub raw: String,
}

// === impl Verdict ===

impl Verdict {
    /// One line for humans, as it stands in a status: status, code, rule, hint as read, excerpt.
    pub fn reason(&self) -> String {
        let mut line = String::new();
        match self.detail {
            Detail::Status(status) => line.push_str(&status.to_string()),
            Detail::Word(word) => line.push_str(word),
        }
        if !self.provider_code.is_empty() {
            line.push(' ');
            line.push_str(&self.provider_code);
        }
        if let Some(hint) = &self.retry_after {
            line.push_str(" [");
            line.push_str(&hint.raw);
            line.push(']');
        }
        if !self.excerpt.is_empty() {
            line.push_str(": ");
            line.push_str(&self.excerpt);
        }
        line.push_str(" (");
        line.push_str(self.rule.as_str());
        line.push(')');
        line
    }

    /// Takes `secret` out of everything that will be shown: what an upstream quotes of a key has no form to know it by.
    pub fn scrub(&mut self, secret: &str) {
        if secret.len() < 4 {
            return;
        }
        let raw = self.retry_after.as_mut().map(|hint| &mut hint.raw);
        for text in [&mut self.excerpt, &mut self.provider_code].into_iter().chain(raw) {
            if text.contains(secret) {
                *text = text.replace(secret, "<redacted>");
                cut(text, EXCERPT);
            }
            // Cut short in the middle of it.
            let most = secret.len().min(text.len());
            let tail =
                (4..most).rev().find(|len| secret.get(..*len).is_some_and(|start| text.ends_with(start)));
            if let Some(len) = tail {
                text.truncate(text.len() - len);
            }
        }
    }

    /// As it goes on the wire.
    pub fn evidence(&self, request_id: &str) -> pb::Evidence {
        pb::Evidence {
            http_status: u32::from(self.status),
            provider_code: self.provider_code.clone(),
            excerpt: self.excerpt.clone(),
            rule_id: self.rule.as_str().to_owned(),
            request_id: request_id.to_owned(),
            retry_hint: self.retry_after.as_ref().map(|hint| hint.raw.clone()).unwrap_or_default(),
        }
    }
}

// === impl EvidenceKind ===

impl EvidenceKind {
    /// As in `Reaction.evidence`; `endpoint_missing` and `none` are not configurable there.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::ServerError => "5xx",
            Self::UnknownOutcome => "unknown_outcome",
            Self::Throttle => "throttle",
            Self::DeadKey => "dead_key",
            Self::ModelUnavailable => "model_unavailable",
            Self::EndpointMissing => "endpoint_missing",
            Self::RequestTimeout => "408",
            Self::Redirect => "307",
            Self::OtherClientError => "other_4xx",
            Self::Nothing => "none",
        }
    }
}

// === impl Detail ===

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

// === impl RuleId ===

impl RuleId {
    /// As shown.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Builtin(id) => id,
            Self::Operator(id) => id,
        }
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

// === impl Hint ===

impl Hint {
    /// The shortest wait that is obeyed.
    pub const MIN: Duration = Duration::from_secs(1);
    /// The longest.
    pub const MAX: Duration = Duration::from_secs(15 * 60);

    /// How long to wait: as read, clamped to 1 s .. 15 min.
    pub fn wait(&self) -> Duration {
        self.read.clamp(Self::MIN, Self::MAX)
    }
}
