//! The end of a rollout that succeeded: its candidates become the registry, under the versions its cohort already has.

use serde_json::json;

use super::super::events::Item;
use super::super::{ChannelKey, Result, Tx, channels, json as proto_json, policies};
use super::{RolloutRow, Target};

impl Tx {
    /// Makes the candidates the baseline. The changes must not be active any more.
    pub(super) async fn promote(&mut self, row: &RolloutRow) -> Result<()> {
        let by = json!({ "rollout_id": row.rollout_id.to_string() });
        for change in &row.changes {
            match (&change.target, change.spec_revision) {
                (Target::Channel { id, candidate: Some(next), .. }, Some(version)) => {
                    let next = channels::bare(next);
                    let host = channels::host(&next.base_url)?;
                    self.check_name(&next.name, *id).await?;
                    self.check_listed(*id, &next.credential_ids, &next.provider, &host).await?;
                    if change.base_revision == 0 {
                        sqlx::query("UPDATE channels SET deleted_at = NULL WHERE channel_id = $1")
                            .bind(id)
                            .execute(self.conn())
                            .await?;
                        self.store_spec(*id, &next, version).await?;
                        let mut detail = by.clone();
                        detail["name"] = next.name.clone().into();
                        detail["spec"] = proto_json::to_json(&next)?;
                        self.event("channel.created", Item::Channel(*id), vec![*id], detail);
                        continue;
                    }
                    let old = self.channel(&ChannelKey::Id(*id)).await?;
                    let stored = self.replace_spec_at(&old, next, by.clone(), version).await?;
                    self.settle(&old, &stored).await?;
                }
                (Target::Channel { id, .. }, _) => self.delete_channel(&ChannelKey::Id(*id), "").await?,
                (Target::Policy(next), version) => {
                    let next = policies::bare(next);
                    self.store_policy(next, version.unwrap_or(self.revision)).await?;
                }
            }
        }
        Ok(())
    }
}
