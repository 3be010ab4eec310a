//! A rollout as it is stored, and what that means: who sees it, what it touches.

use std::sync::Arc;

use spareline_core::{ChannelId, Revision};
use spareline_proto::admin::v1::{RolloutState, Stage};
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::registry::v1 as pb;
use time::OffsetDateTime;

use super::super::abilities;
use crate::rollout::cohort::{Cohort, Reach};
use crate::rollout::step::Standing;
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

    /// Where it stands, for the decision what it does next.
    pub(crate) fn standing(&self) -> Standing<'_> {
        Standing { state: self.state, stages: &self.stages, current: self.current, started: self.started_at }
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

    pub(super) fn overlay(&self) -> Overlay {
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

/// The state of a word in the database.
pub(super) fn state_of(word: &str) -> Option<RolloutState> {
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
