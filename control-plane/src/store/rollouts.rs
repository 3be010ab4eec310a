//! Rollouts: rows, what followers read of them, and the evidence by which they move.
//!
//! A candidate is a row of `channel_specs` that `channels` does not point at; a channel that only a rollout has is a deleted one
//! until the rollout succeeds. The database keeps that a channel or a policy is in one active rollout at most.

mod blamed;
mod change;
mod evidence;
mod guard;
mod history;
mod lease;
mod promote;

use std::collections::HashMap;
use std::sync::Arc;

use spareline_core::{ChannelId, Revision};
use spareline_proto::admin::v1::{RolloutState, Stage};
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::registry::v1 as pb;
use sqlx::PgConnection;
use time::OffsetDateTime;

pub use change::NewChange;
pub use history::SpecRecord;
pub use lease::Lease;

pub(super) use blamed::{Blamed, Candidates};

use super::{Page, Result, Store, StoreError, abilities, channels, json as proto_json, policies};
use crate::rollout::cohort::{Cohort, Reach};
use crate::rollout::{Overlay, Staged};

/// One rollout as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutRow {
    /// Its id.
    pub rollout_id: i64,
    /// For humans.
    pub description: String,
    /// Who started it.
    pub author: String,
    /// What they said.
    pub comment: String,
    /// What it is doing.
    pub state: RolloutState,
    /// All its stages.
    pub stages: Vec<Stage>,
    /// Which is in force.
    pub current: usize,
    /// Per stage that has begun: the points its cohort has.
    pub reaches: Vec<i64>,
    /// Per stage that has begun: the revision it began at.
    pub entered: Vec<i64>,
    /// When the current stage began or was resumed.
    pub started_at: OffsetDateTime,
    /// The tallies at that time.
    pub mark: [i64; 4],
    /// Why it paused or ended.
    pub why: String,
    /// When it was started.
    pub created_at: OffsetDateTime,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
    /// Of its last change.
    pub revision: i64,
    /// What changes.
    pub changes: Vec<ChangeRow>,
}

/// One change as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeRow {
    /// The channel's name under its candidate; empty for policies.
    pub name: String,
    /// The baseline's version at the start; 0: there was none.
    pub base_revision: i64,
    /// The candidate's version; `None`: it deletes.
    pub spec_revision: Option<i64>,
    /// What becomes of what.
    pub target: Target,
}

/// What a change is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A channel.
    Channel {
        /// Which.
        id: i64,
        /// The baseline now; `None`: it has none.
        baseline: Option<Arc<pb::Channel>>,
        /// The candidate; `None`: it deletes.
        candidate: Option<Arc<pb::Channel>>,
    },
    /// A policy.
    Policy(Arc<pb::Policy>),
}

// === impl RolloutRow ===

impl RolloutRow {
    /// Whether its cohort sees it.
    pub fn lasts(&self) -> bool {
        matches!(self.state, RolloutState::Active | RolloutState::Paused)
    }

    /// Echoed back to detect a lost race.
    pub fn etag(&self) -> String {
        self.revision.to_string()
    }

    /// Who sees it.
    pub fn cohort(&self) -> Cohort {
        let begun = self.stages.iter().zip(&self.reaches).zip(&self.entered);
        let stages = begun.map(|((stage, points), entered)| Reach {
            selector: stage.selector.clone(),
            points: *points,
            entered: *entered,
        });
        Cohort { rollout_id: self.rollout_id, stages: stages.collect() }
    }

    /// The channels it is about.
    pub fn channel_ids(&self) -> Vec<i64> {
        let id = |c: &ChangeRow| match &c.target {
            Target::Channel { id, .. } => Some(*id),
            Target::Policy(_) => None,
        };
        self.changes.iter().filter_map(id).collect()
    }

    /// Whether a proxy of these groups would see any of it.
    pub fn concerns(&self, groups: &[String]) -> bool {
        self.changes.iter().any(|c| c.concerns(groups))
    }

    /// Whether a rejection is of one of its candidates.
    pub fn is_rejected_by(&self, rejection: &dp::Rejection) -> bool {
        use dp::item_ref::Kind;
        let item = rejection.item.as_ref().and_then(|item| item.kind.as_ref());
        self.changes.iter().any(|c| {
            let same = match (&c.target, item) {
                (Target::Channel { id, .. }, Some(Kind::ChannelId(rejected))) => id == rejected,
                (Target::Policy(policy), Some(Kind::PolicyGroup(group))) => policy.group == *group,
                _ => false,
            };
            same && c.spec_revision == Some(rejection.version)
        })
    }

    fn overlay(&self) -> Overlay {
        let staged = |c: &ChangeRow| match &c.target {
            Target::Channel { candidate: Some(candidate), .. } => Staged::Channel(candidate.clone()),
            Target::Channel { id, candidate: None, .. } => Staged::NoChannel(ChannelId(*id)),
            Target::Policy(policy) => Staged::Policy(policy.clone()),
        };
        Overlay {
            rollout_id: self.rollout_id,
            revision: Revision(self.revision),
            cohort: self.cohort(),
            changes: self.changes.iter().map(staged).collect(),
        }
    }
}

impl ChangeRow {
    fn concerns(&self, groups: &[String]) -> bool {
        match &self.target {
            Target::Policy(policy) => policy.group.is_empty() || groups.contains(&policy.group),
            Target::Channel { baseline, candidate, .. } => {
                let visible = |spec: &Arc<pb::Channel>| {
                    abilities::groups(spec).iter().any(|group| groups.contains(group))
                };
                baseline.iter().chain(candidate).any(visible)
            }
        }
    }
}

// === reading ===

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
pub(super) async fn overlays(conn: &mut PgConnection) -> Result<Vec<Overlay>> {
    let mut rows = read(conn, &lasting()).await?;
    rows.sort_by_key(|r| r.rollout_id);
    Ok(rows.iter().map(RolloutRow::overlay).collect())
}

fn lasting() -> Which {
    let states = Some(vec!["active".to_owned(), "paused".to_owned()]);
    Which { states, limit: i64::from(i32::MAX), ..Which::default() }
}

/// One rollout.
async fn find(conn: &mut PgConnection, id: i64) -> Result<RolloutRow> {
    let mut rows = read(conn, &Which { id: Some(id), limit: 1, ..Which::default() }).await?;
    rows.pop().ok_or_else(|| StoreError::NotFound(format!("rollout {id}")))
}

/// Newest first.
async fn read(conn: &mut PgConnection, which: &Which) -> Result<Vec<RolloutRow>> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT * FROM rollouts WHERE ($1::bigint IS NULL OR rollout_id = $1) AND ($2::text[] IS NULL OR state = ANY($2)) \
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

fn state_of(word: &str) -> Option<RolloutState> {
    Some(match word {
        "active" => RolloutState::Active,
        "paused" => RolloutState::Paused,
        "succeeded" => RolloutState::Succeeded,
        "aborted" => RolloutState::Aborted,
        _ => return None,
    })
}

/// The state's word in the database and for humans.
pub(super) fn state_word(state: RolloutState) -> &'static str {
    match state {
        RolloutState::Active => "active",
        RolloutState::Paused => "paused",
        RolloutState::Succeeded => "succeeded",
        RolloutState::Aborted => "aborted",
        RolloutState::Unspecified => "",
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
        let more = items.len() > page_size as usize;
        items.truncate(page_size as usize);
        let next_page_token =
            items.last().filter(|_| more).map_or_else(String::new, |r| r.rollout_id.to_string());
        Ok(Page { items, next_page_token, revision: self.head().await?.revision })
    }
}
