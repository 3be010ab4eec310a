//! Credentials: immutable, shared between channels of one provider and host.

use spareline_core::CredentialId;
use spareline_proto::registry::v1 as pb;

use super::{ChannelKey, Result, Store, Tx};

/// A credential just stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewCredential {
    /// Without its secret.
    pub credential: pb::Credential,
    /// The channels whose lists changed.
    pub channels: Vec<i64>,
}

impl Tx {
    /// Adds a credential at the end of a channel's list.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists` when the channel lists a credential with this secret.
    pub async fn add_credential(&mut self, channel: &ChannelKey, secret: &str) -> Result<NewCredential> {
        let _ = (channel, secret);
        todo!()
    }

    /// Stores a new credential in the place of those it replaces, in every channel that lists one of them, and retires
    /// these. Empty `replaces`: the only live one. `detached`: store it, list and replace nothing.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when `replaces` names a credential the channel does not list; `Precondition` when it is empty
    /// and the channel has none or several.
    pub async fn rotate_credential(
        &mut self,
        channel: &ChannelKey,
        secret: &str,
        replaces: &[i64],
        detached: bool,
    ) -> Result<NewCredential> {
        let _ = (channel, secret, replaces, detached);
        todo!()
    }

    /// Takes a credential out of every channel for good and wipes its secret. A channel that loses its only one is
    /// disabled in the operator's name: it must not go on without a key.
    ///
    /// # Errors
    /// `NotFound` for ids never known or retired before.
    pub async fn retire_credential(&mut self, credential: CredentialId, comment: &str) -> Result<()> {
        let _ = (credential, comment);
        todo!()
    }
}

impl Store {
    /// For each secret the id of the live credential it equals, zero if none.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn equal_credentials(&self, secrets: &[String]) -> Result<Vec<i64>> {
        let _ = secrets;
        todo!()
    }
}
