//! Reading rollouts, whole: followers those that last, operators by page.

use std::collections::HashMap;
use std::sync::Arc;

use spareline_proto::admin::v1::RolloutState;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::super::read::Room;
use super::super::{Page, Result, Store, StoreError, channels, json as proto_json, policies};
use super::row::{ChangeRow, RolloutRow, Target, state_of, state_word};
use crate::rollout::Overlay;

/// Which rollouts to read.
#[derive(Clone, Debug, Default)]
struct Which {
    id: Option<i64>,
    states: Option<Vec<String>>,
    before: Option<i64>,
    limit: i64,
}

#[derive(sqlx::FromRow)]
struct Row {
    rollout_id: i64,
    description: String,
    author: String,
    comment: String,
    state: String,
    stages: serde_json::Value,
    current_stage: i32,
    reaches: Vec<i64>,
    entered: Vec<i64>,
    stage_started_at: OffsetDateTime,
    mark: Vec<i64>,
    why: String,
    created_at: OffsetDateTime,
    ended_at: Option<OffsetDateTime>,
    revision: i64,
}

#[derive(sqlx::FromRow)]
struct Change {
    rollout_id: i64,
    item: String,
    channel_id: i64,
    name: String,
    group_name: String,
    base_revision: i64,
    spec_revision: Option<i64>,
    policy: Option<serde_json::Value>,
    candidate: Option<serde_json::Value>,
    baseline: Option<serde_json::Value>,
    baseline_revision: Option<i64>,
}

/// The rollouts that last, by id: what followers keep.
pub(in super::super) async fn overlays(conn: &mut PgConnection) -> Result<Vec<Overlay>> {
    let mut rows = read(conn, &lasting()).await?;
    rows.sort_by_key(|r| r.rollout_id);
    Ok(rows.iter().map(RolloutRow::overlay).collect())
}

fn lasting() -> Which {
    let states = Some(vec!["active".to_owned(), "paused".to_owned()]);
    Which { states, limit: i64::from(i32::MAX), ..Which::default() }
}

/// One rollout.
pub(super) async fn find(conn: &mut PgConnection, id: i64) -> Result<RolloutRow> {
    let mut rows = read(conn, &Which { id: Some(id), limit: 1, ..Which::default() }).await?;
    rows.pop().ok_or_else(|| StoreError::NotFound(format!("rollout {id}")))
}

/// Newest first.
async fn read(conn: &mut PgConnection, which: &Which) -> Result<Vec<RolloutRow>> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT rollout_id, description, author, comment, state, stages, current_stage, reaches, entered, stage_started_at, \
         mark, why, created_at, ended_at, revision FROM rollouts \
         WHERE ($1::bigint IS NULL OR rollout_id = $1) AND ($2::text[] IS NULL OR state = ANY($2)) \
         AND ($3::bigint IS NULL OR rollout_id < $3) ORDER BY rollout_id DESC LIMIT $4",
    )
    .bind(which.id)
    .bind(&which.states)
    .bind(which.before)
    .bind(which.limit)
    .fetch_all(&mut *conn)
    .await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<i64> = rows.iter().map(|r| r.rollout_id).collect();
    let changes: Vec<Change> = sqlx::query_as(
        "SELECT r.rollout_id, r.item, r.channel_id, r.name, r.group_name, r.base_revision, r.spec_revision, r.policy, \
         s.spec AS candidate, b.spec AS baseline, b.spec_revision AS baseline_revision \
         FROM rollout_changes r LEFT JOIN channel_specs s ON s.channel_id = r.channel_id AND s.spec_revision = r.spec_revision \
         LEFT JOIN channels c ON c.channel_id = r.channel_id AND c.deleted_at IS NULL \
         LEFT JOIN channel_specs b ON b.channel_id = c.channel_id AND b.spec_revision = c.spec_revision \
         WHERE r.rollout_id = ANY($1) ORDER BY r.rollout_id, r.ordinal",
    )
    .bind(&ids)
    .fetch_all(conn)
    .await?;
    let mut by_rollout: HashMap<i64, Vec<ChangeRow>> = HashMap::new();
    for change in changes {
        by_rollout.entry(change.rollout_id).or_default().push(change.read()?);
    }
    rows.into_iter()
        .map(|row| {
            let changes = by_rollout.remove(&row.rollout_id).unwrap_or_default();
            row.read(changes)
        })
        .collect()
}

impl Row {
    fn read(self, changes: Vec<ChangeRow>) -> Result<RolloutRow> {
        let corrupt = |what: &str| StoreError::Corrupt(format!("{what} of rollout {}", self.rollout_id));
        let serde_json::Value::Array(stages) = self.stages else { return Err(corrupt("the stages")) };
        Ok(RolloutRow {
            rollout_id: self.rollout_id,
            description: self.description,
            author: self.author,
            comment: self.comment,
            state: state_of(&self.state)
                .ok_or(StoreError::Corrupt(format!("rollout state {:?}", self.state)))?,
            stages: stages.into_iter().map(proto_json::from_json).collect::<Result<_>>()?,
            current: usize::try_from(self.current_stage).unwrap_or(0),
            reaches: self.reaches,
            entered: self.entered,
            started_at: self.stage_started_at,
            mark: self.mark.try_into().unwrap_or_default(),
            why: self.why,
            created_at: self.created_at,
            ended_at: self.ended_at,
            revision: self.revision,
            changes,
        })
    }
}

impl Change {
    fn read(self) -> Result<ChangeRow> {
        let target = if self.item == "policy" {
            let corrupt = || StoreError::Corrupt(format!("a policy of rollout {}", self.rollout_id));
            let spec = self.policy.ok_or_else(corrupt)?;
            let version = self.spec_revision.unwrap_or_default();
            Target::Policy(Arc::new(policies::decode((self.group_name, version, spec))?))
        } else {
            let spec = |version: Option<i64>, spec: Option<serde_json::Value>| {
                let row = version.zip(spec).map(|(version, spec)| (self.channel_id, version, spec));
                row.map(|row| channels::decode(row).map(Arc::new)).transpose()
            };
            Target::Channel {
                id: self.channel_id,
                baseline: spec(self.baseline_revision, self.baseline)?,
                candidate: spec(self.spec_revision, self.candidate)?,
            }
        };
        Ok(ChangeRow {
            name: self.name,
            base_revision: self.base_revision,
            spec_revision: self.spec_revision,
            target,
        })
    }
}

impl Store {
    /// One rollout.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn rollout(&self, id: i64) -> Result<RolloutRow> {
        find(&mut *self.registry.acquire().await?, id).await
    }

    /// Those that are spreading, oldest first.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn active_rollouts(&self) -> Result<Vec<RolloutRow>> {
        let which = Which { states: Some(vec!["active".to_owned()]), ..lasting() };
        let mut rows = read(&mut *self.registry.acquire().await?, &which).await?;
        rows.reverse();
        Ok(rows)
    }

    /// A page of rollouts, newest first. `page_size` 1 to 100.
    ///
    /// # Errors
    /// `Invalid` for a page token that is not ours.
    pub async fn rollouts(
        &self,
        state: Option<RolloutState>,
        page_size: u32,
        page_token: &str,
    ) -> Result<Page<RolloutRow>> {
        let before = match page_token {
            "" => None,
            token => {
                Some(token.parse().map_err(|_| StoreError::invalid("page_token", "is not one of ours"))?)
            }
        };
        let which = Which {
            id: None,
            states: state.map(|s| vec![state_word(s).to_owned()]),
            before,
            limit: i64::from(page_size) + 1,
        };
        let mut items = read(&mut *self.registry.acquire().await?, &which).await?;
        let found = items.len();
        let mut room = Room::default();
        let fit = items.iter().take(page_size as usize).take_while(|row| fits(row, &mut room)).count();
        items.truncate(fit.max(1));
        let more = found > items.len();
        let next_page_token =
            items.last().filter(|_| more).map_or_else(String::new, |r| r.rollout_id.to_string());
        Ok(Page { items, next_page_token, revision: self.head().await?.revision })
    }
}

fn fits(row: &RolloutRow, room: &mut Room) -> bool {
    row.changes.iter().all(|c| match &c.target {
        Target::Channel { candidate: Some(candidate), .. } => room.takes(&**candidate),
        Target::Channel { candidate: None, .. } => true,
        Target::Policy(policy) => room.takes(&**policy),
    })
}
