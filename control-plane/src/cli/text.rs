//! Messages as YAML text: on one line for diffs, as a block for exports. What it writes, `yaml` reads back unchanged.

use std::fmt::Write as _;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage as _, Value};

use crate::reflect;

/// A value on one line.
pub(super) fn inline(value: &Value, kind: &Kind) -> String {
    match value {
        Value::Bool(b) => b.to_string(),
        Value::I32(n) => n.to_string(),
        Value::I64(n) => n.to_string(),
        Value::U32(n) => n.to_string(),
        Value::U64(n) => n.to_string(),
        Value::F32(n) => n.to_string(),
        Value::F64(n) => n.to_string(),
        Value::String(text) => quoted(text),
        Value::EnumNumber(n) => {
            kind.as_enum().and_then(|of| reflect::enum_word(of, *n)).unwrap_or_else(|| n.to_string())
        }
        Value::Message(message) if message.descriptor().full_name() == "google.protobuf.Duration" => {
            duration(message)
        }
        Value::Message(message) => {
            let fields: Vec<String> = message
                .fields()
                .map(|(field, value)| format!("{}: {}", field.name(), inline_field(value, &field)))
                .collect();
            if let ([only], "ModelEntry") = (fields.as_slice(), message.descriptor().name()) {
                return only.strip_prefix("model: ").map_or_else(|| format!("{{{only}}}"), str::to_owned);
            }
            format!("{{{}}}", fields.join(", "))
        }
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| inline(item, kind)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let entries: Vec<String> = sorted(map)
                .into_iter()
                .map(|(key, value)| format!("{}: {}", quoted(key), inline(value, kind)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Bytes(_) => "<bytes>".to_owned(),
    }
}

/// A field's value on one line.
pub(super) fn inline_field(value: &Value, field: &FieldDescriptor) -> String {
    let kind = field.kind();
    match kind.as_message() {
        Some(entry) if field.is_map() => inline(value, &entry.map_entry_value_field().kind()),
        _ => inline(value, &kind),
    }
}

/// The message's set fields, one after the other, each line indented by `indent` spaces.
pub(super) fn block(message: &DynamicMessage, indent: usize, out: &mut String) {
    for (field, value) in message.fields() {
        let pad = " ".repeat(indent);
        match value {
            Value::List(items) if items.iter().any(|i| matches!(i, Value::Message(_))) => {
                let _ = writeln!(out, "{pad}{}:", field.name());
                for item in items {
                    let _ = writeln!(out, "{pad}  - {}", inline(item, &field.kind()));
                }
            }
            Value::Message(inner) if inner.descriptor().full_name() != "google.protobuf.Duration" => {
                if inner.fields().next().is_some() {
                    let _ = writeln!(out, "{pad}{}:", field.name());
                    block(inner, indent + 2, out);
                } else {
                    let _ = writeln!(out, "{pad}{}: {{}}", field.name());
                }
            }
            value => {
                let _ = writeln!(out, "{pad}{}: {}", field.name(), inline_field(value, &field));
            }
        }
    }
}

fn duration(message: &DynamicMessage) -> String {
    let number = |name| message.get_field_by_name(name).map(|v| v.into_owned());
    let seconds = number("seconds").and_then(|v| v.as_i64()).unwrap_or_default();
    let nanos = number("nanos").and_then(|v| v.as_i32()).unwrap_or_default();
    spareline_core::duration::text(seconds, nanos)
}

fn sorted(map: &std::collections::HashMap<MapKey, Value>) -> Vec<(&str, &Value)> {
    let mut entries: Vec<_> = map.iter().filter_map(|(key, value)| Some((key.as_str()?, value))).collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

/// Text, in quotes unless no reader of YAML could take it for anything else.
pub(super) fn quoted(text: &str) -> String {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let url = text
        .split_once("://")
        .is_some_and(|(_, rest)| rest.chars().all(|c| plain(c) || c == ':') && !rest.ends_with(':'));
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n" | "nan" | "inf"
    );
    if first && !word && (url || text.chars().all(plain)) {
        text.to_owned()
    } else {
        serde_json::Value::String(text.to_owned()).to_string()
    }
}
