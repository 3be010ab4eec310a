//! Builds the request in the provider's dialect.

use bytes::Bytes;
use http::{HeaderMap, Method};
use std::ops::Range;

use spareline_core::Endpoint;

/// One request of a caller (or of the prober), as it came; made once and used for every attempt.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The method.
    pub method: Method,
    /// What is asked for; `None` for other paths.
    pub endpoint: Option<Endpoint>,
    /// The path as called, beginning with `/v1/`.
    pub path: String,
    /// The query as called; credentials (`key`, `api_key`, `api-key`, `access_token`, `token`) never go up.
    pub query: Option<String>,
    /// The caller's headers as they came; only those on the allowlist go up.
    pub headers: HeaderMap,
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
