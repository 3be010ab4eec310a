//! Rows of `statuses` and the messages they become.

use spareline_core::{Cause, ChannelId, CredentialId, Subject, convert};
use spareline_proto::registry::v1 as pb;
use sqlx::{FromRow, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Result, StoreError, json};
use crate::decide::{Pending, State, Status};

/// A subject as the four columns of its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: &'static str,
    pub(super) id: i64,
    pub(super) model: String,
    pub(super) credential: i64,
}

impl From<&Subject> for Key {
    fn from(subject: &Subject) -> Key {
        match subject {
            Subject::Channel(id) => Key { kind: "channel", id: id.0, model: String::new(), credential: 0 },
            Subject::Credential(id) => {
                Key { kind: "credential", id: id.0, model: String::new(), credential: 0 }
            }
            Subject::Ability { channel, model, credential } => Key {
                kind: "ability",
                id: channel.0,
                model: model.to_string(),
                credential: credential.map_or(0, |c| c.0),
            },
        }
    }
}

/// The subject of a key's columns.
pub(super) fn subject(kind: &str, id: i64, model: &str, credential: i64) -> Result<Subject> {
    match kind {
        "channel" => Ok(Subject::Channel(ChannelId(id))),
        "credential" => Ok(Subject::Credential(CredentialId(id))),
        "ability" => Ok(Subject::Ability {
            channel: ChannelId(id),
            model: model.into(),
            credential: (credential != 0).then_some(CredentialId(credential)),
        }),
        other => Err(StoreError::Corrupt(format!("subject kind {other:?}"))),
    }
}

/// The subject of a message; `None` when it names none, or one that no database could hold.
pub(super) fn subject_of(message: Option<&pb::Subject>) -> Option<Subject> {
    convert::subject(message?).filter(|subject| match subject {
        Subject::Ability { model, .. } => !model.contains('\0'),
        Subject::Channel(_) | Subject::Credential(_) => true,
    })
}

/// A point in time as a message.
pub(crate) fn timestamp(at: OffsetDateTime) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.unix_timestamp(),
        nanos: i32::try_from(at.nanosecond()).unwrap_or(0),
    }
}

/// The columns of a status, in the order nobody depends on.
macro_rules! status_columns {
    () => {
        "s.subject_kind, s.subject_id, s.model, s.credential_id, s.state, s.degraded, s.cause, s.reason, s.actor, \
         s.evidence, s.disabled_at, s.last_probed_at, s.retry_at, s.hinted, s.failed_probes, s.throttles, \
         s.throttled_until, s.revision, s.fence_revision, s.pending_cause, s.pending_reason, s.pending_actor, \
         s.pending_evidence, s.pending_since, s.pending_suppressed, s.due_at, s.probe_lease, \
         coalesce(s.probe_lease_until > clock_timestamp(), false) AS probing"
    };
}
pub(super) use status_columns;

/// A row of `statuses`.
#[derive(Debug, FromRow)]
pub(super) struct StatusRow {
    subject_kind: String,
    subject_id: i64,
    model: String,
    credential_id: i64,
    state: String,
    degraded: bool,
    cause: String,
    reason: String,
    actor: String,
    evidence: Option<serde_json::Value>,
    disabled_at: Option<OffsetDateTime>,
    last_probed_at: Option<OffsetDateTime>,
    retry_at: Option<OffsetDateTime>,
    hinted: bool,
    failed_probes: i32,
    throttles: i32,
    throttled_until: Option<OffsetDateTime>,
    revision: i64,
    fence_revision: i64,
    pending_cause: String,
    pending_reason: String,
    pending_actor: String,
    pending_evidence: Option<serde_json::Value>,
    pending_since: Option<OffsetDateTime>,
    pending_suppressed: bool,
    due_at: Option<OffsetDateTime>,
    pub(super) probe_lease: Option<Uuid>,
    pub(super) probing: bool,
}

impl StatusRow {
    pub(super) fn subject(&self) -> Result<Subject> {
        subject(&self.subject_kind, self.subject_id, &self.model, self.credential_id)
    }

    /// The row's content.
    pub(super) fn status(self) -> Result<Status> {
        let pending = match cause(&self.pending_cause)? {
            Some(cause) => Some(Pending {
                cause,
                reason: self.pending_reason,
                actor: self.pending_actor,
                evidence: self.pending_evidence.map(json::from_json).transpose()?,
                since: self.pending_since.unwrap_or(OffsetDateTime::UNIX_EPOCH),
                suppressed: self.pending_suppressed,
            }),
            None => None,
        };
        Ok(Status {
            state: if self.state == "disabled" { State::Disabled } else { State::Active },
            cause: cause(&self.cause)?,
            reason: self.reason,
            actor: self.actor,
            evidence: self.evidence.map(json::from_json).transpose()?,
            degraded: self.degraded,
            disabled_at: self.disabled_at,
            last_probed_at: self.last_probed_at,
            retry_at: self.retry_at,
            hinted: self.hinted,
            failed_probes: u32::try_from(self.failed_probes).unwrap_or(0),
            throttles: u32::try_from(self.throttles).unwrap_or(0),
            throttled_until: self.throttled_until,
            revision: self.revision,
            fence: self.fence_revision,
            pending_due: pending.as_ref().and(self.due_at),
            pending,
        })
    }
}

fn cause(word: &str) -> Result<Option<Cause>> {
    if word.is_empty() {
        return Ok(None);
    }
    word.parse().map(Some).map_err(|_| StoreError::Corrupt(format!("cause {word:?}")))
}

/// The status as proxies and operators see it. `probing`: a probe lease runs (never said to proxies).
pub(super) fn message(subject: &Subject, status: &Status, probing: bool) -> pb::Status {
    let state = match status.state {
        State::Active => pb::ServingState::Active,
        State::Disabled if probing => pb::ServingState::Probing,
        State::Disabled => pb::ServingState::Disabled,
    };
    pb::Status {
        subject: Some(convert::subject_ref(subject)),
        state: state.into(),
        cause: status.cause.map_or(pb::Cause::Unspecified, convert::cause_ref).into(),
        reason: status.reason.clone(),
        disabled_at: status.disabled_at.map(timestamp),
        last_probed_at: status.last_probed_at.map(timestamp),
        retry_at: status.retry_at.map(timestamp),
        degraded: status.degraded,
        hinted: status.hinted,
        revision: status.revision,
        fence_revision: status.fence,
        actor: status.actor.clone(),
        evidence: status.evidence.clone(),
    }
}

/// Writes a row whole and clears its probe lease.
pub(super) async fn put(conn: &mut PgConnection, subject: &Subject, status: &Status) -> Result<()> {
    let key = Key::from(subject);
    let evidence = status.evidence.as_ref().map(json::to_json).transpose()?;
    let pending = status.pending.as_ref();
    let pending_evidence = pending.and_then(|p| p.evidence.as_ref()).map(json::to_json).transpose()?;
    sqlx::query(
        "INSERT INTO statuses (subject_kind, subject_id, model, credential_id, state, degraded, cause, reason, actor, \
         evidence, disabled_at, last_probed_at, retry_at, hinted, failed_probes, throttles, throttled_until, revision, \
         fence_revision, pending_cause, pending_reason, pending_actor, pending_evidence, pending_since, \
         pending_suppressed, due_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, \
         $24, $25, $26) \
         ON CONFLICT (subject_kind, subject_id, model, credential_id) DO UPDATE SET state = $5, degraded = $6, cause = $7, \
         reason = $8, actor = $9, evidence = $10, disabled_at = $11, last_probed_at = $12, retry_at = $13, hinted = $14, \
         failed_probes = $15, throttles = $16, throttled_until = $17, revision = $18, fence_revision = $19, \
         pending_cause = $20, pending_reason = $21, pending_actor = $22, pending_evidence = $23, pending_since = $24, \
         pending_suppressed = $25, due_at = $26, probe_lease = NULL, probe_lease_until = NULL",
    )
    .bind(key.kind)
    .bind(key.id)
    .bind(key.model)
    .bind(key.credential)
    .bind(status.state.as_str())
    .bind(status.degraded)
    .bind(status.cause.map_or("", Cause::as_str))
    .bind(&status.reason)
    .bind(&status.actor)
    .bind(evidence)
    .bind(status.disabled_at)
    .bind(status.last_probed_at)
    .bind(status.retry_at)
    .bind(status.hinted)
    .bind(i32::try_from(status.failed_probes).unwrap_or(i32::MAX))
    .bind(i32::try_from(status.throttles).unwrap_or(i32::MAX))
    .bind(status.throttled_until)
    .bind(status.revision)
    .bind(status.fence)
    .bind(pending.map_or("", |p| p.cause.as_str()))
    .bind(pending.map_or("", |p| p.reason.as_str()))
    .bind(pending.map_or("", |p| p.actor.as_str()))
    .bind(pending_evidence)
    .bind(pending.map(|p| p.since))
    .bind(pending.is_some_and(|p| p.suppressed))
    .bind(status.due_at())
    .execute(conn)
    .await?;
    Ok(())
}
