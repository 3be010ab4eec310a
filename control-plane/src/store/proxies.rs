//! The proxies the fleet has, as they last introduced themselves.

use std::time::Duration;

use spareline_proto::dataplane::v1 as dp;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Result, Store};

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

impl Store {
    /// Writes many rows at once (once a second per replica). `last_seen_at` is ignored: the database's clock counts.
    /// A newer session of the same proxy id is not overwritten by an older one: returns the proxy ids whose row belongs to
    /// another, newer live session.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn put_proxies(&self, rows: &[ProxyRow]) -> Result<Vec<String>> {
        let _ = rows;
        todo!()
    }

    /// Marks sessions as ended; rows of other sessions stay.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn end_sessions(&self, sessions: &[Uuid]) -> Result<()> {
        let _ = sessions;
        todo!()
    }

    /// All proxies, by id, and the database's clock. Connected: has a session and was seen within 35 s.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn proxies(&self) -> Result<(Vec<ProxyRow>, OffsetDateTime)> {
        todo!()
    }

    /// Forgets proxies not seen for so long.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn forget_proxies(&self, older_than: Duration) -> Result<u64> {
        let _ = older_than;
        todo!()
    }
}
