//! From readable names to subjects.

use spareline_core::{ChannelId, CredentialId, Subject};
use spareline_proto::admin::v1 as admin;
use sqlx::PgConnection;

use super::{ChannelKey, Result, StoreError, Tx, channels};

impl Tx {
    /// Finds what a readable name means: a channel, one of its credentials (by id or fingerprint), one of its models, or a
    /// model with one credential. A credential needs no channel.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`.
    pub async fn resolve(&mut self, name: &admin::SubjectName) -> Result<Subject> {
        resolve(self.conn(), name).await
    }
}

async fn resolve(conn: &mut PgConnection, name: &admin::SubjectName) -> Result<Subject> {
    let credential = name.credential.as_deref().filter(|c| !c.is_empty());
    let model = name.model.as_deref().filter(|m| !m.is_empty());
    if name.channel.is_empty() {
        return match (credential, model) {
            (Some(credential), None) => {
                Ok(Subject::Credential(find_credential(conn, None, credential).await?))
            }
            _ => {
                Err(StoreError::invalid("subject.channel", "is required, unless only a credential is named"))
            }
        };
    }
    let channel = channels::find(conn, &ChannelKey::from(name.channel.as_str())).await?;
    let credential = match credential {
        Some(text) => Some(find_credential(conn, Some(&channel), text).await?),
        None => None,
    };
    let Some(model) = model else {
        return Ok(credential.map_or(Subject::Channel(ChannelId(channel.channel_id)), Subject::Credential));
    };
    if !channel.models.iter().any(|m| m.model == model) {
        return Err(StoreError::NotFound(format!("model {model:?} of channel {:?}", channel.name)));
    }
    Ok(Subject::Ability { channel: ChannelId(channel.channel_id), model: model.into(), credential })
}

async fn find_credential(
    conn: &mut PgConnection,
    channel: Option<&spareline_proto::registry::v1::Channel>,
    text: &str,
) -> Result<CredentialId> {
    let found: Vec<i64> = sqlx::query_scalar(
        "SELECT credential_id FROM credentials WHERE retired_revision IS NULL AND (credential_id = $1 OR fingerprint = $2) \
         AND ($3::bigint[] IS NULL OR credential_id = ANY($3)) ORDER BY credential_id",
    )
    .bind(text.parse::<i64>().ok())
    .bind(text)
    .bind(channel.map(|c| c.credential_ids.clone()))
    .fetch_all(conn)
    .await?;
    match (found.as_slice(), channel) {
        ([one], _) => Ok(CredentialId(*one)),
        ([], Some(c)) => Err(StoreError::NotFound(format!("credential {text:?} of channel {:?}", c.name))),
        ([], None) => Err(StoreError::NotFound(format!("credential {text:?}"))),
        _ => Err(StoreError::invalid("subject.credential", format!("{text:?} names several: use the id"))),
    }
}

/// Every channel, deleted ones included, that bears or bore this name or id.
pub(super) async fn any_channel(conn: &mut PgConnection, key: &ChannelKey) -> Result<Vec<i64>> {
    let (id, name) = match key {
        ChannelKey::Id(id) => (Some(*id), None),
        ChannelKey::Name(name) => (None, Some(name.as_str())),
    };
    let found: Vec<i64> =
        sqlx::query_scalar("SELECT channel_id FROM channels WHERE channel_id = $1 OR name = $2")
            .bind(id)
            .bind(name)
            .fetch_all(conn)
            .await?;
    if found.is_empty() { Err(StoreError::NotFound(key.to_string())) } else { Ok(found) }
}
