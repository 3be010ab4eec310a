//! One request from its parts.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::Request;
use spareline_core::splice::{self, Edit};
use spareline_core::{Endpoint, Provider};

use super::{ModelSpan, Outgoing};
use crate::clients::{Line, Place};
use crate::headers;

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const DEFAULT_ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");
const ORGANIZATION: HeaderName = HeaderName::from_static("openai-organization");
const PROJECT: HeaderName = HeaderName::from_static("openai-project");
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const ANY: HeaderValue = HeaderValue::from_static("*/*");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A request, and whether it asks for usage on our behalf.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) method: Method,
    pub(crate) place: Arc<Place>,
    pub(crate) headers: HeaderMap,
    /// `None`: not even an empty one.
    pub(crate) body: Option<Bytes>,
    pub(crate) usage_added: bool,
}

impl From<Built> for Request {
    fn from(built: Built) -> Self {
        let mut request = Self::new(built.method, built.place.url.clone());
        *request.headers_mut() = built.headers;
        *request.body_mut() = built.body.map(Into::into);
        request
    }
}

impl Built {
    /// As it goes to a connection: its URI in origin form; and the place that this leads to.
    pub(crate) fn in_origin_form(self) -> (Arc<Place>, http::Request<Bytes>) {
        let mut request = http::Request::new(self.body.unwrap_or_default());
        *request.method_mut() = self.method;
        *request.uri_mut() = self.place.origin.clone();
        *request.headers_mut() = self.headers;
        // As the client library does.
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.place.host.clone());
        headers.entry(header::ACCEPT).or_insert(ANY);
        (self.place, request)
    }
}

/// Our own fault: what we were given makes no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BuildError {
    #[error("the path makes no URL below the base")]
    Path,
    #[error("a credential or option holds what no header can")]
    Header,
}

pub(crate) fn build(
    line: &Line,
    outgoing: &Outgoing,
    secret: Option<&str>,
    upstream_model: Option<&str>,
    request_usage: bool,
) -> Result<Built, BuildError> {
    let azure = line.target().provider == Provider::AzureOpenAi;
    let asked = if azure && upstream_model.is_none() { outgoing.model_name() } else { None };
    let deployment = upstream_model.or(asked.as_deref());
    let place = line.place(&outgoing.path, outgoing.query.as_deref(), deployment).ok_or(BuildError::Path)?;
    let headers = build_headers(line, outgoing, secret)?;
    let (body, usage_added) = build_body(line, outgoing, upstream_model, request_usage);
    let method = outgoing.method.clone();
    let wanted = !body.is_empty() || !matches!(method, Method::GET | Method::HEAD | Method::DELETE);
    Ok(Built { method, place, headers, body: wanted.then_some(body), usage_added })
}

fn build_headers(line: &Line, outgoing: &Outgoing, secret: Option<&str>) -> Result<HeaderMap, BuildError> {
    let target = line.target();
    let mut headers = HeaderMap::with_capacity(outgoing.headers.len() + 4);
    headers::to_upstream(&outgoing.headers, &mut headers);
    for (name, value) in &outgoing.added {
        headers.insert(name, value.clone());
    }
    if matches!(outgoing.model, Some(ModelSpan::Json(_)))
        && !headers.get(header::CONTENT_TYPE).is_some_and(is_json)
    {
        headers.insert(header::CONTENT_TYPE, JSON);
    }
    headers.insert(header::ACCEPT_ENCODING, IDENTITY);
    if target.provider == Provider::Anthropic && !headers.contains_key(ANTHROPIC_VERSION) {
        headers.insert(ANTHROPIC_VERSION, DEFAULT_ANTHROPIC_VERSION);
    }
    let text = |text: &str| HeaderValue::from_str(text).map_err(|_| BuildError::Header);
    if let Some(organization) = &target.organization {
        headers.insert(ORGANIZATION, text(organization)?);
    }
    if let Some(project) = &target.project {
        headers.insert(PROJECT, text(project)?);
    }
    for (name, value) in target.headers.iter().filter(|(name, _)| !headers::is_reserved(name)) {
        headers.insert(name, value.clone());
    }
    if let Some(secret) = secret {
        let (name, mut value) = match target.provider {
            Provider::Anthropic => (X_API_KEY, text(secret)?),
            Provider::AzureOpenAi => (API_KEY, text(secret)?),
            Provider::OpenAi | Provider::OpenAiCompatible => {
                (header::AUTHORIZATION, text(&["Bearer ", secret].concat())?)
            }
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn build_body(line: &Line, outgoing: &Outgoing, model: Option<&str>, request_usage: bool) -> (Bytes, bool) {
    let mut edits = Vec::new();
    if let (Some(place), Some(model)) = (&outgoing.model, model) {
        match place {
            ModelSpan::Json(span) if span.is_empty() => {
                edits.extend(Edit::insert_model(&outgoing.body, model))
            }
            ModelSpan::Json(span) => edits.push(Edit::json_model(span.clone(), model)),
            ModelSpan::Form(span) => edits.push(Edit::form_model(span.clone(), model)),
        }
    }
    let mut usage_added = false;
    let wanted = request_usage
        && outgoing.stream
        && line.target().provider != Provider::Anthropic
        && matches!(outgoing.endpoint, Some(Endpoint::ChatCompletions | Endpoint::Completions));
    if wanted
        && let Ok(fields) = splice::scan(&outgoing.body, None)
        && let Some(edit) = Edit::include_usage(&outgoing.body, &fields)
    {
        usage_added = true;
        edits.push(edit);
    }
    (splice::apply(&outgoing.body, &mut edits), usage_added)
}

fn is_json(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("json"))
}
