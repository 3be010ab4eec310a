//! From a request's head and body to what is to be done: which model, which endpoint, which way.
//!
//! Reads only what routing needs; the body itself goes up as it came.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header, request::Parts};
use spareline_core::{
    Endpoint,
    policy::{RequestPolicy, StreamCommit},
    splice,
};
use spareline_upstream::{CommitMode, Outgoing, request::ModelSpan};

use super::error::{ApiError, Code};
use crate::plan::{Pin, Plan};

const PIN: HeaderName = HeaderName::from_static("x-spareline-channel");
const AFFINITY: HeaderName = HeaderName::from_static("x-spareline-affinity");
const STREAM: HeaderName = HeaderName::from_static("x-spareline-stream");

/// What the body says.
struct Said {
    model: Option<(Arc<str>, ModelSpan)>,
    stream: bool,
    stateful: bool,
    affinity: Option<String>,
}

/// A request for a model's endpoint, or for another path that names a model.
pub(crate) fn model_request(
    parts: &mut Parts,
    body: Bytes,
    endpoint: Option<Endpoint>,
    path: &str,
    group: Arc<str>,
    policy: &RequestPolicy,
) -> Result<Plan, ApiError> {
    if endpoint.is_none() && !policy.passthrough {
        return Err(ApiError::new(Code::EndpointNotAvailable, format!("no such path: /v1/{path}")));
    }
    let said = read(&mut parts.headers, &body, policy)?;
    let default = endpoint.and_then(|e| policy.default_models.get(&e));
    let (model, span) = match (said.model, default) {
        (Some(named), _) => named,
        (None, Some(default)) => (default.clone(), ModelSpan::Json(0..0)),
        (None, None) => {
            return Err(ApiError::new(Code::InvalidRequest, "you must name a `model`").param("model"));
        }
    };
    let affinity = affinity(&parts.headers, policy).or(said.affinity);
    let pin = match policy.allow_pinning.then(|| parts.headers.get(&PIN)).flatten() {
        Some(name) => match name.to_str() {
            Ok(name) => Some(Pin { channel: name.into(), switch: policy.pinned_switch }),
            Err(_) => return Err(ApiError::new(Code::InvalidRequest, "x-spareline-channel is not text")),
        },
        None => None,
    };
    let commit = match (parts.headers.get(&STREAM).map(HeaderValue::as_bytes), policy.stream_commit) {
        (Some(b"assured"), _) | (_, StreamCommit::Assured) => CommitMode::Assured,
        (_, StreamCommit::Headers) => CommitMode::Headers,
        (_, StreamCommit::FirstContent) => CommitMode::FirstContent,
    };
    let side_effects =
        matches!(endpoint, Some(Endpoint::Images | Endpoint::Audio)) || path.starts_with("videos");
    Ok(Plan {
        group,
        model,
        endpoint,
        affinity,
        pin,
        commit,
        stateful: said.stateful,
        side_effects,
        outgoing: outgoing(parts, body, endpoint, path, Some(span), said.stream),
    })
}

/// A request about an object that one account stores.
pub(crate) fn stored_request(parts: &mut Parts, body: Bytes, path: &str, group: Arc<str>) -> Plan {
    let span = match splice::scan(&body, None) {
        Ok(fields) => fields.model.map(|m| (Arc::from(&*m.name), ModelSpan::Json(m.span))),
        Err(_) => None,
    };
    parts.headers.remove(header::CONTENT_ENCODING);
    let (model, span) = span.map_or((Arc::from(""), None), |(model, span)| (model, Some(span)));
    Plan {
        group,
        model,
        endpoint: None,
        affinity: None,
        pin: None,
        commit: CommitMode::FirstContent,
        stateful: true,
        side_effects: true,
        outgoing: outgoing(parts, body, None, path, span, false),
    }
}

/// Takes the head's headers with it.
fn outgoing(
    parts: &mut Parts,
    body: Bytes,
    endpoint: Option<Endpoint>,
    path: &str,
    model: Option<ModelSpan>,
    stream: bool,
) -> Outgoing {
    parts.headers.remove(header::CONTENT_ENCODING);
    Outgoing {
        method: parts.method.clone(),
        endpoint,
        path: format!("/v1/{path}"),
        query: parts.uri.query().map(str::to_owned),
        headers: std::mem::take(&mut parts.headers),
        added: Vec::new(),
        body,
        model,
        stream,
    }
}

fn read(headers: &mut HeaderMap, body: &[u8], policy: &RequestPolicy) -> Result<Said, ApiError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("multipart/form-data") {
        let Some(boundary) = splice::multipart_boundary(content_type) else {
            return Err(ApiError::new(Code::InvalidRequest, "the content-type names no multipart boundary"));
        };
        let model = splice::multipart_model(body, &boundary).map_err(invalid)?;
        let model = model.map(|m| (Arc::from(&*m.name), ModelSpan::Form(m.span)));
        return Ok(Said { model, stream: false, stateful: false, affinity: None });
    }
    if body.is_empty() {
        return Err(ApiError::new(Code::InvalidRequest, "the request has no body"));
    }
    let fields = splice::scan(body, policy.affinity.body_field.as_deref()).map_err(invalid)?;
    let said = Said {
        model: fields.model.map(|m| (Arc::from(&*m.name), ModelSpan::Json(m.span))),
        stream: fields.stream,
        stateful: fields.stateful,
        affinity: fields.affinity.map(|a| a.into_owned()),
    };
    if !kind.eq_ignore_ascii_case("application/json") {
        // It is JSON, whatever the client's default header says.
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(said)
}

fn invalid(error: splice::SpliceError) -> ApiError {
    let about_model =
        matches!(error, splice::SpliceError::DuplicateModel | splice::SpliceError::ModelNotAString);
    let error = ApiError::new(Code::InvalidRequest, error.to_string());
    if about_model { error.param("model") } else { error }
}

fn affinity(headers: &HeaderMap, policy: &RequestPolicy) -> Option<String> {
    let configured = policy.affinity.header.as_deref().and_then(|name| headers.get(name));
    let value = headers.get(&AFFINITY).or(configured)?;
    value.to_str().ok().filter(|v| !v.is_empty()).map(str::to_owned)
}

/// Whether a method may carry a body worth reading.
pub(crate) fn has_body(method: &Method) -> bool {
    method != Method::GET && method != Method::HEAD
}
