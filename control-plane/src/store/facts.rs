//! What the registry knows of the subjects of a batch: read at once, with or without the lock.

use std::collections::{BTreeSet, HashMap, HashSet};

use spareline_core::Subject;
use spareline_core::policy::FleetPolicy;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::rows::{Key, StatusRow, status_columns};
use super::{Result, policies};
use crate::decide::{Budget, Facts, Known, Status};

/// The facts about some subjects, at one moment.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) rules: FleetPolicy,
    pub(super) now: OffsetDateTime,
    pub(super) epoch: String,
    /// The newest revision.
    pub(super) head: i64,
    /// Rows by subject: those asked for, the abilities that contain them, the channels above them.
    pub(super) statuses: HashMap<Subject, Status>,
    /// Live or deleted, and whether machines may disable it.
    channels: HashMap<i64, (bool, Option<bool>)>,
    /// Live or retired.
    credentials: HashMap<i64, bool>,
    /// The live channels that list a credential.
    lists: HashMap<i64, Vec<i64>>,
    models: HashSet<(i64, String)>,
    none: Status,
}

/// The subject that contains this one: all keys of a model.
fn wider(subject: &Subject) -> Option<Subject> {
    match subject {
        Subject::Ability { channel, model, credential: Some(_) } => {
            Some(Subject::Ability { channel: *channel, model: model.clone(), credential: None })
        }
        _ => None,
    }
}

fn above(subject: &Subject) -> Option<Subject> {
    match subject {
        Subject::Ability { channel, .. } => Some(Subject::Channel(*channel)),
        _ => None,
    }
}

impl Book {
    pub(super) async fn read(conn: &mut PgConnection, subjects: &[Subject]) -> Result<Book> {
        let wanted: BTreeSet<Subject> = subjects
            .iter()
            .flat_map(|s| [Some(s.clone()), wider(s), above(s)].into_iter().flatten())
            .collect();
        let credential_ids: Vec<i64> = wanted
            .iter()
            .filter_map(|s| match s {
                Subject::Credential(id) => Some(id.0),
                Subject::Ability { credential, .. } => credential.map(|c| c.0),
                Subject::Channel(_) => None,
            })
            .collect();
        let (epoch, head, now): (String, i64, OffsetDateTime) =
            sqlx::query_as("SELECT epoch::text, revision, clock_timestamp() FROM registry_head")
                .fetch_one(&mut *conn)
                .await?;
        let listed: Vec<(i64, i64)> = sqlx::query_as(
            "SELECT credential_id, channel_id FROM channel_credentials WHERE credential_id = ANY($1)",
        )
        .bind(&credential_ids)
        .fetch_all(&mut *conn)
        .await?;
        let mut lists: HashMap<i64, Vec<i64>> = HashMap::new();
        for (credential, channel) in listed {
            lists.entry(credential).or_default().push(channel);
        }
        let channel_ids: BTreeSet<i64> = wanted
            .iter()
            .filter_map(|s| match s {
                Subject::Channel(id) | Subject::Ability { channel: id, .. } => Some(id.0),
                Subject::Credential(_) => None,
            })
            .chain(lists.values().flatten().copied())
            .collect();
        let channel_ids: Vec<i64> = channel_ids.into_iter().collect();
        let channels: Vec<(i64, bool, Option<bool>)> = sqlx::query_as(
            "SELECT channel_id, deleted_at IS NULL, auto_disable FROM channels WHERE channel_id = ANY($1)",
        )
        .bind(&channel_ids)
        .fetch_all(&mut *conn)
        .await?;
        let credentials: Vec<(i64, bool)> = sqlx::query_as(
            "SELECT credential_id, retired_revision IS NULL FROM credentials WHERE credential_id = ANY($1)",
        )
        .bind(&credential_ids)
        .fetch_all(&mut *conn)
        .await?;
        let keys: Vec<Key> = wanted.iter().map(Key::from).collect();
        let models: Vec<(i64, String)> = sqlx::query_as(
            "SELECT DISTINCT channel_id, model FROM abilities JOIN unnest($1::bigint[], $2::text[]) AS w (c, m) \
             ON w.c = channel_id AND w.m = model",
        )
        .bind(keys.iter().map(|k| k.id).collect::<Vec<_>>())
        .bind(keys.iter().map(|k| k.model.as_str()).collect::<Vec<_>>())
        .fetch_all(&mut *conn)
        .await?;
        Ok(Book {
            rules: policies::rules(conn).await?,
            now,
            epoch,
            head,
            statuses: statuses(conn, &keys).await?,
            channels: channels.into_iter().map(|(id, live, auto)| (id, (live, auto))).collect(),
            credentials: credentials.into_iter().collect(),
            lists,
            models: models.into_iter().collect(),
            none: Status::default(),
        })
    }

    /// The row of a subject; the default where there is none.
    pub(super) fn status(&self, subject: &Subject) -> &Status {
        self.statuses.get(subject).unwrap_or(&self.none)
    }

    /// Verdicts observed below it are stale.
    pub(super) fn fence(&self, subject: &Subject) -> i64 {
        let of = |s: Option<Subject>| s.map_or(0, |s| self.status(&s).fence);
        self.status(subject).fence.max(of(wider(subject))).max(of(above(subject)))
    }

    pub(super) fn known(&self, subject: &Subject) -> Known {
        let alive = |live: Option<bool>| match live {
            None => Known::Never,
            Some(false) => Known::Gone,
            Some(true) => Known::Live,
        };
        match subject {
            Subject::Channel(id) => alive(self.channels.get(&id.0).map(|(live, _)| *live)),
            Subject::Credential(id) => alive(self.credentials.get(&id.0).copied()),
            Subject::Ability { channel, model, credential } => {
                let channel_known = alive(self.channels.get(&channel.0).map(|(live, _)| *live));
                let key_known =
                    credential.map_or(Known::Live, |c| alive(self.credentials.get(&c.0).copied()));
                match (channel_known, key_known) {
                    (Known::Never, _) | (_, Known::Never) => Known::Never,
                    (Known::Gone, _) | (_, Known::Gone) => Known::Gone,
                    _ => {
                        let listed = credential.is_none_or(|c| {
                            self.lists.get(&c.0).is_some_and(|channels| channels.contains(&channel.0))
                        });
                        let offered = self.models.contains(&(channel.0, model.to_string()));
                        if listed && offered { Known::Live } else { Known::Gone }
                    }
                }
            }
        }
    }

    /// Whether machines may disable it: every channel it would be taken from has to allow it.
    pub(super) fn auto_disable(&self, subject: &Subject) -> bool {
        let channels = match subject {
            Subject::Channel(id) | Subject::Ability { channel: id, .. } => vec![id.0],
            Subject::Credential(id) => self.lists.get(&id.0).cloned().unwrap_or_default(),
        };
        let allowed =
            |id: &i64| self.channels.get(id).and_then(|(_, auto)| *auto).unwrap_or(self.rules.auto_disable);
        if channels.is_empty() { self.rules.auto_disable } else { channels.iter().all(allowed) }
    }

    /// All of it, for the decision on what was observed of a subject at a position.
    pub(super) fn facts(
        &self,
        subject: &Subject,
        (epoch, observed): (&str, i64),
        budget: Budget,
    ) -> Facts<'_> {
        Facts {
            same_history: epoch == self.epoch && observed <= self.head,
            known: self.known(subject),
            status: self.status(subject),
            wider: wider(subject).and_then(|w| self.statuses.get(&w)),
            channel_fence: above(subject).map_or(0, |a| self.status(&a).fence),
            auto_disable: Some(self.auto_disable(subject)),
            budget,
        }
    }
}

async fn statuses(conn: &mut PgConnection, keys: &[Key]) -> Result<HashMap<Subject, Status>> {
    let rows: Vec<StatusRow> = sqlx::query_as(concat!(
        "SELECT ",
        status_columns!(),
        " FROM statuses s JOIN unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[]) AS w (k, i, m, c) \
         ON w.k = s.subject_kind AND w.i = s.subject_id AND w.m = s.model AND w.c = s.credential_id"
    ))
    .bind(keys.iter().map(|k| k.kind).collect::<Vec<_>>())
    .bind(keys.iter().map(|k| k.id).collect::<Vec<_>>())
    .bind(keys.iter().map(|k| k.model.as_str()).collect::<Vec<_>>())
    .bind(keys.iter().map(|k| k.credential).collect::<Vec<_>>())
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(|row| Ok((row.subject()?, row.status()?))).collect()
}

/// The budget now: distinct credentials and abilities out by machine within the window, throttles apart, and how many may
/// be. What is alive is counted only when it matters.
pub(super) async fn budget(conn: &mut PgConnection, rules: &FleetPolicy) -> Result<Budget> {
    let out: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM statuses WHERE state = 'disabled' AND cause NOT IN ('operator', 'throttled') \
         AND disabled_at > clock_timestamp() - make_interval(secs => $1)",
    )
    .bind(rules.budget_window.as_secs_f64())
    .fetch_one(&mut *conn)
    .await?;
    let out = u64::try_from(out).unwrap_or(0);
    if out < u64::from(rules.budget_min) && u64::from(rules.budget_min) >= 1 {
        // The share of the live ones can only allow more. Counted again once these are used up.
        return Ok(Budget { out, allowed: u64::from(rules.budget_min) });
    }
    let live: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(DISTINCT credential_id) FROM channel_credentials) \
         + (SELECT count(*) FROM (SELECT DISTINCT channel_id, model FROM abilities) a)",
    )
    .fetch_one(conn)
    .await?;
    Ok(Budget { out, allowed: rules.budget(u64::try_from(live).unwrap_or(0)) })
}
