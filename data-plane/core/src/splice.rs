//! Reads the few top-level fields of a request body that the proxy decides by, and replaces the `model` in place.
//!
//! The body is parsed once, borrowed, and never re-serialised: every byte that is not replaced goes up as it came.

mod json;
mod multipart;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

pub use multipart::{multipart_boundary, multipart_model};

/// What a request body says, as far as routing cares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// The model asked for.
    pub model: Option<Model<'a>>,
    /// `stream` is `true`.
    pub stream: bool,
    /// `stream_options.include_usage`, where it is a boolean.
    pub include_usage: Option<bool>,
    /// Where the value of `stream_options` lies.
    pub stream_options: Option<Range<usize>>,
    /// Refers to an object the provider stores: `previous_response_id`, `conversation` (not null) or `background: true`.
    pub stateful: bool,
    /// The value of the affinity field that was asked for, where it is a string.
    pub affinity: Option<Cow<'a, str>>,
    /// The top-level value is an object that has no field at all.
    pub empty: bool,
}

/// A `model` value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model<'a> {
    /// The name, escapes resolved.
    pub name: Cow<'a, str>,
    /// Where its value (in JSON with the quotes) lies in the body.
    pub span: Range<usize>,
}

/// Why a body cannot be routed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    /// Not JSON, or cut, or followed by something else.
    #[error("the body is not valid JSON: {0}")]
    NotJson(String),
    /// JSON, but not an object.
    #[error("the body must be a JSON object")]
    NotAnObject,
    /// `model` more than once.
    #[error("the body names `model` more than once")]
    DuplicateModel,
    /// `model` is not a string, or empty.
    #[error("`model` must be a non-empty string")]
    ModelNotAString,
    /// Not a multipart body with that boundary.
    #[error("the body is not valid multipart/form-data: {0}")]
    NotMultipart(&'static str),
}

/// One replacement: the text that stands in for a range of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced; empty to insert.
    pub range: Range<usize>,
    /// By what.
    pub text: Vec<u8>,
}

/// Reads a JSON body. `affinity_field` names a top-level field whose string value is wanted too.
///
/// A missing `model` is not an error here: some endpoints have a default.
///
/// # Errors
/// See [`SpliceError`].
pub fn scan<'a>(body: &'a [u8], affinity_field: Option<&str>) -> Result<Fields<'a>, SpliceError> {
    json::scan(body, affinity_field)
}

/// The body with the edits made; without any, the same bytes, uncopied. Edits must not overlap.
pub fn apply(body: &Bytes, edits: &mut [Edit]) -> Bytes {
    if edits.is_empty() {
        return body.clone();
    }
    edits.sort_by_key(|edit| edit.range.start);
    let grown = edits.iter().map(|edit| edit.text.len()).sum::<usize>();
    let mut out = Vec::with_capacity(body.len() + grown);
    let mut from = 0;
    for edit in edits {
        out.extend_from_slice(body.get(from..edit.range.start).unwrap_or_default());
        out.extend_from_slice(&edit.text);
        from = edit.range.end;
    }
    out.extend_from_slice(body.get(from..).unwrap_or_default());
    Bytes::from(out)
}

// === impl Edit ===

impl Edit {
    /// Another model name in a JSON body, escaped.
    pub fn json_model(span: Range<usize>, name: &str) -> Self {
        Self { range: span, text: json::string(name) }
    }

    /// Another model name in a multipart body, as it is.
    pub fn form_model(span: Range<usize>, name: &str) -> Self {
        Self { range: span, text: name.as_bytes().to_vec() }
    }

    /// A `model` where a JSON object has none; `None` where the body is no object.
    pub fn insert_model(body: &[u8], name: &str) -> Option<Self> {
        let mut text = b"\"model\":".to_vec();
        text.extend(json::string(name));
        json::insert_first(body, text)
    }

    /// `stream_options.include_usage: true`, keeping the other options; `None` where the caller said either way, or
    /// where the options are not what they should be.
    pub fn include_usage(body: &[u8], fields: &Fields<'_>) -> Option<Self> {
        const FLAG: &[u8] = b"\"include_usage\":true";
        if fields.include_usage.is_some() {
            return None;
        }
        let Some(span) = fields.stream_options.clone() else {
            return json::insert_first(body, [b"\"stream_options\":{", FLAG, b"}"].concat());
        };
        let value = body.get(span.clone())?;
        if value == b"null" {
            return Some(Self { range: span, text: [b"{", FLAG, b"}"].concat() });
        }
        let mut edit = json::insert_first(value, FLAG.to_vec())?;
        edit.range = edit.range.start + span.start..edit.range.end + span.start;
        Some(edit)
    }
}
