//! What the world is made of: everything at one revision, and what changed since.

use serde_json::json;
use spareline_core::{Subject, convert};
use spareline_proto::{dataplane::v1 as dp, registry::v1 as pb};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use super::channels::{self, SpecRow};
use super::events::Item;
use super::policies::{self, PolicyRow};
use super::rows::{self, Key, StatusRow, status_columns};
use super::{Result, Store, StoreError};
use crate::rollout::Overlay;

/// Where the registry's history stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Changes when history is not continuous.
    pub epoch: Uuid,
    /// Commit-ordered.
    pub revision: i64,
    /// When that revision was written: after a lossy failover the same number means something else.
    pub stamp: Option<OffsetDateTime>,
}

/// Everything at one revision. Secrets included.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Where it was read.
    pub head: Head,
    /// All live channels.
    pub channels: Vec<pb::Channel>,
    /// All live credentials, with secrets.
    pub credentials: Vec<pb::Credential>,
    /// All statuses, those that only carry a fence included.
    pub statuses: Vec<pb::Status>,
    /// All policies.
    pub policies: Vec<pb::Policy>,
    /// The rollouts that last, by id.
    pub rollouts: Vec<Overlay>,
}

/// What changed between two revisions: current contents, each item once.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeSet {
    /// Where it leads.
    pub head: Head,
    /// Added or replaced.
    pub channels: Vec<pb::Channel>,
    /// Added.
    pub credentials: Vec<pb::Credential>,
    /// Added or replaced.
    pub statuses: Vec<pb::Status>,
    /// Added or replaced.
    pub policies: Vec<pb::Policy>,
    /// Gone.
    pub removed: Vec<dp::ItemRef>,
    /// All rollouts that last now, by id.
    pub rollouts: Vec<Overlay>,
}

/// The answer to "what happened since".
#[derive(Clone, Debug, PartialEq)]
pub enum Changes {
    /// Nothing.
    None,
    /// These items.
    Some(ChangeSet),
    /// It cannot be told: another epoch, a head behind ours, or events gone. Load everything.
    Reload,
    /// The point asked from is not part of this history, though the epoch is the same: commits were lost, and others have
    /// taken their numbers since.
    Forked(Head),
}

impl Store {
    /// Where the registry stands.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn head(&self) -> Result<Head> {
        Ok(head(&mut *self.registry.acquire().await?).await?.0)
    }

    /// Everything, in one snapshot transaction.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn load(&self) -> Result<Snapshot> {
        let mut tx = self.registry.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let (head, _) = head(&mut tx).await?;
        let snapshot = Snapshot {
            head,
            channels: read_channels(&mut tx, None).await?,
            credentials: read_credentials(&mut tx, None).await?,
            statuses: read_statuses(&mut tx, None).await?,
            policies: read_policies(&mut tx, None).await?,
            rollouts: super::rollouts::overlays(&mut tx).await?,
        };
        tx.commit().await?;
        Ok(snapshot)
    }

    /// What changed since `since`, in one snapshot transaction.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn changes_since(&self, since: Head) -> Result<Changes> {
        let mut tx = self.registry.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let (head, compacted) = head(&mut tx).await?;
        if head == since {
            return Ok(Changes::None);
        }
        if head.epoch != since.epoch || head.revision < since.revision || since.revision < compacted {
            return Ok(Changes::Reload);
        }
        let stamp: Option<OffsetDateTime> =
            sqlx::query_scalar("SELECT created_at FROM events WHERE revision = $1 AND ordinal = 0")
                .bind(since.revision)
                .fetch_optional(&mut *tx)
                .await?;
        if stamp != since.stamp && since.revision > compacted {
            return Ok(Changes::Forked(head));
        }
        let touched: Vec<Touched> = sqlx::query_as(
            "SELECT DISTINCT item, subject_kind, subject_id, model, credential_id, group_name FROM events \
             WHERE revision > $1 AND item <> ''",
        )
        .bind(since.revision)
        .fetch_all(&mut *tx)
        .await?;
        let set = changed(&mut tx, head, touched).await?;
        tx.commit().await?;
        Ok(Changes::Some(set))
    }

    /// Starts a new epoch, after a restore or a failover that lost commits; revisions and ids move on by a million, past
    /// whatever was handed out and lost.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn new_epoch(&self, actor: &str) -> Result<Head> {
        const AHEAD: i64 = 1_000_000;
        let mut tx = self.begin(actor).await?;
        tx.revision += AHEAD;
        let (epoch, revision) = (Uuid::new_v4(), tx.revision);
        for sequence in
            ["channels_channel_id_seq", "credentials_credential_id_seq", "rollouts_rollout_id_seq"]
        {
            sqlx::query("SELECT setval($1::regclass, (SELECT coalesce(last_value, 0) FROM pg_sequences WHERE sequencename = $1) + $2)")
                .bind(sequence)
                .bind(AHEAD)
                .execute(tx.conn())
                .await?;
        }
        sqlx::query("UPDATE registry_head SET epoch = $1, compacted = $2")
            .bind(epoch)
            .bind(revision)
            .execute(tx.conn())
            .await?;
        let nobody = Subject::Channel(spareline_core::ChannelId(0));
        tx.event(
            "registry.new_epoch",
            Item::None(nobody),
            Vec::new(),
            json!({ "was": tx.epoch.to_string(), "epoch": epoch.to_string() }),
        );
        let stamp = Some(tx.now);
        self.end(tx).await?;
        Ok(Head { epoch, revision, stamp })
    }
}

async fn head(conn: &mut PgConnection) -> Result<(Head, i64)> {
    let (epoch, revision, compacted, stamp) = sqlx::query_as(
        "SELECT h.epoch, h.revision, h.compacted, \
         (SELECT e.created_at FROM events e WHERE e.revision = h.revision AND e.ordinal = 0) FROM registry_head h",
    )
    .fetch_one(conn)
    .await?;
    Ok((Head { epoch, revision, stamp }, compacted))
}

#[derive(sqlx::FromRow)]
struct Touched {
    item: String,
    subject_kind: String,
    subject_id: i64,
    model: String,
    credential_id: i64,
    group_name: String,
}

async fn changed(conn: &mut PgConnection, head: Head, touched: Vec<Touched>) -> Result<ChangeSet> {
    let (mut channel_ids, mut credential_ids, mut subjects, mut groups) = (vec![], vec![], vec![], vec![]);
    for t in touched {
        match t.item.as_str() {
            "channel" => channel_ids.push(t.subject_id),
            "credential" => credential_ids.push(t.subject_id),
            "status" => {
                subjects.push(rows::subject(&t.subject_kind, t.subject_id, &t.model, t.credential_id)?);
            }
            "policy" => groups.push(t.group_name),
            other => return Err(StoreError::Corrupt(format!("event item {other:?}"))),
        }
    }
    let channels = read_channels(conn, Some(&channel_ids)).await?;
    let credentials = read_credentials(conn, Some(&credential_ids)).await?;
    let statuses = read_statuses(conn, Some(&subjects)).await?;
    let policies = read_policies(conn, Some(&groups)).await?;

    let mut removed = Vec::new();
    let mut gone = |kind| removed.push(dp::ItemRef { kind: Some(kind) });
    use dp::item_ref::Kind;
    for id in channel_ids.into_iter().filter(|id| !channels.iter().any(|c| c.channel_id == *id)) {
        gone(Kind::ChannelId(id));
    }
    for id in credential_ids.into_iter().filter(|id| !credentials.iter().any(|c| c.credential_id == *id)) {
        gone(Kind::CredentialId(id));
    }
    let present: std::collections::BTreeSet<Subject> =
        statuses.iter().filter_map(|s| rows::subject_of(s.subject.as_ref())).collect();
    for subject in subjects.into_iter().filter(|s| !present.contains(s)) {
        gone(Kind::Status(convert::subject_ref(&subject)));
    }
    for group in groups.into_iter().filter(|g| !policies.iter().any(|p| p.group == *g)) {
        gone(Kind::PolicyGroup(group));
    }
    // Few, and usually none: read whole.
    let rollouts = super::rollouts::overlays(conn).await?;
    Ok(ChangeSet { head, channels, credentials, statuses, policies, removed, rollouts })
}

// Of a change usually one kind of item is asked for, and every proxy waits for the answer: what is not asked for costs no query.

async fn read_channels(conn: &mut PgConnection, ids: Option<&[i64]>) -> Result<Vec<pb::Channel>> {
    if ids.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let rows: Vec<SpecRow> = sqlx::query_as(
        "SELECT c.channel_id, c.spec_revision, s.spec FROM channels c JOIN channel_specs s USING (channel_id, spec_revision) \
         WHERE c.deleted_at IS NULL AND ($1::bigint[] IS NULL OR c.channel_id = ANY($1)) ORDER BY c.channel_id",
    )
    .bind(ids)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(channels::decode).collect()
}

/// Id, sealed secret, which key sealed it, fingerprint, revision.
type CredentialRow = (i64, Option<Vec<u8>>, String, String, i64);

async fn read_credentials(conn: &mut PgConnection, ids: Option<&[i64]>) -> Result<Vec<pb::Credential>> {
    if ids.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let rows: Vec<CredentialRow> = sqlx::query_as(
        "SELECT credential_id, sealed_secret, sealing_key_id, fingerprint, revision FROM credentials \
         WHERE retired_revision IS NULL AND ($1::bigint[] IS NULL OR credential_id = ANY($1)) ORDER BY credential_id",
    )
    .bind(ids)
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(credential_id, sealed, key, fingerprint, revision)| {
            let unreadable = || StoreError::Corrupt(format!("the secret of credential {credential_id}"));
            let sealed = sealed.filter(|_| key == "plain").ok_or_else(unreadable)?;
            let secret = String::from_utf8(sealed).map_err(|_| unreadable())?;
            Ok(pb::Credential { credential_id, secret, fingerprint, revision })
        })
        .collect()
}

async fn read_statuses(conn: &mut PgConnection, subjects: Option<&[Subject]>) -> Result<Vec<pb::Status>> {
    if subjects.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let keys: Option<Vec<Key>> = subjects.map(|s| s.iter().map(Key::from).collect());
    let column = |f: fn(&Key) -> i64| keys.as_ref().map(|k| k.iter().map(f).collect::<Vec<i64>>());
    let kinds: Option<Vec<&str>> = keys.as_ref().map(|k| k.iter().map(|k| k.kind).collect());
    let models: Option<Vec<&str>> = keys.as_ref().map(|k| k.iter().map(|k| k.model.as_str()).collect());
    let rows: Vec<StatusRow> = sqlx::query_as(concat!(
        "SELECT ",
        status_columns!(),
        " FROM statuses s WHERE s.revision > 0 AND ($1::text[] IS NULL OR EXISTS (SELECT 1 FROM \
         unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[]) AS w (k, i, m, c) WHERE w.k = s.subject_kind \
         AND w.i = s.subject_id AND w.m = s.model AND w.c = s.credential_id)) ORDER BY 1, 2, 3, 4"
    ))
    .bind(kinds)
    .bind(column(|k| k.id))
    .bind(models)
    .bind(column(|k| k.credential))
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|row| {
            let subject = row.subject()?;
            Ok(rows::message(&subject, &row.status()?, false))
        })
        .collect()
}

async fn read_policies(conn: &mut PgConnection, groups: Option<&[String]>) -> Result<Vec<pb::Policy>> {
    if groups.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let rows: Vec<PolicyRow> = sqlx::query_as(
        "SELECT group_name, revision, spec FROM policies WHERE $1::text[] IS NULL OR group_name = ANY($1) \
         ORDER BY group_name COLLATE \"C\"",
    )
    .bind(groups)
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(policies::decode).collect()
}
