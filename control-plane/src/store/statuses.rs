//! Statuses: operators' enables and disables, and what a changed channel does to those beneath it.

use serde_json::{Value, json};
use spareline_core::{ChannelId, CredentialId, Subject};
use spareline_proto::registry::v1 as pb;

use super::events::Item;
use super::rows::{self, Key, StatusRow, status_columns};
use super::{ChannelKey, Result, StoreError, Tx};
use crate::decide::{self, State, Status};

/// What an enable did.
#[derive(Clone, Debug, PartialEq)]
pub struct Enabled {
    /// The subject's new status.
    pub status: pb::Status,
    /// Automatic statuses beneath a channel that were cleared.
    pub cleared: Vec<pb::Status>,
    /// What stays out beneath it, because an operator disabled it.
    pub still_disabled: Vec<pb::Status>,
}

impl Tx {
    /// Makes a subject serve. Always writes, and raises the fence, even of an active subject; on a channel it clears every
    /// automatic status beneath it, and fences its credentials.
    ///
    /// # Errors
    /// `NotFound` for subjects that are not in the registry.
    pub async fn enable(&mut self, subject: &Subject, comment: &str) -> Result<Enabled> {
        self.check_subject(subject).await?;
        if let Subject::Channel(id) = subject {
            let channel = self.channel(&ChannelKey::Id(id.0)).await?;
            let (cleared, still_disabled) = self.clear_beneath(&channel, comment).await?;
            let status = self.enable_one(subject, comment).await?;
            return Ok(Enabled { status, cleared, still_disabled });
        }
        let status = self.enable_one(subject, comment).await?;
        Ok(Enabled { status, cleared: Vec::new(), still_disabled: Vec::new() })
    }

    /// Takes a subject out until a human brings it back. Repeated with the same comment it changes nothing.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn disable(&mut self, subject: &Subject, comment: &str) -> Result<pb::Status> {
        self.check_subject(subject).await?;
        let old = self.status(subject).await?;
        let next = decide::disabled(&old, &self.actor, comment, self.now, self.revision);
        let same = old.state == State::Disabled
            && (old.cause, &old.reason, &old.actor) == (next.cause, &next.reason, &next.actor);
        if same {
            return Ok(rows::message(subject, &old, false));
        }
        self.publish("subject.disabled", subject, &next, json!({ "comment": comment })).await
    }

    async fn enable_one(&mut self, subject: &Subject, comment: &str) -> Result<pb::Status> {
        let old = self.status(subject).await?;
        let next = decide::enabled(&old, &self.actor, self.revision);
        self.publish(
            "subject.enabled",
            subject,
            &next,
            json!({ "comment": comment, "was": old.cause.map(spareline_core::Cause::as_str) }),
        )
        .await
    }

    /// Clears what machines decided about a channel's abilities and credentials, and fences them. Answers what was cleared
    /// and what an operator keeps out.
    pub(super) async fn clear_beneath(
        &mut self,
        channel: &pb::Channel,
        why: &str,
    ) -> Result<(Vec<pb::Status>, Vec<pb::Status>)> {
        let id = channel.channel_id;
        let found: Vec<StatusRow> = sqlx::query_as(concat!(
            "SELECT ",
            status_columns!(),
            " FROM statuses s WHERE (s.subject_kind = 'ability' AND s.subject_id = $1) \
             OR (s.subject_kind = 'credential' AND s.subject_id = ANY($2)) ORDER BY 1, 2, 3, 4"
        ))
        .bind(id)
        .bind(&channel.credential_ids)
        .fetch_all(self.conn())
        .await?;
        let (mut cleared, mut kept) = (Vec::new(), Vec::new());
        let mut seen = std::collections::BTreeSet::new();
        for row in found {
            let subject = row.subject()?;
            let status = row.status()?;
            seen.insert(subject.clone());
            if status.state == State::Disabled && !decide::is_automatic(&status) {
                kept.push(rows::message(&subject, &status, false));
                continue;
            }
            let automatic = decide::is_automatic(&status);
            let next = decide::enabled(&status, &self.actor, self.revision);
            let detail = json!({ "comment": why, "was": status.cause.map(spareline_core::Cause::as_str) });
            let message = self.publish("subject.cleared", &subject, &next, detail).await?;
            if automatic {
                cleared.push(message);
            }
        }
        // A verdict about a key that is still on its way names no channel: the key itself needs the fence.
        for credential in &channel.credential_ids {
            let subject = Subject::Credential(CredentialId(*credential));
            if !seen.contains(&subject) {
                let next = decide::enabled(&Status::default(), &self.actor, self.revision);
                self.publish("subject.cleared", &subject, &next, json!({ "comment": why })).await?;
            }
        }
        Ok((cleared, kept))
    }

    /// The same for the channel's own status. What an operator disabled stays.
    pub(super) async fn clear_own(&mut self, channel: i64, why: &str) -> Result<()> {
        let own = Subject::Channel(ChannelId(channel));
        let old = self.status(&own).await?;
        if old.state == State::Active || decide::is_automatic(&old) {
            let next = decide::enabled(&old, &self.actor, self.revision);
            self.publish("subject.cleared", &own, &next, json!({ "comment": why })).await?;
        }
        Ok(())
    }

    /// The same for one model of a channel.
    pub(super) async fn clear_ability(&mut self, channel: i64, model: &str, why: &str) -> Result<()> {
        let found: Vec<StatusRow> = sqlx::query_as(concat!(
            "SELECT ",
            status_columns!(),
            " FROM statuses s WHERE s.subject_kind = 'ability' AND s.subject_id = $1 AND s.model = $2"
        ))
        .bind(channel)
        .bind(model)
        .fetch_all(self.conn())
        .await?;
        let whole = Subject::Ability { channel: ChannelId(channel), model: model.into(), credential: None };
        let mut all = vec![(whole.clone(), Status::default())];
        for row in found {
            let subject = row.subject()?;
            let status = row.status()?;
            if subject == whole {
                all[0].1 = status;
            } else {
                all.push((subject, status));
            }
        }
        for (subject, status) in all {
            if status.state == State::Active || decide::is_automatic(&status) {
                let next = decide::enabled(&status, &self.actor, self.revision);
                self.publish("subject.cleared", &subject, &next, json!({ "comment": why })).await?;
            }
        }
        Ok(())
    }

    /// The row of a subject; the default where there is none.
    pub(super) async fn status(&mut self, subject: &Subject) -> Result<Status> {
        let key = Key::from(subject);
        let row: Option<StatusRow> = sqlx::query_as(concat!(
            "SELECT ",
            status_columns!(),
            " FROM statuses s WHERE s.subject_kind = $1 AND s.subject_id = $2 AND s.model = $3 AND s.credential_id = $4"
        ))
        .bind(key.kind)
        .bind(key.id)
        .bind(key.model)
        .bind(key.credential)
        .fetch_optional(self.conn())
        .await?;
        row.map_or_else(|| Ok(Status::default()), StatusRow::status)
    }

    /// Writes a status under this transaction's revision, with its event.
    pub(super) async fn publish(
        &mut self,
        kind: &'static str,
        subject: &Subject,
        status: &Status,
        mut detail: Value,
    ) -> Result<pb::Status> {
        let status = Status { revision: self.revision, ..status.clone() };
        rows::put(self.conn(), subject, &status).await?;
        let channels = self.channels_beside(subject).await?;
        self.touched.extend(channels.iter().copied());
        if let Value::Object(map) = &mut detail {
            map.retain(|_, v| !v.is_null() && v.as_str() != Some(""));
            map.insert("status".into(), described(&status));
        }
        self.event(kind, Item::Status(subject.clone()), channels, detail);
        Ok(rows::message(subject, &status, false))
    }

    /// The channels a subject belongs to.
    pub(super) async fn channels_beside(&mut self, subject: &Subject) -> Result<Vec<i64>> {
        match subject {
            Subject::Channel(id) | Subject::Ability { channel: id, .. } => Ok(vec![id.0]),
            Subject::Credential(id) => self.channels_of(&[id.0]).await,
        }
    }

    /// Forgets statuses of subjects that leave the registry.
    pub(super) async fn remove_statuses(&mut self, subjects: &[Subject], channels: Vec<i64>) -> Result<()> {
        for subject in subjects {
            let key = Key::from(subject);
            let published: Option<i64> = sqlx::query_scalar(
                "DELETE FROM statuses WHERE subject_kind = $1 AND subject_id = $2 AND model = $3 AND credential_id = $4 \
                 RETURNING revision",
            )
            .bind(key.kind)
            .bind(key.id)
            .bind(key.model)
            .bind(key.credential)
            .fetch_optional(self.conn())
            .await?;
            if published.is_some_and(|revision| revision > 0) {
                self.event("subject.removed", Item::Status(subject.clone()), channels.clone(), json!({}));
            }
        }
        Ok(())
    }

    /// Forgets statuses of a channel's abilities: of one model, with one credential, or all of them.
    pub(super) async fn remove_ability_statuses(
        &mut self,
        channel: i64,
        model: Option<&str>,
        credential: Option<i64>,
    ) -> Result<()> {
        let found: Vec<(String, i64)> = sqlx::query_as(
            "SELECT model, credential_id FROM statuses WHERE subject_kind = 'ability' AND subject_id = $1 \
             AND ($2::text IS NULL OR model = $2) AND ($3::bigint IS NULL OR credential_id = $3) ORDER BY 1, 2",
        )
        .bind(channel)
        .bind(model)
        .bind(credential)
        .fetch_all(self.conn())
        .await?;
        let subjects: Vec<Subject> = found
            .into_iter()
            .map(|(model, credential)| rows::subject("ability", channel, &model, credential))
            .collect::<Result<_>>()?;
        self.remove_statuses(&subjects, vec![channel]).await
    }

    /// Whether the subject is in the registry.
    pub(super) async fn check_subject(&mut self, subject: &Subject) -> Result<()> {
        let key = Key::from(subject);
        let found: bool = match subject {
            Subject::Channel(_) => {
                sqlx::query_scalar(
                    "SELECT EXISTS (SELECT 1 FROM channels WHERE channel_id = $1 AND deleted_at IS NULL)",
                )
                .bind(key.id)
                .fetch_one(self.conn())
                .await?
            }
            Subject::Credential(_) => {
                sqlx::query_scalar(
                    "SELECT EXISTS (SELECT 1 FROM credentials WHERE credential_id = $1 AND retired_revision IS NULL)",
                )
                .bind(key.id)
                .fetch_one(self.conn())
                .await?
            }
            Subject::Ability { .. } => {
                sqlx::query_scalar(
                    "SELECT EXISTS (SELECT 1 FROM abilities WHERE channel_id = $1 AND model = $2) AND ($3 = 0 OR EXISTS \
                     (SELECT 1 FROM channel_credentials WHERE channel_id = $1 AND credential_id = $3))",
                )
                .bind(key.id)
                .bind(&key.model)
                .bind(key.credential)
                .fetch_one(self.conn())
                .await?
            }
        };
        if found { Ok(()) } else { Err(StoreError::NotFound(describe(subject))) }
    }
}

/// A status in an event: what an operator asks, and all that a replay needs.
fn described(status: &Status) -> Value {
    let mut out = json!({ "state": status.state.as_str(), "fence_revision": status.fence });
    if let Value::Object(map) = &mut out {
        if let Some(cause) = status.cause {
            map.insert("cause".into(), cause.as_str().into());
            map.insert("reason".into(), status.reason.clone().into());
        }
        if let Some(at) = status.retry_at {
            let text = at.format(&time::format_description::well_known::Rfc3339).unwrap_or_default();
            map.insert("retry_at".into(), text.into());
        }
        if status.degraded {
            map.insert("degraded".into(), true.into());
        }
        if status.hinted {
            map.insert("hinted".into(), true.into());
        }
        if let Some(evidence) = status.evidence.as_ref().and_then(|e| super::json::to_json(e).ok()) {
            map.insert("evidence".into(), evidence);
        }
    }
    out
}

/// A subject for humans.
pub(super) fn describe(subject: &Subject) -> String {
    match subject {
        Subject::Channel(id) => format!("channel {id}"),
        Subject::Credential(id) => format!("credential {id}"),
        Subject::Ability { channel, model, credential: None } => {
            format!("model {model:?} of channel {channel}")
        }
        Subject::Ability { channel, model, credential: Some(c) } => {
            format!("model {model:?} of channel {channel} with credential {c}")
        }
    }
}
