//! The proxies the fleet has, as they last introduced themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use spareline_proto::dataplane::v1 as dp;
use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Result, Store, StoreError};

/// Longest text that a proxy may say of itself, in bytes.
pub(crate) const MAX_NAME: usize = 256;
/// A session not seen for so long is over: its replica is gone, or cut off.
const SEEN_WITHIN: Duration = Duration::from_secs(35);

/// One proxy's row.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyRow {
    /// As it introduced itself.
    pub node: dp::Node,
    /// The session; `None`: not connected.
    pub session_id: Option<Uuid>,
    /// The replica holding the session.
    pub replica_id: String,
    /// What it last said it serves.
    pub applied: Option<dp::Position>,
    /// Items it refuses.
    pub rejections: Vec<dp::Rejection>,
    /// When it last said anything, by the database's clock.
    pub last_seen_at: OffsetDateTime,
}

impl ProxyRow {
    /// Whether its session is open, as far as the database knows.
    pub fn is_connected(&self, now: OffsetDateTime) -> bool {
        self.session_id.is_some() && now - self.last_seen_at <= SEEN_WITHIN
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    proxy_id: String,
    instance_id: String,
    session_id: Option<Uuid>,
    replica_id: String,
    build: String,
    labels: Json<BTreeMap<String, String>>,
    groups: Vec<String>,
    features: Vec<String>,
    applied_epoch: Option<String>,
    applied_revision: Option<i64>,
    applied_digest: Option<i64>,
    rejections: Vec<u8>,
    last_seen_at: OffsetDateTime,
}

impl Store {
    /// Opens sessions, of a whole fleet at once after a restart: each takes its row, whoever had it.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn open_sessions(&self, rows: &[ProxyRow]) -> Result<()> {
        self.put(rows, true).await?;
        Ok(())
    }

    /// Writes many rows at once (once a second per replica). `last_seen_at` is ignored: the database's clock counts. Only the
    /// session that opened a row last may write it while it is alive: returns the ids whose row another session holds.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn put_proxies(&self, rows: &[ProxyRow]) -> Result<Vec<String>> {
        let written = self.put(rows, false).await?;
        let lost = rows.iter().map(|r| &r.node.proxy_id).filter(|id| !written.contains(id));
        Ok(lost.cloned().collect())
    }

    /// Answers the ids that were written.
    async fn put(&self, rows: &[ProxyRow], take: bool) -> Result<Vec<String>> {
        // A row twice in one statement is refused: the last one counts. In order, so that replicas do not deadlock.
        let rows: BTreeMap<&str, &ProxyRow> = rows.iter().map(|r| (r.node.proxy_id.as_str(), r)).collect();
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let encoded: Vec<_> = rows.values().map(|row| encode(row)).collect();
        let text = serde_json::Value::Array(encoded);
        Ok(sqlx::query_scalar(
            "INSERT INTO proxies AS p (proxy_id, instance_id, session_id, replica_id, build, labels, groups, features, \
             applied_epoch, applied_revision, applied_digest, rejections, last_seen_at) \
             SELECT proxy_id, instance_id, session_id, replica_id, build, labels, \
               ARRAY(SELECT jsonb_array_elements_text(groups)), ARRAY(SELECT jsonb_array_elements_text(features)), \
               applied_epoch, applied_revision, applied_digest, decode(rejections, 'hex'), clock_timestamp() \
             FROM jsonb_to_recordset($1) AS x (proxy_id text, instance_id text, session_id uuid, replica_id text, build text, \
               labels jsonb, groups jsonb, features jsonb, applied_epoch text, applied_revision bigint, applied_digest bigint, \
               rejections text) \
             ON CONFLICT (proxy_id) DO UPDATE SET instance_id = excluded.instance_id, session_id = excluded.session_id, \
             replica_id = excluded.replica_id, build = excluded.build, labels = excluded.labels, groups = excluded.groups, \
             features = excluded.features, applied_epoch = excluded.applied_epoch, applied_revision = excluded.applied_revision, \
             applied_digest = excluded.applied_digest, rejections = excluded.rejections, last_seen_at = excluded.last_seen_at \
             WHERE $2 OR p.session_id = excluded.session_id OR p.session_id IS NULL \
               OR p.last_seen_at < clock_timestamp() - make_interval(secs => $3) \
             RETURNING proxy_id",
        )
        .bind(text)
        .bind(take)
        .bind(SEEN_WITHIN.as_secs_f64())
        .fetch_all(&self.reports)
        .await?)
    }

    /// Marks sessions as ended; rows of other sessions stay.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn end_sessions(&self, sessions: &[Uuid]) -> Result<()> {
        sqlx::query("UPDATE proxies SET session_id = NULL WHERE session_id = ANY($1)")
            .bind(sessions)
            .execute(&self.reports)
            .await?;
        Ok(())
    }

    /// All proxies, by id, and the database's clock; see [`ProxyRow::is_connected`].
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn proxies(&self) -> Result<(Vec<ProxyRow>, OffsetDateTime)> {
        read(&mut *self.reports.acquire().await?).await
    }

    /// Forgets proxies not seen for so long.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn forget_proxies(&self, older_than: Duration) -> Result<u64> {
        let gone = sqlx::query(
            "DELETE FROM proxies WHERE last_seen_at < clock_timestamp() - make_interval(secs => $1)",
        )
        .bind(older_than.as_secs_f64())
        .execute(&self.reports)
        .await?;
        Ok(gone.rows_affected())
    }
}

/// All proxies, by id, and the database's clock.
pub(super) async fn read(conn: &mut PgConnection) -> Result<(Vec<ProxyRow>, OffsetDateTime)> {
    let rows: Vec<Row> =
        // No `*`: a column that a newer build adds would break the statements prepared before.
        sqlx::query_as(
            "SELECT proxy_id, instance_id, session_id, replica_id, build, labels, groups, features, applied_epoch, \
             applied_revision, applied_digest, rejections, last_seen_at FROM proxies ORDER BY proxy_id COLLATE \"C\"",
        )
        .fetch_all(&mut *conn)
        .await?;
    let now = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(conn).await?;
    Ok((rows.into_iter().map(Row::read).collect::<Result<_>>()?, now))
}

/// A row as JSON, for one statement over many.
fn encode(row: &ProxyRow) -> serde_json::Value {
    let applied = row.applied.as_ref();
    let rejections = dp::Ack { frame: 0, applied: None, rejections: row.rejections.clone() };
    let hex: String = rejections.encode_to_vec().iter().map(|b| format!("{b:02x}")).collect();
    let mut value = serde_json::json!({
        "proxy_id": row.node.proxy_id,
        "instance_id": row.node.instance_id,
        "session_id": row.session_id,
        "replica_id": row.replica_id,
        "build": row.node.build,
        "labels": row.node.labels,
        "groups": row.node.groups,
        "features": row.node.features,
        "applied_epoch": applied.map(|p| &p.epoch),
        "applied_revision": applied.map(|p| p.revision),
        "applied_digest": applied.map(|p| p.digest.cast_signed()),
        "rejections": hex,
    });
    super::json::strip(&mut value);
    value
}

impl Row {
    fn read(self) -> Result<ProxyRow> {
        let rejections = dp::Ack::decode(self.rejections.as_slice())
            .map_err(|e| StoreError::Corrupt(format!("rejections of proxy {:?}: {e}", self.proxy_id)))?
            .rejections;
        let applied = match (self.applied_epoch, self.applied_revision, self.applied_digest) {
            (Some(epoch), Some(revision), Some(digest)) => {
                Some(dp::Position { epoch, revision, digest: digest.cast_unsigned() })
            }
            _ => None,
        };
        Ok(ProxyRow {
            node: dp::Node {
                proxy_id: self.proxy_id,
                instance_id: self.instance_id,
                build: self.build,
                labels: self.labels.0,
                features: self.features,
                groups: self.groups,
            },
            session_id: self.session_id,
            replica_id: self.replica_id,
            applied,
            rejections,
            last_seen_at: self.last_seen_at,
        })
    }
}
