//! Builds the request in the provider's dialect: where to, with which headers, and the body with the upstream's model.
//!
//! Everything is built anew for every attempt; nothing of one channel can be left over in the next one's request.

mod build;
#[cfg(test)]
mod tests;

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use spareline_core::Endpoint;

pub(crate) use build::{Built, build};

/// One request of a caller (or of the prober), as it came; made once and used for every attempt.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The method.
    pub method: Method,
    /// What is asked for; `None` for other paths.
    pub endpoint: Option<Endpoint>,
    /// The path as called, beginning with `/v1/`.
    pub path: String,
    /// The query as called; credentials in it never go up.
    pub query: Option<String>,
    /// The caller's headers as they came; only those on the allowlist go up.
    pub headers: HeaderMap,
    /// Headers of ours, in place of the caller's of the same name.
    pub added: Vec<(HeaderName, HeaderValue)>,
    /// The whole body, decoded (never with a content encoding).
    pub body: Bytes,
    /// Where the model's value lies in the body.
    pub model: Option<ModelSpan>,
    /// The caller asked for a stream.
    pub stream: bool,
}

/// Where the model's value lies in a body, to be replaced by the upstream's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSpan {
    /// A JSON string with its quotes; empty range: the body has none, insert one after the opening brace.
    Json(Range<usize>),
    /// The bare value of a form field.
    Form(Range<usize>),
}

impl Outgoing {
    /// Without body, model and headers.
    pub fn new(method: Method, endpoint: Option<Endpoint>, path: impl Into<String>) -> Self {
        Self {
            method,
            endpoint,
            path: path.into(),
            query: None,
            headers: HeaderMap::new(),
            added: Vec::new(),
            body: Bytes::new(),
            model: None,
            stream: false,
        }
    }

    /// The model as the body names it.
    pub fn model_name(&self) -> Option<String> {
        match self.model.as_ref()? {
            ModelSpan::Json(span) => serde_json::from_slice(self.body.get(span.clone())?).ok(),
            ModelSpan::Form(span) => {
                std::str::from_utf8(self.body.get(span.clone())?).ok().map(str::to_owned)
            }
        }
    }
}
