//! Messages as trees of named fields: what update masks, diffs and YAML need, and generated structs do not give.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, EnumDescriptor, MessageDescriptor};

/// A message that exists in the descriptor set under a known name.
pub trait Named: Message + Default {
    /// Its full name.
    const NAME: &'static str;
}

impl Named for spareline_proto::registry::v1::Channel {
    const NAME: &'static str = "spareline.registry.v1.Channel";
}

impl Named for spareline_proto::registry::v1::Policy {
    const NAME: &'static str = "spareline.registry.v1.Policy";
}

impl Named for spareline_proto::registry::v1::Evidence {
    const NAME: &'static str = "spareline.registry.v1.Evidence";
}

impl Named for spareline_proto::admin::v1::Rollout {
    const NAME: &'static str = "spareline.admin.v1.Rollout";
}

impl Named for spareline_proto::admin::v1::Stage {
    const NAME: &'static str = "spareline.admin.v1.Stage";
}

static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(spareline_proto::DESCRIPTORS).ok());

/// A name or a shape that the descriptor set of this build does not have: a fault of ours.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not in this build's descriptor set")]
pub struct NotDescribed(&'static str);

/// What is known of a message's fields.
///
/// # Errors
/// Where this build is broken.
pub fn descriptor<M: Named>() -> Result<MessageDescriptor, NotDescribed> {
    POOL.as_ref().and_then(|pool| pool.get_message_by_name(M::NAME)).ok_or(NotDescribed(M::NAME))
}

/// The message as a tree of fields.
///
/// # Errors
/// Where this build is broken.
pub fn to_tree<M: Named>(message: &M) -> Result<DynamicMessage, NotDescribed> {
    DynamicMessage::decode(descriptor::<M>()?, message.encode_to_vec().as_slice())
        .map_err(|_| NotDescribed(M::NAME))
}

/// And back.
///
/// # Errors
/// Where this build is broken.
pub fn from_tree<M: Named>(tree: &DynamicMessage) -> Result<M, NotDescribed> {
    tree.transcode_to().map_err(|_| NotDescribed(M::NAME))
}

/// The short word for an enum's value: `ENDPOINT_CHAT_COMPLETIONS` is `chat_completions`.
pub fn enum_word(of: &EnumDescriptor, number: i32) -> Option<String> {
    let value = of.get_value(number)?;
    Some(value.name().strip_prefix(&prefix(of)).unwrap_or(value.name()).to_ascii_lowercase())
}

/// The value for a short word (or the long name).
pub fn enum_number(of: &EnumDescriptor, word: &str) -> Option<i32> {
    let wanted = word.to_ascii_uppercase();
    let long = format!("{}{wanted}", prefix(of));
    of.values().find(|v| v.number() != 0 && (v.name() == wanted || v.name() == long)).map(|v| v.number())
}

/// All short words of an enum but the unset one.
pub fn enum_words(of: &EnumDescriptor) -> Vec<String> {
    of.values().filter(|v| v.number() != 0).filter_map(|v| enum_word(of, v.number())).collect()
}

/// `LayerOrder` puts `LAYER_ORDER_` before its values.
fn prefix(of: &EnumDescriptor) -> String {
    let mut out = String::new();
    for c in of.name().chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_uppercase());
    }
    out.push('_');
    out
}
