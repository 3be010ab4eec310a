//! What proxies report from under a candidate: read with a batch, decided by [`crate::rollout::blame`], charged under the lock.

use std::collections::{BTreeSet, HashMap};

use spareline_core::Subject;
use spareline_proto::registry::v1 as pb;
use sqlx::PgConnection;

use super::super::channels;
use super::super::{Result, Tx};
use crate::rollout::blame::{Case, Seen, blames};

/// The candidates among the specs that a batch names. Rollouts that succeeded have none: theirs is the registry.
#[derive(Debug, Default)]
pub(in super::super) struct Candidates {
    by_revision: HashMap<i64, Vec<Candidate>>,
    /// Baselines, by the keys that they list.
    sharing: HashMap<i64, Vec<pb::Channel>>,
}

#[derive(Debug)]
struct Candidate {
    rollout_id: i64,
    active: bool,
    spec: pb::Channel,
    baseline: Option<pb::Channel>,
}

#[derive(sqlx::FromRow)]
struct Row {
    rollout_id: i64,
    channel_id: i64,
    spec_revision: i64,
    spec: serde_json::Value,
    state: String,
    baseline_revision: Option<i64>,
    baseline: Option<serde_json::Value>,
}

/// The rollouts that a report counts against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Blamed {
    /// All of them.
    pub(in super::super) rollouts: BTreeSet<i64>,
    /// Those that are spreading: to be paused.
    pub(in super::super) active: BTreeSet<i64>,
}

impl Candidates {
    /// Reads what is known of these spec revisions; of keys, who lists them.
    pub(in super::super) async fn read(
        conn: &mut PgConnection,
        specs: impl Iterator<Item = i64>,
        subjects: &[Subject],
    ) -> Result<Candidates> {
        let specs: BTreeSet<i64> = specs.filter(|r| *r > 0).collect();
        if specs.is_empty() {
            return Ok(Candidates::default());
        }
        let rows: Vec<Row> = sqlx::query_as(
            "SELECT r.rollout_id, r.channel_id, r.spec_revision, s.spec, o.state, b.spec_revision AS baseline_revision, \
             b.spec AS baseline FROM rollout_specs r JOIN rollouts o USING (rollout_id) \
             JOIN channel_specs s USING (channel_id, spec_revision) \
             LEFT JOIN channels c ON c.channel_id = r.channel_id AND c.deleted_at IS NULL \
             LEFT JOIN channel_specs b ON b.channel_id = c.channel_id AND b.spec_revision = c.spec_revision \
             WHERE r.spec_revision = ANY($1) AND o.state <> 'succeeded'",
        )
        .bind(specs.into_iter().collect::<Vec<_>>())
        .fetch_all(&mut *conn)
        .await?;
        if rows.is_empty() {
            return Ok(Candidates::default());
        }
        let mut found = Candidates { sharing: sharing(conn, subjects).await?, ..Candidates::default() };
        for row in rows {
            let baseline = row.baseline_revision.zip(row.baseline);
            let candidate = Candidate {
                rollout_id: row.rollout_id,
                active: row.state == "active",
                spec: channels::decode((row.channel_id, row.spec_revision, row.spec))?,
                baseline: baseline.map(|(r, s)| channels::decode((row.channel_id, r, s))).transpose()?,
            };
            found.by_revision.entry(row.spec_revision).or_default().push(candidate);
        }
        Ok(found)
    }

    /// The rollouts that something counts against; none: it is about the registry.
    pub(in super::super) fn blamed(
        &self,
        spec_revision: i64,
        subject: &Subject,
        seen: Seen,
    ) -> Option<Blamed> {
        let concerned = |c: &&Candidate| match subject {
            Subject::Channel(id) | Subject::Ability { channel: id, .. } => id.0 == c.spec.channel_id,
            Subject::Credential(key) => c.spec.credential_ids.contains(&key.0),
        };
        let none = Vec::new();
        let sharing = match subject {
            Subject::Credential(key) => self.sharing.get(&key.0).unwrap_or(&none),
            _ => &none,
        };
        let mut blamed = Blamed::default();
        for candidate in self.by_revision.get(&spec_revision)?.iter().filter(concerned) {
            let baseline = candidate.baseline.as_ref();
            if blames(&Case { candidate: &candidate.spec, baseline, sharing }, subject, seen) {
                blamed.rollouts.insert(candidate.rollout_id);
                if candidate.active {
                    blamed.active.insert(candidate.rollout_id);
                }
            }
        }
        (!blamed.rollouts.is_empty()).then_some(blamed)
    }
}

async fn sharing(conn: &mut PgConnection, subjects: &[Subject]) -> Result<HashMap<i64, Vec<pb::Channel>>> {
    let keys: Vec<i64> = subjects
        .iter()
        .filter_map(|s| if let Subject::Credential(id) = s { Some(id.0) } else { None })
        .collect();
    let rows: Vec<(i64, i64, i64, serde_json::Value)> = sqlx::query_as(
        "SELECT k.credential_id, c.channel_id, c.spec_revision, s.spec FROM channel_credentials k JOIN channels c USING (channel_id) \
         JOIN channel_specs s USING (channel_id, spec_revision) WHERE c.deleted_at IS NULL AND k.credential_id = ANY($1)",
    )
    .bind(&keys)
    .fetch_all(conn)
    .await?;
    let mut found: HashMap<i64, Vec<pb::Channel>> = HashMap::new();
    for (key, channel, revision, spec) in rows {
        found.entry(key).or_default().push(channels::decode((channel, revision, spec))?);
    }
    Ok(found)
}

impl Tx {
    /// Pauses the rollouts that something counts against.
    pub(in super::super) async fn charge(&mut self, blamed: &Blamed, why: &str) -> Result<()> {
        for rollout in &blamed.active {
            self.pause_rollout(*rollout, why).await?;
        }
        Ok(())
    }
}
