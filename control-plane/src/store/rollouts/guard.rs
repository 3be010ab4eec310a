//! What may not be changed directly while a rollout is at it, and what follows it when keys change.

use serde_json::json;

use super::super::channels::{self, SpecRow};
use super::super::credentials;
use super::super::events::Item;
use super::super::{Result, StoreError, Tx};
use super::evidence;

impl Tx {
    /// A channel in an active rollout is changed by that alone.
    pub(in super::super) async fn check_channel_free(&mut self, id: i64, name: &str) -> Result<()> {
        self.check_free("channel", id, "", &format!("channel {name:?}")).await
    }

    /// A policy likewise.
    pub(in super::super) async fn check_policy_free(&mut self, group: &str) -> Result<()> {
        let named = super::super::policies::named(group);
        self.check_free("policy", 0, group, &named).await
    }

    async fn check_free(&mut self, item: &str, id: i64, group: &str, named: &str) -> Result<()> {
        let held: Option<i64> = sqlx::query_scalar(
            "SELECT rollout_id FROM rollout_changes WHERE active AND item = $1 AND channel_id = $2 AND group_name = $3",
        )
        .bind(item)
        .bind(id)
        .bind(group)
        .fetch_optional(self.conn())
        .await?;
        match held {
            None => Ok(()),
            Some(rollout) => Err(StoreError::Precondition(format!(
                "{named} is in rollout {rollout}: finish or abort that first"
            ))),
        }
    }

    /// Puts a new key in the place of others in all candidates, or takes these out. Candidates get a revision of their own: it is
    /// another content than the baseline's of this transaction. A candidate without its last key would go on without
    /// any: its rollout is aborted.
    pub(in super::super) async fn rebase_candidates(&mut self, gone: &[i64], new: Option<i64>) -> Result<()> {
        let rows: Vec<(i64, i64, i64, serde_json::Value)> = sqlx::query_as(
            "SELECT r.rollout_id, r.channel_id, r.spec_revision, s.spec FROM rollout_changes r \
             JOIN channel_specs s USING (channel_id, spec_revision) WHERE r.active AND EXISTS \
             (SELECT 1 FROM unnest($1::bigint[]) AS k (id) WHERE s.spec->'credential_ids' @> to_jsonb(k.id)) \
             ORDER BY r.rollout_id, r.ordinal",
        )
        .bind(gone)
        .fetch_all(self.conn())
        .await?;
        if rows.is_empty() {
            return Ok(());
        }
        self.next_revision().await?;
        let revision = self.revision;
        let mut aborted = Vec::new();
        for (rollout_id, channel_id, old, spec) in rows {
            if aborted.contains(&rollout_id) {
                continue;
            }
            let row: SpecRow = (channel_id, old, spec);
            let mut next = channels::bare(&channels::decode(row)?);
            next.credential_ids = credentials::renewed(&next.credential_ids, gone, new);
            if next.credential_ids.is_empty() {
                self.abort_rollout(rollout_id, "the last key of a candidate was retired").await?;
                aborted.push(rollout_id);
                continue;
            }
            self.keep_candidate(rollout_id, channel_id, &next).await?;
            sqlx::query(
                "UPDATE rollout_changes SET spec_revision = $3 WHERE rollout_id = $1 AND channel_id = $2 AND item = 'channel'",
            )
            .bind(rollout_id)
            .bind(channel_id)
            .bind(revision)
            .execute(self.conn())
            .await?;
            let mark = evidence::tallies(self.conn(), rollout_id).await?;
            sqlx::query("UPDATE rollouts SET revision = $2, mark = $3 WHERE rollout_id = $1")
                .bind(rollout_id)
                .bind(revision)
                .bind(mark.to_vec())
                .execute(self.conn())
                .await?;
            let detail = json!({ "rollout_id": rollout_id.to_string(), "channel": next.name, "keys": next.credential_ids });
            self.event("rollout.rebased", Item::Rollout, vec![channel_id], detail);
        }
        Ok(())
    }
}
