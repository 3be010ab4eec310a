//! Credentials: immutable, shared between channels of one provider and host.

use serde_json::{Value, json};
use spareline_core::convert::Violation;
use spareline_core::{ChannelId, CredentialId, Subject};
use spareline_proto::registry::v1 as pb;

use super::events::Item;
use super::{ChannelKey, Result, Store, StoreError, Tx, secrets};

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
        let old = self.channel(channel).await?;
        self.check_channel_free(old.channel_id, &old.name).await?;
        secrets::check("secret", secret)?;
        let hash = self.key.secret_hash(secret)?;
        let equal: Option<i64> = sqlx::query_scalar(
            "SELECT credential_id FROM credentials WHERE secret_hash = $1 AND retired_revision IS NULL \
             AND credential_id = ANY($2) LIMIT 1",
        )
        .bind(hash)
        .bind(&old.credential_ids)
        .fetch_optional(self.conn())
        .await?;
        if let Some(equal) = equal {
            return Err(StoreError::AlreadyExists(format!(
                "a credential with this secret (credential {equal} of channel {:?})",
                old.name
            )));
        }
        let credential = self.insert_credential("secret", secret).await?;
        let mut next = old.clone();
        next.credential_ids.push(credential.credential_id);
        let id = credential.credential_id;
        let detail = json!({ "fingerprint": credential.fingerprint });
        self.event("credential.added", Item::Credential(id), vec![old.channel_id], detail);
        self.replace_spec(&old, next, json!({ "credential_added": id })).await?;
        Ok(NewCredential { credential, channels: vec![old.channel_id] })
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
        let named = self.channel(channel).await?;
        secrets::check("secret", secret)?;
        if detached {
            let credential = self.insert_credential("secret", secret).await?;
            let detail = json!({ "fingerprint": credential.fingerprint, "detached": true });
            self.event(
                "credential.added",
                Item::Credential(credential.credential_id),
                vec![named.channel_id],
                detail,
            );
            return Ok(NewCredential { credential, channels: Vec::new() });
        }
        let replaced = replaced(&named, replaces)?;
        let credential = self.insert_credential("secret", secret).await?;
        let new = credential.credential_id;
        let channels = self.channels_of(&replaced).await?;
        let detail = json!({ "fingerprint": credential.fingerprint, "replaces": replaced });
        self.event("credential.rotated", Item::Credential(new), channels.clone(), detail);
        for id in &channels {
            let old = self.channel(&ChannelKey::Id(*id)).await?;
            let mut next = old.clone();
            next.credential_ids = renewed(&old.credential_ids, &replaced, Some(new));
            self.replace_spec(&old, next, json!({ "credential_rotated": new })).await?;
        }
        for id in &replaced {
            self.wipe(*id, channels.clone(), json!({ "replaced_by": new })).await?;
        }
        self.rebase_candidates(&replaced, Some(new)).await?;
        Ok(NewCredential { credential, channels })
    }

    /// Takes a credential out of every channel for good and wipes its secret. A channel that loses its only one is
    /// disabled in the operator's name: it must not go on without a key.
    ///
    /// # Errors
    /// `NotFound` for ids never known or retired before.
    pub async fn retire_credential(&mut self, credential: CredentialId, comment: &str) -> Result<()> {
        self.check_subject(&Subject::Credential(credential)).await?;
        let channels = self.channels_of(&[credential.0]).await?;
        for id in &channels {
            let old = self.channel(&ChannelKey::Id(*id)).await?;
            let mut next = old.clone();
            next.credential_ids = renewed(&old.credential_ids, &[credential.0], None);
            let bare = next.credential_ids.is_empty();
            self.replace_spec(&old, next, json!({ "credential_retired": credential.0 })).await?;
            if bare {
                self.disable(&Subject::Channel(ChannelId(*id)), "its last credential was retired").await?;
            }
        }
        self.wipe(credential.0, channels, json!({ "comment": comment })).await?;
        self.rebase_candidates(&[credential.0], None).await
    }

    /// Stores a secret as a new credential.
    pub(super) async fn insert_credential(&mut self, field: &str, secret: &str) -> Result<pb::Credential> {
        secrets::check(field, secret)?;
        let (revision, fingerprint) = (self.revision, self.key.fingerprint(secret)?);
        let hash = self.key.secret_hash(secret)?;
        let credential_id: i64 = sqlx::query_scalar(
            "INSERT INTO credentials (sealed_secret, sealing_key_id, secret_hash, fingerprint, revision) \
             VALUES ($1, 'plain', $2, $3, $4) RETURNING credential_id",
        )
        .bind(secret.as_bytes())
        .bind(hash)
        .bind(&fingerprint)
        .bind(revision)
        .fetch_one(self.conn())
        .await?;
        Ok(pb::Credential { credential_id, secret: String::new(), fingerprint, revision })
    }

    /// Retires a credential that no channel lists any more.
    pub(super) async fn wipe(&mut self, credential: i64, channels: Vec<i64>, detail: Value) -> Result<()> {
        let revision = self.revision;
        sqlx::query(
            "UPDATE credentials SET retired_revision = $2, sealed_secret = NULL, secret_hash = NULL WHERE credential_id = $1",
        )
        .bind(credential)
        .bind(revision)
        .execute(self.conn())
        .await?;
        self.remove_statuses(&[Subject::Credential(CredentialId(credential))], channels.clone()).await?;
        self.event("credential.retired", Item::Credential(credential), channels, detail);
        Ok(())
    }

    /// The live channels that list any of these.
    pub(super) async fn channels_of(&mut self, credentials: &[i64]) -> Result<Vec<i64>> {
        Ok(sqlx::query_scalar(
            "SELECT DISTINCT channel_id FROM channel_credentials WHERE credential_id = ANY($1) ORDER BY channel_id",
        )
        .bind(credentials)
        .fetch_all(self.conn())
        .await?)
    }
}

/// The credentials that a new one replaces: those named, else the channel's only one.
fn replaced(channel: &pb::Channel, named: &[i64]) -> Result<Vec<i64>> {
    let refused =
        |problem: &str| Err(StoreError::Precondition(format!("channel {:?} has {problem}", channel.name)));
    if named.is_empty() {
        return match channel.credential_ids.as_slice() {
            [only] => Ok(vec![*only]),
            [] => refused("no credential to replace: add one"),
            _ => refused("several credentials: say which ones it replaces"),
        };
    }
    let foreign = named.iter().enumerate().filter(|(_, id)| !channel.credential_ids.contains(id));
    let violation = |(i, id): (usize, &i64)| {
        let problem = format!("credential {id} is not one of channel {:?}", channel.name);
        Violation::new(format!("replaces[{i}]"), problem)
    };
    let violations: Vec<_> = foreign.map(violation).collect();
    if violations.is_empty() { Ok(named.to_vec()) } else { Err(StoreError::Invalid(violations)) }
}

/// A channel's credentials without those that are `gone`; `new` stands where the first of them stood.
pub(super) fn renewed(ids: &[i64], gone: &[i64], new: Option<i64>) -> Vec<i64> {
    let mut next = Vec::with_capacity(ids.len());
    for id in ids {
        let id = if gone.contains(id) { new } else { Some(*id) };
        next.extend(id.filter(|id| !next.contains(id)));
    }
    next
}

impl Store {
    /// For each secret the id of the live credential that it equals and that this channel might list too (it serves no other
    /// provider or host), zero if none; one that the channel lists already comes first.
    ///
    /// # Errors
    /// `Unavailable`; `Invalid` for a base URL without a host.
    pub async fn equal_credentials_at(&self, secrets: &[String], channel: &pb::Channel) -> Result<Vec<i64>> {
        let host = super::channels::host(&channel.base_url)?;
        let hashes: Vec<Vec<u8>> = secrets.iter().map(|s| self.key.secret_hash(s)).collect::<Result<_>>()?;
        let found: Vec<(i64, Vec<u8>)> = sqlx::query_as(
            "SELECT credential_id, secret_hash FROM credentials WHERE secret_hash = ANY($1) AND retired_revision IS NULL \
             AND NOT EXISTS (SELECT 1 FROM channel_credentials k JOIN channels c USING (channel_id) \
                 WHERE k.credential_id = credentials.credential_id AND c.deleted_at IS NULL AND c.channel_id <> $5 \
                 AND (c.provider <> $2 OR c.host <> $3)) \
             ORDER BY credential_id = ANY($4) DESC, credential_id",
        )
        .bind(&hashes)
        .bind(&channel.provider)
        .bind(&host)
        .bind(&channel.credential_ids)
        .bind(channel.channel_id)
        .fetch_all(&self.registry)
        .await?;
        Ok(hashes.iter().map(|h| found.iter().find(|(_, f)| f == h).map_or(0, |(id, _)| *id)).collect())
    }
}
