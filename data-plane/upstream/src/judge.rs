//! What a verdict needs to know of an attempt, owned: it outlives the attempt in a committed body.

use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use spareline_core::classify::{self, Evidence, Input, Rules, Verdict};
use spareline_core::commit::Context;
use spareline_core::{Endpoint, Provider};

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
        Box::new(classify::classify(&input, &self.rules, self.now))
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
