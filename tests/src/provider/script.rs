//! What the provider was told to do.
//!
//! A [`Rule`] says when it applies, how often, and what the answer is. The newest matching rule decides; without
//! one the key's [`KeyState`] does; a valid key gets a good answer.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Mutex,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// One instruction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Which requests it is for; everything unset matches all.
    pub when: When,
    /// How many requests it serves; unset: until it is removed.
    pub times: Option<u32>,
    /// Hold the answer until this name is released.
    pub hold: Option<String>,
    /// Wait this long before the head.
    pub delay_ms: u64,
    /// How the body is written.
    pub pace: Pace,
    /// Compress the body, and say so.
    pub encoding: Option<Encoding>,
    /// The answer.
    pub answer: Answer,
}

/// Which requests a rule is for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// The credential, as sent in `authorization: Bearer`, `x-api-key` or `api-key`.
    pub key: Option<String>,
    /// The body's `model`.
    pub model: Option<String>,
    /// The end of the path.
    pub path: Option<String>,
    /// Whether a stream was asked for.
    pub stream: Option<bool>,
}

/// How a body is written: in pieces, with pauses between them. Without `bytes` a piece is an event of a stream, or
/// a whole body.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pace {
    /// Size of a piece.
    pub bytes: Option<usize>,
    /// Pause between pieces.
    pub delay_ms: u64,
}

/// A content encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, as `deflate` means on the web.
    Deflate,
}

/// An answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// What a healthy provider would say, with these pieces of content if given.
    #[default]
    Good,
    /// A good answer with this content.
    Say {
        /// One delta each; a plain answer joins them.
        content: Vec<String>,
    },
    /// Exactly this.
    Http {
        /// The status.
        status: u16,
        /// Beside `content-length`.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// The body.
        #[serde(default)]
        body: String,
    },
    /// An error in the dialect of the path.
    Fail {
        /// Which.
        error: Failure,
        /// The `retry-after` header.
        #[serde(default)]
        retry_after: Option<String>,
    },
    /// Silence before the head.
    Hang,
    /// The connection is closed without a byte.
    Close,
    /// The connection is reset without a byte.
    Reset,
    /// The head of a good answer, then silence.
    HeadThenHang,
    /// These raw pieces as an event stream, whatever was asked for.
    Stream {
        /// Written as they are: with their `data: ` and their blank line.
        events: Vec<String>,
        /// What follows.
        #[serde(default)]
        then: Ending,
    },
    /// The first events of a good stream, or the first half of a good plain body, and then something else.
    Part {
        /// How many events.
        events: usize,
        /// What follows.
        then: Ending,
    },
}

/// How a body ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// As it should.
    #[default]
    End,
    /// The connection is closed in the middle.
    Cut,
    /// The connection is reset in the middle.
    Reset,
    /// Silence.
    Hang,
}

/// Errors that every dialect has words for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// 401.
    InvalidApiKey,
    /// 429 `insufficient_quota`, or Anthropic's 400 about the balance.
    InsufficientQuota,
    /// 429.
    RateLimit,
    /// 404 `model_not_found`.
    ModelNotFound,
    /// 400 `context_length_exceeded`.
    ContextLength,
    /// 400 about a parameter.
    BadParameter,
    /// 500.
    ServerError,
    /// 503, or Anthropic's 529.
    Overloaded,
    /// 401 in a form that names no key: to be confirmed.
    BareUnauthorized,
}

/// What a key is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Good answers.
    #[default]
    Valid,
    /// 401 `invalid_api_key`.
    Dead,
    /// Out of money.
    OutOfQuota,
    /// 429 without a hint.
    Throttled,
}

impl Rule {
    /// A rule for every request.
    pub fn always(answer: Answer) -> Self {
        Self { answer, ..Self::default() }
    }

    /// A rule for one key.
    pub fn for_key(key: &str, answer: Answer) -> Self {
        Self { when: When { key: Some(key.to_owned()), ..When::default() }, answer, ..Self::default() }
    }

    /// Only so many times.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// Held until released.
    #[must_use]
    pub fn held(self, name: &str) -> Self {
        Self { hold: Some(name.to_owned()), ..self }
    }

    /// Only for one model.
    #[must_use]
    pub fn model(mut self, model: &str) -> Self {
        self.when.model = Some(model.to_owned());
        self
    }

    /// Only for streams, or only for the others.
    #[must_use]
    pub fn stream(mut self, stream: bool) -> Self {
        self.when.stream = Some(stream);
        self
    }

    /// Only for paths with this end.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.when.path = Some(path.to_owned());
        self
    }
}

impl Answer {
    /// A JSON body.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::text(status, "application/json", &body.to_string())
    }

    /// Any body.
    pub fn text(status: u16, content_type: &str, body: &str) -> Self {
        let headers = BTreeMap::from([("content-type".to_owned(), content_type.to_owned())]);
        Self::Http { status, headers, body: body.to_owned() }
    }

    /// An error in the dialect of the path.
    pub const fn fail(error: Failure) -> Self {
        Self::Fail { error, retry_after: None }
    }
}

/// The rules, keys and holds in force.
#[derive(Default)]
pub(crate) struct Script {
    inner: Mutex<Inner>,
    released: watch::Sender<Released>,
}

#[derive(Default)]
struct Inner {
    rules: Vec<Rule>,
    keys: HashMap<String, KeyState>,
}

#[derive(Default)]
struct Released {
    names: HashSet<String>,
    /// Raised by `clear`: everything held before it may go.
    generation: u64,
}

impl Script {
    pub(crate) fn add(&self, rule: Rule) {
        self.lock().rules.push(rule);
    }

    pub(crate) fn replace(&self, rules: Vec<Rule>) {
        self.lock().rules = rules;
    }

    pub(crate) fn rules(&self) -> Vec<Rule> {
        self.lock().rules.clone()
    }

    pub(crate) fn clear(&self) {
        *self.lock() = Inner::default();
        self.released.send_modify(|r| {
            r.names.clear();
            r.generation += 1;
        });
    }

    pub(crate) fn set_key(&self, key: &str, state: KeyState) {
        self.lock().keys.insert(key.to_owned(), state);
    }

    pub(crate) fn key(&self, key: Option<&str>) -> KeyState {
        key.and_then(|k| self.lock().keys.get(k).copied()).unwrap_or_default()
    }

    pub(crate) fn release(&self, name: &str) {
        self.released.send_modify(|r| {
            r.names.insert(name.to_owned());
        });
    }

    /// Returns once `name` is released, or everything is.
    pub(crate) async fn held(&self, name: &str) {
        let mut released = self.released.subscribe();
        let generation = released.borrow().generation;
        let _ = released.wait_for(|r| r.generation > generation || r.names.contains(name)).await;
    }

    /// Takes the rule for a request; counts it.
    pub(crate) fn take(
        &self,
        key: Option<&str>,
        model: Option<&str>,
        path: &str,
        stream: bool,
    ) -> Option<Rule> {
        let mut inner = self.lock();
        let rule = inner
            .rules
            .iter_mut()
            .rev()
            .find(|r| r.times != Some(0) && r.when.matches(key, model, path, stream))?;
        if let Some(times) = &mut rule.times {
            *times -= 1;
        }
        Some(rule.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl When {
    fn matches(&self, key: Option<&str>, model: Option<&str>, path: &str, stream: bool) -> bool {
        self.key.as_deref().is_none_or(|k| Some(k) == key)
            && self.model.as_deref().is_none_or(|m| Some(m) == model)
            && self.path.as_deref().is_none_or(|p| path.ends_with(p))
            && self.stream.is_none_or(|s| s == stream)
    }
}

impl Pace {
    pub(crate) const fn delay(self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }
}
