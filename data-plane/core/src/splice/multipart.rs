//! The `model` field of a multipart form. The body is only read: parts are found by their boundary, nothing is copied.

use std::borrow::Cow;

use memchr::memmem;

use super::{Model, SpliceError};

/// The boundary named by a `content-type`, where it is multipart/form-data.
pub fn multipart_boundary(content_type: &str) -> Option<String> {
    let mut parts = content_type.split(';');
    if !parts.next()?.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = parts.find_map(|part| {
        let (name, value) = part.trim().split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim())
    })?;
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    (!value.is_empty() && value.len() <= 70).then(|| value.to_owned())
}

/// Finds the form field `model`; its span is the bare value. `Ok(None)`: there is none.
///
/// # Errors
/// The body has not the shape of multipart, or names `model` twice.
pub fn multipart_model<'a>(body: &'a [u8], boundary: &str) -> Result<Option<Model<'a>>, SpliceError> {
    let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
    let finder = memmem::Finder::new(&delimiter);
    let mut at = if body.starts_with(&delimiter[2..]) {
        delimiter.len() - 2
    } else {
        finder.find(body).ok_or(SpliceError::NotMultipart("no boundary"))? + delimiter.len()
    };
    let mut model = None;
    loop {
        let rest = body.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(model);
        }
        // Blanks may follow a boundary on its line.
        let line = memmem::find(rest, b"\r\n").ok_or(SpliceError::NotMultipart("cut after a boundary"))?;
        let head_at = at + line + 2;
        let length =
            finder.find(&body[head_at - 2..]).ok_or(SpliceError::NotMultipart("no closing boundary"))?;
        let end = head_at - 2 + length;
        let part = body.get(head_at..end).unwrap_or_default();
        let (head, value_at) = match memmem::find(part, b"\r\n\r\n") {
            Some(blank) => (&part[..blank], head_at + blank + 4),
            None => return Err(SpliceError::NotMultipart("a part without a blank line")),
        };
        if is_model(head) {
            if model.is_some() {
                return Err(SpliceError::DuplicateModel);
            }
            let name = std::str::from_utf8(&body[value_at..end]).map_err(|_| SpliceError::ModelNotAString)?;
            if name.is_empty() {
                return Err(SpliceError::ModelNotAString);
            }
            model = Some(Model { name: Cow::Borrowed(name), span: value_at..end });
        }
        at = end + delimiter.len();
    }
}

/// Whether a part's head says `form-data; name="model"` and is no file.
fn is_model(head: &[u8]) -> bool {
    let Ok(head) = std::str::from_utf8(head) else { return false };
    head.split("\r\n").any(|line| {
        let Some((name, value)) = line.split_once(':') else { return false };
        if !name.trim().eq_ignore_ascii_case("content-disposition") {
            return false;
        }
        let mut named = false;
        for parameter in value.split(';').skip(1) {
            let Some((key, value)) = parameter.trim().split_once('=') else { continue };
            match key.trim().to_ascii_lowercase().as_str() {
                "name" => named = value.trim().trim_matches('"') == "model",
                "filename" | "filename*" => return false,
                _ => {}
            }
        }
        named
    })
}
