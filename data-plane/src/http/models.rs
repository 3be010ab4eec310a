//! `GET /v1/models`: what the caller's group may ask for, whatever its status; the same on every sidecar.
//!
//! The objects have the fields of OpenAI's and of Anthropic's list, so that either SDK reads them.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use spareline_core::view::View;
use std::time::Duration;

use super::error::{ApiError, Code};
use crate::log::quote;

/// The list; `?usable=true` keeps those that somebody can serve now.
pub(crate) fn list(view: &View, group: &str, query: Option<&str>, now: Duration) -> Response<Bytes> {
    let only_usable = query.is_some_and(|q| q.split('&').any(|pair| pair == "usable=true"));
    let mut json = String::from("{\"object\":\"list\",\"data\":[");
    let mut ends: Option<(std::sync::Arc<str>, std::sync::Arc<str>)> = None;
    for model in view.table().models(group) {
        let usable = view.model_usable(group, &model, now);
        if only_usable && !usable {
            continue;
        }
        if ends.is_some() {
            json.push(',');
        }
        object(&mut json, &model, usable);
        ends = Some((ends.map_or_else(|| model.clone(), |(first, _)| first), model));
    }
    json.push_str("],\"has_more\":false,\"first_id\":");
    match &ends {
        Some((first, last)) => {
            quote(&mut json, first);
            json.push_str(",\"last_id\":");
            quote(&mut json, last);
        }
        None => json.push_str("null,\"last_id\":null"),
    }
    json.push('}');
    respond(json)
}

/// One of them; its id may have slashes.
pub(crate) fn one(view: &View, group: &str, id: &str, now: Duration) -> Result<Response<Bytes>, ApiError> {
    if view.table().entry(group, id).is_none() {
        return Err(
            ApiError::new(Code::ModelNotFound, format!("no model `{id}` for this caller")).param("model")
        );
    }
    let mut json = String::new();
    object(&mut json, id, view.model_usable(group, id, now));
    Ok(respond(json))
}

fn object(json: &mut String, id: &str, usable: bool) {
    json.push_str("{\"id\":");
    quote(json, id);
    json.push_str(
        ",\"object\":\"model\",\"type\":\"model\",\"created\":0,\"created_at\":\"1970-01-01T00:00:00Z\"",
    );
    json.push_str(",\"owned_by\":\"spareline\",\"display_name\":");
    quote(json, id);
    json.push_str(",\"spareline\":{\"usable\":");
    json.push_str(if usable { "true}}" } else { "false}}" });
}

fn respond(json: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(json));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
