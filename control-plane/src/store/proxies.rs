//! The proxies the fleet has, as they last introduced themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use spareline_proto::dataplane::v1 as dp;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Result, Store, StoreError};

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
    /// Opens a session: the newest one takes the row, whoever had it.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn open_session(&self, row: &ProxyRow) -> Result<()> {
        self.put(row, true).await?;
        Ok(())
    }

    /// Writes many rows (once a second per replica). `last_seen_at` is ignored: the database's clock counts. Only the session
    /// that opened a row last may write it while it is alive: returns the ids whose row another session holds.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn put_proxies(&self, rows: &[ProxyRow]) -> Result<Vec<String>> {
        let mut lost = Vec::new();
        for row in rows {
            if !self.put(row, false).await? {
                lost.push(row.node.proxy_id.clone());
            }
        }
        Ok(lost)
    }

    async fn put(&self, row: &ProxyRow, take: bool) -> Result<bool> {
        let applied = row.applied.as_ref();
        let rejections = dp::Ack { frame: 0, applied: None, rejections: row.rejections.clone() };
        let done = sqlx::query(
            "INSERT INTO proxies AS p (proxy_id, instance_id, session_id, replica_id, build, labels, groups, features, \
             applied_epoch, applied_revision, applied_digest, rejections, last_seen_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, clock_timestamp()) \
             ON CONFLICT (proxy_id) DO UPDATE SET instance_id = $2, session_id = $3, replica_id = $4, build = $5, labels = $6, \
             groups = $7, features = $8, applied_epoch = $9, applied_revision = $10, applied_digest = $11, rejections = $12, \
             last_seen_at = clock_timestamp() \
             WHERE $13 OR p.session_id = $3 OR p.session_id IS NULL OR p.last_seen_at < clock_timestamp() - interval '35 s'",
        )
        .bind(&row.node.proxy_id)
        .bind(&row.node.instance_id)
        .bind(row.session_id)
        .bind(&row.replica_id)
        .bind(&row.node.build)
        .bind(Json(&row.node.labels))
        .bind(&row.node.groups)
        .bind(&row.node.features)
        .bind(applied.map(|p| p.epoch.as_str()))
        .bind(applied.map(|p| p.revision))
        .bind(applied.map(|p| p.digest.cast_signed()))
        .bind(rejections.encode_to_vec())
        .bind(take)
        .execute(&self.reports)
        .await?;
        Ok(done.rows_affected() > 0)
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

    /// All proxies, by id, and the database's clock. Connected: has a session and was seen within 35 s.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn proxies(&self) -> Result<(Vec<ProxyRow>, OffsetDateTime)> {
        let rows: Vec<Row> = sqlx::query_as("SELECT * FROM proxies ORDER BY proxy_id COLLATE \"C\"")
            .fetch_all(&self.reports)
            .await?;
        let now = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&self.reports).await?;
        Ok((rows.into_iter().map(Row::read).collect::<Result<_>>()?, now))
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
