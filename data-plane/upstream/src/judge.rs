//! What a verdict needs to know of an attempt, owned: it outlives the attempt in a committed body.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::HeaderMap;
use memchr::memmem;
use spareline_core::classify::{self, Evidence, Input, Rules, Verdict};
use spareline_core::commit::Context;
use spareline_core::{Endpoint, Provider, Secret};

#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) provider: Provider,
    pub(crate) vendor: Option<Arc<str>>,
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) stream: bool,
    pub(crate) status: u16,
    /// The upstream's head.
    pub(crate) headers: HeaderMap,
    pub(crate) rules: Rules,
    pub(crate) now: SystemTime,
    /// What was sent: an upstream that quotes it must not bring it into a report, a log or an answer.
    pub(crate) secret: Option<Secret>,
}

impl Facts {
    /// What one piece of evidence means.
    pub(crate) fn judge(&self, evidence: Evidence<'_>) -> Box<Verdict> {
        let input = Input {
            provider: self.provider,
            vendor: self.vendor.as_deref(),
            endpoint: self.endpoint,
            stream: self.stream,
            evidence,
        };
        self.scrubbed(Box::new(classify::classify(&input, &self.rules, self.now)))
    }

    /// Without the secret that was sent, if the upstream quoted it.
    pub(crate) fn scrubbed(&self, mut verdict: Box<Verdict>) -> Box<Verdict> {
        if let Some(secret) = &self.secret {
            verdict.scrub(secret.expose());
        }
        verdict
    }

    /// A refusal to be passed on, without the secret that was sent, plain or as JSON may write it.
    pub(crate) fn redacted(&self, body: Bytes) -> Bytes {
        let Some(secret) = self.secret.as_ref().map(Secret::expose).filter(|secret| secret.len() >= 4) else {
            return body;
        };
        let escaped = secret.replace('\\', "\\\\").replace('"', "\\\"");
        let slashed = escaped.replace('/', "\\/");
        [secret, &escaped, &slashed].into_iter().fold(body, |body, secret| without(body, secret.as_bytes()))
    }

    /// For the judge of a stream's events.
    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            provider: self.provider,
            vendor: self.vendor.as_deref(),
            endpoint: self.endpoint,
            status: self.status,
            headers: &self.headers,
            rules: &self.rules,
            now: self.now,
        }
    }
}

fn without(body: Bytes, secret: &[u8]) -> Bytes {
    let mut rest = 0;
    let mut out = Vec::new();
    for at in memmem::find_iter(&body, secret) {
        out.extend_from_slice(&body[rest..at]);
        out.extend_from_slice(b"<redacted>");
        rest = at + secret.len();
    }
    if rest == 0 {
        return body;
    }
    out.extend_from_slice(&body[rest..]);
    out.into()
}
