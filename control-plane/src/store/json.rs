//! Messages as canonical proto JSON in `jsonb`: readable in SQL, and an older binary skips fields it does not know.

use prost_reflect::{DeserializeOptions, DynamicMessage, SerializeOptions};
use serde_json::Value;

use super::{Result, StoreError};
use crate::reflect::{self, Named};

/// A message as JSON, with the proto's own field names.
pub(super) fn to_json<M: Named>(message: &M) -> Result<Value> {
    let corrupt = |e: &dyn std::fmt::Display| StoreError::Corrupt(format!("{} as JSON: {e}", M::NAME));
    let tree = reflect::to_tree(message).map_err(|e| corrupt(&e))?;
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    let mut value =
        tree.serialize_with_options(serde_json::value::Serializer, &options).map_err(|e| corrupt(&e))?;
    strip(&mut value);
    Ok(value)
}

/// The database takes every character but NUL, and what proxies report quotes strangers.
pub(super) fn strip(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('\0') => *text = text.replace('\0', ""),
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Object(map) => map.values_mut().for_each(strip),
        _ => {}
    }
}

/// The message back. Fields this build does not know are skipped.
pub(super) fn from_json<M: Named>(value: Value) -> Result<M> {
    let corrupt = |e: &dyn std::fmt::Display| StoreError::Corrupt(format!("{} from JSON: {e}", M::NAME));
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let described = reflect::descriptor::<M>().map_err(|e| corrupt(&e))?;
    let tree =
        DynamicMessage::deserialize_with_options(described, value, &options).map_err(|e| corrupt(&e))?;
    reflect::from_tree(&tree).map_err(|e| corrupt(&e))
}
