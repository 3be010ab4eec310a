//! From a YAML mapping to a message, led by the message's descriptor.

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use serde_saphyr::Spanned;

use super::{Located, Node, Problems};
use crate::reflect;

/// Keys that are not plain fields.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extra<'a> {
    /// Fields that a file may not set.
    pub(crate) hidden: &'a [&'a str],
    /// Keys that the caller reads.
    pub(crate) own: &'a [&'a str],
}

/// Reads a message; what cannot be read is noted in `problems` and left out.
pub(crate) fn message(
    node: &Located,
    of: &MessageDescriptor,
    path: &str,
    extra: Extra<'_>,
    problems: &mut Problems,
) -> DynamicMessage {
    let mut out = DynamicMessage::new(of.clone());
    problems.place(path, node);
    let entries = match &node.value {
        Node::Map(entries) => entries.as_slice(),
        // A model that needs no more than its name may be written as just that.
        Node::Text(text) if of.full_name() == "spareline.registry.v1.ModelEntry" => {
            out.set_field_by_name("model", Value::String(text.clone()));
            return out;
        }
        Node::Null => return out,
        other => {
            problems.at(node, path, format!("must be a mapping, not {}", other.kind()));
            return out;
        }
    };
    for (key, value) in entries {
        if extra.own.contains(&key.value.as_str()) {
            continue;
        }
        let path = join(path, &key.value);
        let known = of.get_field_by_name(&key.value).filter(|f| !extra.hidden.contains(&f.name()));
        let Some(field) = known else {
            problems.at(key, &path, unknown(key, of, extra));
            continue;
        };
        problems.place(&path, value);
        if let Some(value) = field_value(value, &field, &path, problems)
            && out.try_set_field(&field, value).is_err()
        {
            problems.at(key, &path, "does not fit its field");
        }
    }
    out
}

fn unknown(key: &Spanned<String>, of: &MessageDescriptor, extra: Extra<'_>) -> String {
    if extra.hidden.contains(&key.value.as_str()) {
        return "is set by the control plane, not by a file".to_owned();
    }
    let fields: Vec<String> = of.fields().map(|f| f.name().to_owned()).collect();
    let mut names: Vec<&str> =
        fields.iter().map(String::as_str).filter(|f| !extra.hidden.contains(f)).collect();
    names.extend(extra.own);
    names.sort_unstable();
    format!("unknown field; known are {}", names.join(", "))
}

fn field_value(
    node: &Located,
    field: &FieldDescriptor,
    path: &str,
    problems: &mut Problems,
) -> Option<Value> {
    if matches!(node.value, Node::Null) {
        return None;
    }
    if field.is_map() {
        return map_value(node, field, path, problems);
    }
    if field.is_list() {
        let Node::List(items) = &node.value else {
            problems.at(node, path, format!("must be a list, not {}", node.value.kind()));
            return None;
        };
        let read = |(i, item): (usize, &Located)| {
            let path = format!("{path}[{i}]");
            problems.place(&path, item);
            single(item, &field.kind(), &path, problems)
        };
        return Some(Value::List(items.iter().enumerate().filter_map(read).collect()));
    }
    single(node, &field.kind(), path, problems)
}

fn map_value(node: &Located, field: &FieldDescriptor, path: &str, problems: &mut Problems) -> Option<Value> {
    let Node::Map(entries) = &node.value else {
        problems.at(node, path, format!("must be a mapping, not {}", node.value.kind()));
        return None;
    };
    let kind = field.kind();
    let value_kind = kind.as_message()?.map_entry_value_field().kind();
    let mut out = std::collections::HashMap::new();
    for (key, value) in entries {
        let path = join(path, &key.value);
        problems.place(&path, value);
        if let Some(value) = single(value, &value_kind, &path, problems) {
            out.insert(MapKey::String(key.value.clone()), value);
        }
    }
    Some(Value::Map(out))
}

fn single(node: &Located, kind: &Kind, path: &str, problems: &mut Problems) -> Option<Value> {
    let wanted = match (kind, &node.value) {
        (Kind::Bool, Node::Bool(b)) => return Some(Value::Bool(*b)),
        (Kind::Bool, _) => "must be true or false".to_owned(),
        (Kind::String, Node::Text(text)) => return Some(Value::String(text.clone())),
        (Kind::String, Node::Int(_) | Node::Float(_) | Node::Bool(_)) => {
            "must be text: put it in quotes".to_owned()
        }
        (Kind::String, _) => "must be text".to_owned(),
        (Kind::Double, Node::Float(n)) => return Some(Value::F64(*n)),
        #[expect(clippy::cast_precision_loss, reason = "a multiplier")]
        (Kind::Double, Node::Int(n)) => return Some(Value::F64(*n as f64)),
        (Kind::Double, _) => "must be a number".to_owned(),
        (Kind::Uint32, node) => match int(node).map(u32::try_from) {
            Some(Ok(n)) => return Some(Value::U32(n)),
            _ => format!("must be a whole number from 0 to {}", u32::MAX),
        },
        (Kind::Int32, node) => match int(node).map(i32::try_from) {
            Some(Ok(n)) => return Some(Value::I32(n)),
            _ => format!("must be a whole number from {} to {}", i32::MIN, i32::MAX),
        },
        (Kind::Int64, node) => match int(node).map(i64::try_from) {
            Some(Ok(n)) => return Some(Value::I64(n)),
            _ => "must be a whole number".to_owned(),
        },
        (Kind::Enum(of), Node::Text(word)) if reflect::enum_number(of, word).is_some() => {
            return reflect::enum_number(of, word).map(Value::EnumNumber);
        }
        (Kind::Enum(of), _) => format!("must be one of {}", reflect::enum_words(of).join(", ")),
        (Kind::Message(of), _) if of.full_name() == "google.protobuf.Duration" => match duration(node, of) {
            Some(value) => return Some(value),
            None => "must be a time such as 500ms, 10s, 2m or 1h".to_owned(),
        },
        (Kind::Message(of), _) => {
            return Some(Value::Message(message(node, of, path, Extra::default(), problems)));
        }
        _ => "cannot be written in a file".to_owned(),
    };
    problems.at(node, path, format!("{wanted}, not {}", shown(&node.value)));
    None
}

fn int(node: &Node) -> Option<i128> {
    match node {
        Node::Int(n) => Some(*n),
        _ => None,
    }
}

fn duration(node: &Located, of: &MessageDescriptor) -> Option<Value> {
    let Node::Text(text) = &node.value else { return None };
    let time = crate::duration::parse(text)?;
    let mut out = DynamicMessage::new(of.clone());
    out.try_set_field_by_name("seconds", Value::I64(i64::try_from(time.as_secs()).ok()?)).ok()?;
    out.try_set_field_by_name("nanos", Value::I32(i32::try_from(time.subsec_nanos()).ok()?)).ok()?;
    Some(Value::Message(out))
}

/// A wrong value, shortened: files may hold long texts in wrong places.
fn shown(node: &Node) -> String {
    match node {
        Node::Bool(b) => b.to_string(),
        Node::Int(n) => n.to_string(),
        Node::Float(n) => n.to_string(),
        Node::Text(text) if text.chars().count() <= 40 => format!("`{text}`"),
        other => other.kind().to_owned(),
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
