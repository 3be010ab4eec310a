//! Channels: spec, history, abilities.

use spareline_proto::registry::v1 as pb;

use super::{Result, Tx};

/// How a channel is named: by id or by name (which is never a number).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChannelKey {
    /// By id.
    Id(i64),
    /// By name.
    Name(String),
}

impl From<&str> for ChannelKey {
    fn from(text: &str) -> ChannelKey {
        text.parse().map_or_else(|_| ChannelKey::Name(text.to_owned()), ChannelKey::Id)
    }
}

impl std::fmt::Display for ChannelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChannelKey::Id(id) => write!(f, "channel {id}"),
            ChannelKey::Name(name) => write!(f, "channel {name:?}"),
        }
    }
}

impl Tx {
    /// The live channel as stored, with `channel_id`, `credential_ids`, `spec_revision` and `etag`.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn channel(&mut self, key: &ChannelKey) -> Result<pb::Channel> {
        let _ = key;
        todo!()
    }

    /// Creates a channel from a validated spec, with the credentials it lists and then one new for each secret.
    /// `channel_id`, `spec_revision` and `etag` of `spec` are ignored.
    ///
    /// # Errors
    /// `AlreadyExists` for the name; `Invalid` for listed credentials that are unknown, retired, or of another provider or
    /// host.
    pub async fn create_channel(&mut self, spec: pb::Channel, secrets: &[String]) -> Result<pb::Channel> {
        let _ = (spec, secrets);
        todo!()
    }

    /// Replaces a live channel's spec with a validated one, at once. `next.channel_id` says which; a non-empty
    /// `next.etag` must match. Credentials no longer listed stay live where other channels list them, else are retired.
    /// A change of provider, base_url, endpoints or options clears the automatic statuses beneath the channel and raises
    /// their fences; of an upstream_model, those of that ability. The same spec again changes nothing.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`, `AlreadyExists` for a new name, `Invalid` as at creation.
    pub async fn update_channel(&mut self, next: pb::Channel) -> Result<pb::Channel> {
        let _ = next;
        todo!()
    }

    /// Removes a channel; its credentials that no other channel lists are retired. Its name is free again.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` when `etag` is not empty and does not match.
    pub async fn delete_channel(&mut self, key: &ChannelKey, etag: &str) -> Result<()> {
        let _ = (key, etag);
        todo!()
    }
}
