//! Work that exactly one replica does, with a token that outlives whoever held it.

use std::time::Duration;

use super::super::{Result, Store, StoreError, Tx};

/// The right to do some work, until somebody else gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which work.
    pub name: &'static str,
    /// Grows with every change of hands.
    pub token: i64,
}

impl Store {
    /// Takes or renews a lease for so long; `None` while another holds it.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn lease(&self, name: &'static str, holder: &str, term: Duration) -> Result<Option<Lease>> {
        let token: Option<i64> = sqlx::query_scalar(
            "INSERT INTO leases AS l (name, holder, token, expires_at) \
             VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3)) \
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at, \
             token = l.token + CASE WHEN l.holder = excluded.holder THEN 0 ELSE 1 END \
             WHERE l.holder = excluded.holder OR l.expires_at < clock_timestamp() RETURNING token",
        )
        .bind(name)
        .bind(holder)
        .bind(term.as_secs_f64())
        .fetch_optional(&self.registry)
        .await?;
        Ok(token.map(|token| Lease { name, token }))
    }
}

impl Tx {
    /// Makes this transaction the holder's: nobody takes the lease over before it has ended.
    ///
    /// # Errors
    /// `Precondition` when somebody has taken it over.
    pub async fn hold(&mut self, lease: &Lease) -> Result<()> {
        let held: Option<i64> =
            sqlx::query_scalar("SELECT token FROM leases WHERE name = $1 AND token = $2 FOR SHARE")
                .bind(lease.name)
                .bind(lease.token)
                .fetch_optional(self.conn())
                .await?;
        let lost = || StoreError::Precondition(format!("the lease {:?} is somebody else's", lease.name));
        held.map(|_| ()).ok_or_else(lost)
    }
}
