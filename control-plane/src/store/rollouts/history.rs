//! Every spec a channel had, and the way back to one.

use serde_json::json;
use spareline_proto::registry::v1 as pb;
use time::OffsetDateTime;

use super::super::channels::{self, SpecRow};
use super::super::events::Item;
use super::super::read::Room;
use super::super::{ChannelKey, Page, Result, Store, StoreError, Tx};

/// One spec of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecRecord {
    /// The spec.
    pub channel: pb::Channel,
    /// Who wrote it.
    pub author: String,
    /// When.
    pub created_at: OffsetDateTime,
    /// Whether it is the baseline now.
    pub current: bool,
    /// The rollout whose candidate it was.
    pub rollout_id: Option<i64>,
}

#[derive(sqlx::FromRow)]
struct Row {
    spec_revision: i64,
    spec: serde_json::Value,
    author: String,
    created_at: OffsetDateTime,
    rollout_id: Option<i64>,
}

impl Store {
    /// A page of a live channel's specs, newest first. `page_size` 1 to 100.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a page token that is not ours.
    pub async fn channel_specs(
        &self,
        key: &ChannelKey,
        page_size: u32,
        page_token: &str,
    ) -> Result<Page<SpecRecord>> {
        let before: i64 = match page_token {
            "" => i64::MAX,
            token => token.parse().map_err(|_| StoreError::invalid("page_token", "is not one of ours"))?,
        };
        let mut conn = self.registry.acquire().await?;
        let now = channels::find(&mut conn, key).await?;
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT s.spec_revision, s.spec, s.author, s.created_at, r.rollout_id FROM channel_specs s \
             LEFT JOIN rollout_specs r USING (channel_id, spec_revision) \
             WHERE s.channel_id = $1 AND s.spec_revision < $2 ORDER BY s.spec_revision DESC LIMIT $3",
        )
        .bind(now.channel_id)
        .bind(before)
        .bind(i64::from(page_size) + 1)
        .fetch_all(&mut *conn)
        .await?;
        let found = rows.len();
        let record = |row: Row| {
            let spec: SpecRow = (now.channel_id, row.spec_revision, row.spec);
            Ok(SpecRecord {
                channel: channels::decode(spec)?,
                author: row.author,
                created_at: row.created_at,
                current: row.spec_revision == now.spec_revision,
                rollout_id: row.rollout_id,
            })
        };
        let mut items: Vec<SpecRecord> =
            rows.into_iter().take(page_size as usize).map(record).collect::<Result<_>>()?;
        let mut room = Room::default();
        items.truncate(items.iter().take_while(|spec| room.takes(&spec.channel)).count());
        let more = found > items.len();
        let next_page_token =
            items.last().filter(|_| more).map_or_else(String::new, |s| s.channel.spec_revision.to_string());
        Ok(Page { items, next_page_token, revision: self.head().await?.revision })
    }
}

impl Tx {
    /// An earlier spec of a live channel, with the keys it has now.
    ///
    /// # Errors
    /// `NotFound` for the channel and for the spec.
    pub async fn earlier_spec(&mut self, key: &ChannelKey, spec_revision: i64) -> Result<pb::Channel> {
        let now = self.channel(key).await?;
        let spec: Option<serde_json::Value> =
            sqlx::query_scalar("SELECT spec FROM channel_specs WHERE channel_id = $1 AND spec_revision = $2")
                .bind(now.channel_id)
                .bind(spec_revision)
                .fetch_optional(self.conn())
                .await?;
        let missing = || StoreError::NotFound(format!("spec {spec_revision} of channel {:?}", now.name));
        let old = channels::decode((now.channel_id, spec_revision, spec.ok_or_else(missing)?))?;
        Ok(pb::Channel { credential_ids: now.credential_ids, ..old })
    }

    /// Makes an earlier spec the channel's, by [`Tx::update_channel`], and says so in the audit log.
    ///
    /// # Errors
    /// As [`Tx::update_channel`].
    pub async fn roll_back_channel(
        &mut self,
        next: pb::Channel,
        to: i64,
        comment: &str,
    ) -> Result<pb::Channel> {
        let was = self.channel(&ChannelKey::Id(next.channel_id)).await?;
        let stored = self.update_channel(next).await?;
        if stored.spec_revision != was.spec_revision {
            let detail = json!({ "name": stored.name, "to_spec_revision": to, "was_spec_revision": was.spec_revision, "comment": comment });
            self.event("channel.rolled_back", Item::Rollout, vec![stored.channel_id], detail);
        }
        Ok(stored)
    }
}
