//! Starting, moving, holding and ending rollouts: every change a revision and an event.

use serde_json::{Value, json};
use spareline_proto::admin::v1::{RolloutState, Stage};
use spareline_proto::registry::v1 as pb;

use super::super::events::Item;
use super::super::{Result, StoreError, Tx, abilities, channels, json as proto_json, policies};
use super::{RolloutRow, evidence, find, state_word};
use crate::rollout::cohort;

/// A change to be staged, validated by itself.
#[derive(Clone, Debug)]
pub enum NewChange {
    /// A channel's next spec; without a current one it is new.
    Upsert {
        /// As it is.
        current: Option<Box<pb::Channel>>,
        /// As it is to be.
        next: Box<pb::Channel>,
    },
    /// A channel to remove.
    Delete(Box<pb::Channel>),
    /// A policy's next content.
    Policy(Box<pb::Policy>),
}

/// What `rollout_changes` keeps of a change.
#[derive(Default)]
struct ChangeRow {
    /// Zero for a policy.
    channel_id: i64,
    /// Of the channel.
    name: String,
    /// Of the policy; empty is the global one.
    group: String,
    /// The revision it starts from; zero for what is new.
    base: i64,
    /// Of the candidate; `None` for a deletion.
    version: Option<i64>,
    /// The candidate, where it is a policy.
    policy: Option<Value>,
}

impl Tx {
    /// One rollout.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn rollout(&mut self, id: i64) -> Result<RolloutRow> {
        find(self.conn(), id).await
    }

    /// Starts a rollout with its first stage.
    ///
    /// # Errors
    /// `Precondition` where a channel or a policy is in another one; `Invalid` where a change changes nothing, and for what a
    /// direct change would be refused for.
    pub async fn create_rollout(
        &mut self,
        description: &str,
        comment: &str,
        stages: &[Stage],
        changes: Vec<NewChange>,
    ) -> Result<RolloutRow> {
        let encoded: Vec<Value> = stages.iter().map(proto_json::to_json).collect::<Result<_>>()?;
        let (actor, now, revision) = (self.actor.clone(), self.now, self.revision);
        let id: i64 = sqlx::query_scalar(
            "INSERT INTO rollouts (description, author, comment, state, stages, reaches, entered, stage_started_at, created_at, \
             revision) VALUES ($1, $2, $3, 'active', $4, '{}', '{}', $5, $5, $6) RETURNING rollout_id",
        )
        .bind(description)
        .bind(&actor)
        .bind(comment)
        .bind(Value::Array(encoded.clone()))
        .bind(now)
        .bind(revision)
        .fetch_one(self.conn())
        .await?;
        for (index, change) in changes.into_iter().enumerate() {
            let ordinal = i32::try_from(index).unwrap_or(i32::MAX);
            let field = format!("rollout.changes[{index}]");
            self.stage_change(id, ordinal, &field, change).await?;
        }
        let row = find(self.conn(), id).await?;
        let detail = json!({ "description": description, "comment": comment, "stages": encoded, "changes": described(&row)? });
        self.rollout_event("rollout.created", &row, detail);
        self.begin_stage(&row, 0).await
    }

    async fn stage_change(
        &mut self,
        rollout: i64,
        ordinal: i32,
        field: &str,
        change: NewChange,
    ) -> Result<()> {
        let row = match change {
            NewChange::Upsert { current, next } => {
                self.stage_upsert(rollout, field, current.as_deref(), &next).await?
            }
            NewChange::Delete(current) => self.stage_delete(*current).await?,
            NewChange::Policy(next) => self.stage_policy(field, *next).await?,
        };
        sqlx::query(
            "INSERT INTO rollout_changes (rollout_id, ordinal, item, channel_id, name, group_name, base_revision, spec_revision, \
             policy) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(rollout)
        .bind(ordinal)
        .bind(if row.policy.is_some() { "policy" } else { "channel" })
        .bind(row.channel_id)
        .bind(row.name)
        .bind(row.group)
        .bind(row.base)
        .bind(row.version)
        .bind(row.policy)
        .execute(self.conn())
        .await?;
        Ok(())
    }

    async fn stage_upsert(
        &mut self,
        rollout: i64,
        field: &str,
        current: Option<&pb::Channel>,
        next: &pb::Channel,
    ) -> Result<ChangeRow> {
        let next = channels::bare(next);
        let host = channels::host(&next.base_url)?;
        let (known, base) = current.map_or((0, 0), |c| (c.channel_id, c.spec_revision));
        if let Some(current) = current {
            self.check_channel_free(known, &current.name).await?;
            if channels::bare(current) == next {
                return Err(StoreError::invalid(field, "changes nothing"));
            }
        }
        if current.is_none_or(|c| c.name != next.name) {
            self.check_name(&next.name, known).await?;
        }
        self.check_listed(known, &next.credential_ids, &next.provider, &host)
            .await
            .map_err(|error| error.within("channel", &format!("{field}.upsert")))?;
        let channel_id = if current.is_some() { known } else { self.unborn_channel(&next, &host).await? };
        self.keep_candidate(rollout, channel_id, &next).await?;
        let version = Some(self.revision);
        Ok(ChangeRow { channel_id, name: next.name, base, version, ..ChangeRow::default() })
    }

    async fn stage_delete(&mut self, current: pb::Channel) -> Result<ChangeRow> {
        self.check_channel_free(current.channel_id, &current.name).await?;
        let (channel_id, base) = (current.channel_id, current.spec_revision);
        Ok(ChangeRow { channel_id, name: current.name, base, ..ChangeRow::default() })
    }

    async fn stage_policy(&mut self, field: &str, next: pb::Policy) -> Result<ChangeRow> {
        self.check_policy_free(&next.group).await?;
        let current = self.policy(&next.group).await?;
        if current.as_ref().is_some_and(|c| policies::bare(c) == policies::bare(&next)) {
            return Err(StoreError::invalid(field, "changes nothing"));
        }
        let (base, version) = (current.map_or(0, |c| c.revision), Some(self.revision));
        let policy = Some(proto_json::to_json(&policies::bare(&next))?);
        Ok(ChangeRow { group: next.group, base, version, policy, ..ChangeRow::default() })
    }

    /// An id for a channel that only a rollout has: deleted, until that succeeds.
    async fn unborn_channel(&mut self, spec: &pb::Channel, host: &str) -> Result<i64> {
        let revision = self.revision;
        Ok(sqlx::query_scalar(
            "INSERT INTO channels (name, provider, base_url, host, groups, auto_disable, spec_revision, deleted_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp()) RETURNING channel_id",
        )
        .bind(&spec.name)
        .bind(&spec.provider)
        .bind(&spec.base_url)
        .bind(host)
        .bind(abilities::groups(spec))
        .bind(spec.auto_disable)
        .bind(revision)
        .fetch_one(self.conn())
        .await?)
    }

    /// Stores a candidate under this transaction's revision.
    pub(super) async fn keep_candidate(
        &mut self,
        rollout: i64,
        channel: i64,
        spec: &pb::Channel,
    ) -> Result<()> {
        let revision = self.revision;
        self.keep_spec(channel, spec, revision).await?;
        sqlx::query("INSERT INTO rollout_specs (channel_id, spec_revision, rollout_id) VALUES ($1, $2, $3)")
            .bind(channel)
            .bind(revision)
            .bind(rollout)
            .execute(self.conn())
            .await?;
        Ok(())
    }

    /// Puts a stage in force: its reach is found from the proxies that are connected now.
    async fn begin_stage(&mut self, row: &RolloutRow, index: usize) -> Result<RolloutRow> {
        let (now, revision) = (self.now, self.revision);
        let points = self.points(row, index).await?;
        let mark = evidence::tallies(self.conn(), row.rollout_id).await?;
        let mut reaches = row.reaches.clone();
        let mut entered = row.entered.clone();
        reaches.truncate(index);
        entered.truncate(index);
        reaches.push(points);
        entered.push(revision);
        sqlx::query(
            "UPDATE rollouts SET current_stage = $2, reaches = $3, entered = $4, stage_started_at = $5, mark = $6, revision = $7 \
             WHERE rollout_id = $1",
        )
        .bind(row.rollout_id)
        .bind(i32::try_from(index).unwrap_or(i32::MAX))
        .bind(reaches)
        .bind(entered)
        .bind(now)
        .bind(mark.to_vec())
        .bind(revision)
        .execute(self.conn())
        .await?;
        find(self.conn(), row.rollout_id).await
    }

    async fn points(&mut self, row: &RolloutRow, index: usize) -> Result<i64> {
        let Some(stage) = row.stages.get(index) else {
            return Err(StoreError::Corrupt(format!("stage {index} of rollout {}", row.rollout_id)));
        };
        let proxies = evidence::connected(self.conn()).await?;
        let eligible = evidence::eligible(row, &stage.selector, &proxies);
        Ok(cohort::at_least_one(row.rollout_id, stage.percent, eligible.iter().map(String::as_str)))
    }

    /// Finds the current stage's reach anew where it has nobody: the first proxy to connect is in. Answers whether it changed.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn widen_rollout(&mut self, id: i64) -> Result<bool> {
        let row = find(self.conn(), id).await?;
        let points = self.points(&row, row.current).await?;
        if !row.lasts() || row.reaches.get(row.current).is_none_or(|now| *now >= points) {
            return Ok(false);
        }
        self.begin_stage(&row, row.current).await?;
        self.rollout_event("rollout.widened", &row, json!({ "stage": row.current }));
        Ok(true)
    }

    /// Moves on: to the next stage, or from the last one to the end. A non-empty `etag` must match.
    ///
    /// # Errors
    /// `Precondition` when it has ended, or when the registry no longer takes its changes; `Conflict`.
    pub async fn advance_rollout(&mut self, id: i64, etag: &str, comment: &str) -> Result<RolloutRow> {
        let row = self.lasting_rollout(id, etag).await?;
        let next = row.current + 1;
        if next >= row.stages.len() {
            return self.finish_rollout(row, comment).await;
        }
        let begun = self.begin_stage(&row, next).await?;
        let percent = row.stages.get(next).map(|s| s.percent);
        let detail = json!({ "stage": next, "percent": percent, "comment": comment });
        self.rollout_event("rollout.advanced", &row, detail);
        Ok(begun)
    }

    async fn finish_rollout(&mut self, row: RolloutRow, comment: &str) -> Result<RolloutRow> {
        self.end_rollout(&row, RolloutState::Succeeded, comment).await?;
        self.promote(&row).await?;
        self.rollout_event("rollout.succeeded", &row, json!({ "comment": comment }));
        find(self.conn(), row.rollout_id).await
    }

    /// Holds at the current stage. What is paused stays as it is.
    ///
    /// # Errors
    /// `Precondition` when it has ended.
    pub async fn pause_rollout(&mut self, id: i64, why: &str) -> Result<RolloutRow> {
        let row = self.lasting_rollout(id, "").await?;
        if row.state == RolloutState::Paused {
            return Ok(row);
        }
        let revision = self.revision;
        sqlx::query("UPDATE rollouts SET state = 'paused', why = $2, revision = $3 WHERE rollout_id = $1")
            .bind(id)
            .bind(why)
            .bind(revision)
            .execute(self.conn())
            .await?;
        self.rollout_event(
            "rollout.paused",
            &row,
            json!({ "stage": row.current, "why": why, "comment": why }),
        );
        find(self.conn(), id).await
    }

    /// Lifts a pause; bake time and evidence start anew. What is active stays as it is.
    ///
    /// # Errors
    /// `Precondition` when it has ended.
    pub async fn resume_rollout(&mut self, id: i64, comment: &str) -> Result<RolloutRow> {
        let row = self.lasting_rollout(id, "").await?;
        if row.state == RolloutState::Active {
            return Ok(row);
        }
        let (revision, now) = (self.revision, self.now);
        let mark = evidence::tallies(self.conn(), id).await?;
        sqlx::query(
            "UPDATE rollouts SET state = 'active', why = '', stage_started_at = $2, mark = $3, revision = $4 WHERE rollout_id = $1",
        )
        .bind(id)
        .bind(now)
        .bind(mark.to_vec())
        .bind(revision)
        .execute(self.conn())
        .await?;
        let detail = json!({ "stage": row.current, "was": row.why, "comment": comment });
        self.rollout_event("rollout.resumed", &row, detail);
        find(self.conn(), id).await
    }

    /// Returns the cohort to the baseline. What is aborted stays as it is.
    ///
    /// # Errors
    /// `Precondition` when it has succeeded.
    pub async fn abort_rollout(&mut self, id: i64, comment: &str) -> Result<RolloutRow> {
        let row = find(self.conn(), id).await?;
        if row.state == RolloutState::Aborted {
            return Ok(row);
        }
        let row = self.lasting_rollout(id, "").await?;
        self.end_rollout(&row, RolloutState::Aborted, comment).await?;
        self.rollout_event("rollout.aborted", &row, json!({ "stage": row.current, "comment": comment }));
        find(self.conn(), id).await
    }

    async fn end_rollout(&mut self, row: &RolloutRow, state: RolloutState, why: &str) -> Result<()> {
        let (revision, now) = (self.revision, self.now);
        sqlx::query(
            "UPDATE rollouts SET state = $2, why = $3, ended_at = $4, revision = $5 WHERE rollout_id = $1",
        )
        .bind(row.rollout_id)
        .bind(state_word(state))
        .bind(why)
        .bind(now)
        .bind(revision)
        .execute(self.conn())
        .await?;
        sqlx::query("UPDATE rollout_changes SET active = false WHERE rollout_id = $1")
            .bind(row.rollout_id)
            .execute(self.conn())
            .await?;
        Ok(())
    }

    async fn lasting_rollout(&mut self, id: i64, etag: &str) -> Result<RolloutRow> {
        let row = find(self.conn(), id).await?;
        if !row.lasts() {
            let state = state_word(row.state);
            return Err(StoreError::Precondition(format!(
                "rollout {id} has ended ({state}): nothing is left to change"
            )));
        }
        if !etag.is_empty() && etag != row.etag() {
            return Err(StoreError::Conflict(format!("rollout {id}")));
        }
        Ok(row)
    }

    pub(super) fn rollout_event(&mut self, kind: &'static str, row: &RolloutRow, mut detail: Value) {
        if let Value::Object(map) = &mut detail {
            map.insert("rollout_id".into(), row.rollout_id.to_string().into());
        }
        self.event(kind, Item::Rollout, row.channel_ids(), detail);
    }
}

/// The changes, for the audit log.
fn described(row: &RolloutRow) -> Result<Vec<Value>> {
    let of = |c: &super::ChangeRow| {
        Ok(match &c.target {
            super::Target::Channel { candidate: Some(spec), .. } => {
                json!({ "channel": c.name, "spec": proto_json::to_json(&channels::bare(spec))? })
            }
            super::Target::Channel { .. } => json!({ "channel": c.name, "deleted": true }),
            super::Target::Policy(policy) => {
                json!({ "policy": proto_json::to_json(&policies::bare(policy))? })
            }
        })
    };
    row.changes.iter().map(of).collect()
}
