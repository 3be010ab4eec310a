//! Policies: one per group and one for all.

use serde_json::{Value, json};
use spareline_core::policy::FleetPolicy;
use spareline_proto::registry::v1 as pb;
use sqlx::PgConnection;

use super::events::Item;
use super::{Result, Store, StoreError, Tx, json as proto_json};

pub(super) type PolicyRow = (String, i64, Value);

/// A stored policy as a message.
pub(super) fn decode((group, revision, spec): PolicyRow) -> Result<pb::Policy> {
    let policy: pb::Policy = proto_json::from_json(spec)?;
    Ok(pb::Policy { group, revision, etag: revision.to_string(), ..policy })
}

async fn find(conn: &mut PgConnection, group: &str) -> Result<Option<pb::Policy>> {
    let row: Option<PolicyRow> =
        sqlx::query_as("SELECT group_name, revision, spec FROM policies WHERE group_name = $1")
            .bind(group)
            .fetch_optional(conn)
            .await?;
    row.map(decode).transpose()
}

/// What the fleet believes, as stored now.
pub(super) async fn rules(conn: &mut PgConnection) -> Result<FleetPolicy> {
    Ok(FleetPolicy::resolve(find(conn, "").await?.as_ref()))
}

pub(super) fn bare(policy: &pb::Policy) -> pb::Policy {
    pb::Policy { revision: 0, etag: String::new(), ..policy.clone() }
}

impl Tx {
    /// One policy as stored, if there is one. Empty group: the global one.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn policy(&mut self, group: &str) -> Result<Option<pb::Policy>> {
        find(self.conn(), group).await
    }

    /// Creates or replaces a validated policy; a non-empty `etag` must match. The same content again changes nothing.
    ///
    /// # Errors
    /// `Conflict`.
    pub async fn put_policy(&mut self, policy: pb::Policy) -> Result<pb::Policy> {
        let old = self.policy(&policy.group).await?;
        if !policy.etag.is_empty() && old.as_ref().is_none_or(|o| o.etag != policy.etag) {
            return Err(StoreError::Conflict(named(&policy.group)));
        }
        let next = bare(&policy);
        if let Some(old) = old.filter(|o| bare(o) == next) {
            return Ok(old);
        }
        self.check_policy_free(&next.group).await?;
        self.store_policy(next, self.revision).await
    }

    /// Writes a policy's row under a revision, and its event.
    pub(super) async fn store_policy(&mut self, next: pb::Policy, revision: i64) -> Result<pb::Policy> {
        let spec = proto_json::to_json(&next)?;
        sqlx::query(
            "INSERT INTO policies (group_name, spec, revision) VALUES ($1, $2, $3) \
             ON CONFLICT (group_name) DO UPDATE SET spec = excluded.spec, revision = excluded.revision",
        )
        .bind(&next.group)
        .bind(&spec)
        .bind(revision)
        .execute(self.conn())
        .await?;
        self.event("policy.updated", Item::Policy(next.group.clone()), Vec::new(), json!({ "policy": spec }));
        Ok(pb::Policy { revision, etag: revision.to_string(), ..next })
    }

    /// Removes a group's policy.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` for the global one.
    pub async fn delete_policy(&mut self, group: &str) -> Result<()> {
        if group.is_empty() {
            return Err(StoreError::Precondition("the global policy can only be changed".into()));
        }
        self.check_policy_free(group).await?;
        let gone = sqlx::query("DELETE FROM policies WHERE group_name = $1")
            .bind(group)
            .execute(self.conn())
            .await?;
        if gone.rows_affected() == 0 {
            return Err(StoreError::NotFound(named(group)));
        }
        self.event("policy.deleted", Item::Policy(group.to_owned()), Vec::new(), json!({ "group": group }));
        Ok(())
    }
}

pub(super) fn named(group: &str) -> String {
    if group.is_empty() { "the global policy".into() } else { format!("the policy of group {group:?}") }
}

impl Store {
    /// One policy as stored, if there is one.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn policy(&self, group: &str) -> Result<Option<pb::Policy>> {
        find(&mut *self.registry.acquire().await?, group).await
    }

    /// All policies, the global one first.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn policies(&self) -> Result<Vec<pb::Policy>> {
        let rows: Vec<PolicyRow> = sqlx::query_as(
            "SELECT group_name, revision, spec FROM policies ORDER BY group_name COLLATE \"C\"",
        )
        .fetch_all(&self.registry)
        .await?;
        rows.into_iter().map(decode).collect()
    }
}
