//! Messages as canonical proto JSON in `jsonb`: readable in SQL, and an older binary skips fields it does not know.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, ReflectMessage, SerializeOptions};
use serde_json::Value;
use spareline_proto::registry::v1 as pb;

use super::{Result, StoreError};

/// A message this module can write: it knows its full name.
pub(super) trait Named: prost::Message + Default {
    const NAME: &'static str;
}

impl Named for pb::Channel {
    const NAME: &'static str = "spareline.registry.v1.Channel";
}
impl Named for pb::Policy {
    const NAME: &'static str = "spareline.registry.v1.Policy";
}
impl Named for spareline_proto::admin::v1::Stage {
    const NAME: &'static str = "spareline.admin.v1.Stage";
}
impl Named for pb::Evidence {
    const NAME: &'static str = "spareline.registry.v1.Evidence";
}

static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(spareline_proto::DESCRIPTORS).ok());

fn descriptor<M: Named>() -> Result<prost_reflect::MessageDescriptor> {
    POOL.as_ref()
        .and_then(|pool| pool.get_message_by_name(M::NAME))
        .ok_or_else(|| StoreError::Corrupt(format!("no descriptor of {}", M::NAME)))
}

/// A message as JSON, with the proto's own field names.
pub(super) fn to_json<M: Named>(message: &M) -> Result<Value> {
    let mut dynamic = DynamicMessage::new(descriptor::<M>()?);
    let corrupt = |e: &dyn std::fmt::Display| StoreError::Corrupt(format!("{} as JSON: {e}", M::NAME));
    dynamic.transcode_from(message).map_err(|e| corrupt(&e))?;
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    let mut value =
        dynamic.serialize_with_options(serde_json::value::Serializer, &options).map_err(|e| corrupt(&e))?;
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
    let dynamic = DynamicMessage::deserialize_with_options(descriptor::<M>()?, value, &options)
        .map_err(|e| corrupt(&e))?;
    debug_assert_eq!(dynamic.descriptor().full_name(), M::NAME);
    dynamic.transcode_to().map_err(|e| corrupt(&e))
}
