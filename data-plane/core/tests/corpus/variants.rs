//! The same answer in another form: what is told apart by structure must survive all of these.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::HeaderValue;
use serde_json::Value;

use crate::case::Case;

/// Keys in another order, blanks in other places, everything escaped that may be.
pub(crate) fn reserialised(case: &Case) -> Option<Case> {
    let value: Value = serde_json::from_str(&case.body).ok()?;
    let mut body = String::new();
    write(&value, &mut body);
    Some(Case { body, ..case.clone() })
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            out.push_str("{ ");
            for (at, (key, value)) in members.iter().rev().enumerate() {
                out.push_str(if at == 0 { "" } else { " ,\n\t" });
                out.push_str(&serde_json::to_string(key).unwrap());
                out.push_str("  : ");
                write(value, out);
            }
            out.push_str(" }\r\n");
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { " " } else { " , " });
                write(item, out);
            }
            out.push_str(" ]");
        }
        Value::String(text) => {
            out.push('"');
            for unit in text.encode_utf16() {
                match u8::try_from(unit) {
                    Ok(byte) if byte.is_ascii_alphanumeric() || byte == b' ' => out.push(char::from(byte)),
                    _ => out.push_str(&format!("\\u{unit:04x}")),
                }
            }
            out.push('"');
        }
        other => out.push_str(&other.to_string()),
    }
}

pub(crate) fn gzipped(case: &Case) -> Option<Case> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(case.body.as_bytes()).unwrap();
    encoded(case, "gzip", encoder.finish().unwrap())
}

pub(crate) fn deflated(case: &Case) -> Option<Case> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(case.body.as_bytes()).unwrap();
    encoded(case, "deflate", encoder.finish().unwrap())
}

fn encoded(case: &Case, encoding: &'static str, bytes: Vec<u8>) -> Option<Case> {
    // A compressed event stream is inflated before it is split.
    if case.stream || case.body.is_empty() {
        return None;
    }
    let mut case = Case { bytes: Some(bytes), ..case.clone() };
    case.headers.insert("content-encoding", HeaderValue::from_static(encoding));
    Some(case)
}

/// Cases whose note or code says that a code decides, with all messages replaced.
pub(crate) fn without_message(case: &Case) -> Option<Case> {
    let rule = case.read(true).rule;
    let code_decides = ["code", "number", "status"].iter().any(|kind| rule.starts_with(kind));
    // These defaults read nothing but the message.
    if case.stream
        || !code_decides
        || rule.ends_with("_denied")
        || rule == "status.denied_for_now"
        || rule.starts_with("status.names_")
        || case.retry_after_s.is_some()
    {
        return None;
    }
    // A number that stands in the message goes with it.
    if case.body.contains("][") {
        return None;
    }
    let mut value: Value = serde_json::from_str(&case.body).ok()?;
    // A status default may lean on the message: only codes count here.
    if !rule.starts_with("status") || !matches!(case.status, 404 | 410) {
        replace(&mut value);
        return Some(Case { body: value.to_string(), ..case.clone() });
    }
    None
}

fn replace(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (key, value) in members.iter_mut() {
                match value {
                    Value::String(text)
                        if matches!(
                            key.as_str(),
                            "message" | "msg" | "Message" | "status_msg" | "error_msg"
                        ) =>
                    {
                        *text = "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich".to_owned();
                    }
                    other => replace(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(replace),
        _ => {}
    }
}
