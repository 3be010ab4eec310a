//! The one writer path.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;

use sqlx::{PgConnection, Postgres, Transaction};
use time::OffsetDateTime;
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::connect::TURN;
use super::events::Event;
use super::secrets::SecretKey;
use super::{Result, Store, StoreError};

/// What [`Store::write`] runs: a future that borrows the transaction.
pub type Work<'t, T, E> = Pin<Box<dyn Future<Output = std::result::Result<T, E>> + Send + 't>>;

/// A write's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written<T> {
    /// What the work returned.
    pub value: T,
    /// The head after it: the new revision if anything changed.
    pub revision: i64,
    /// Whether anything changed.
    pub changed: bool,
}

/// A call that carries a request id: repeated, it gets the first call's answer.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The id.
    pub id: Uuid,
    /// The method, for telling reuse from repetition.
    pub method: &'static str,
    /// The encoded request. Only a keyed hash of it is kept.
    pub body: &'a [u8],
}

/// A transaction that holds the head lock. Only [`Store::write`] makes one.
#[derive(Debug)]
pub struct Tx {
    inner: Transaction<'static, Postgres>,
    _turn: OwnedSemaphorePermit,
    pub(super) actor: String,
    pub(super) epoch: Uuid,
    pub(super) revision: i64,
    pub(super) now: OffsetDateTime,
    pub(super) key: SecretKey,
    pub(super) events: Vec<Event>,
    /// Channels whose abilities have to be projected anew.
    pub(super) touched: BTreeSet<i64>,
    dry: bool,
    /// Events of an earlier revision of this transaction were written already.
    recorded: bool,
}

impl Tx {
    /// Check everything, write nothing: the transaction is rolled back at its end (`validate_only`).
    pub fn dry_run(&mut self) {
        self.dry = true;
    }

    pub(super) fn conn(&mut self) -> &mut PgConnection {
        &mut self.inner
    }

    /// Goes on under one more revision, so that two contents of one item get two versions. Something must have happened under
    /// the one before, and has to under this one: revisions stay free of gaps.
    pub(super) async fn next_revision(&mut self) -> Result<()> {
        if !self.events.is_empty() {
            self.record().await?;
            self.recorded = true;
            self.revision += 1;
        }
        Ok(())
    }

    /// Projects, bumps, records, commits. Nothing recorded: no revision.
    async fn finish(mut self) -> Result<(i64, bool)> {
        if self.dry {
            let head = self.revision - 1;
            self.inner.rollback().await?;
            return Ok((head, false));
        }
        self.project().await?;
        let changed = self.recorded || !self.events.is_empty();
        if changed {
            sqlx::query("UPDATE registry_head SET revision = $1")
                .bind(self.revision)
                .execute(&mut *self.inner)
                .await?;
            self.record().await?;
        }
        let head = if changed { self.revision } else { self.revision - 1 };
        self.inner.commit().await?;
        Ok((head, changed))
    }
}

impl Store {
    /// Runs `work` under the head lock and commits what it did, under one new revision if it changed anything.
    ///
    /// `actor` goes into the audit log. No I/O but the transaction's belongs inside `work`.
    ///
    /// # Errors
    /// Whatever `work` returns, after a rollback; [`StoreError::Unavailable`] when the database is lost.
    pub async fn write<T, E>(
        &self,
        actor: &str,
        work: impl for<'t> FnOnce(&'t mut Tx) -> Work<'t, T, E> + Send,
    ) -> std::result::Result<Written<T>, E>
    where
        E: From<StoreError>,
    {
        let mut tx = self.begin(actor).await?;
        let value = work(&mut tx).await?; // an error drops the transaction, which rolls back
        let (revision, changed) = self.end(tx).await?;
        Ok(Written { value, revision, changed })
    }

    /// As [`Store::write`], once per request id: a repetition gets the stored answer and changes nothing.
    ///
    /// # Errors
    /// As [`Store::write`]; [`StoreError::RequestReused`] when the id came with another method or body. Errors are not
    /// stored: a repetition of a failed call runs again.
    pub async fn write_once<M, E>(
        &self,
        actor: &str,
        request: Option<Request<'_>>,
        work: impl for<'t> FnOnce(&'t mut Tx) -> Work<'t, M, E> + Send,
    ) -> std::result::Result<Written<M>, E>
    where
        M: prost::Message + Default,
        E: From<StoreError>,
    {
        let Some(request) = request else { return self.write(actor, work).await };
        let hash = self.key.hash("request", request.body)?;
        let mut tx = self.begin(actor).await?;
        if let Some(response) = seen(&mut tx, request, &hash).await? {
            let value = M::decode(response.as_slice())
                .map_err(|e| StoreError::Corrupt(format!("stored response: {e}")))?;
            return Ok(Written { value, revision: tx.revision - 1, changed: false });
        }
        let value = work(&mut tx).await?;
        if !tx.dry {
            sqlx::query(
                "INSERT INTO requests (request_id, method, body_hash, response) VALUES ($1, $2, $3, $4)",
            )
            .bind(request.id)
            .bind(request.method)
            .bind(&hash)
            .bind(value.encode_to_vec())
            .execute(tx.conn())
            .await
            .map_err(StoreError::from)?;
        }
        let (revision, changed) = self.end(tx).await?;
        Ok(Written { value, revision, changed })
    }

    pub(super) async fn begin(&self, actor: &str) -> Result<Tx> {
        let turn = tokio::time::timeout(TURN, self.writers.clone().acquire_owned());
        let Ok(Ok(turn)) = turn.await else { return Err(StoreError::silent()) };
        let mut inner = self.registry.begin().await?;
        // The clock is read outside the locking query, hence after the wait.
        let (epoch, revision, now): (Uuid, i64, OffsetDateTime) = sqlx::query_as(
            "WITH head AS MATERIALIZED (SELECT epoch, revision FROM registry_head FOR UPDATE) \
             SELECT epoch, revision, clock_timestamp() FROM head",
        )
        .fetch_one(&mut *inner)
        .await?;
        Ok(Tx {
            inner,
            _turn: turn,
            actor: actor.to_owned(),
            epoch,
            revision: revision + 1,
            now,
            key: self.key.clone(),
            events: Vec::new(),
            touched: BTreeSet::new(),
            dry: false,
            recorded: false,
        })
    }

    /// Commits: the head after it, and whether it moved.
    pub(super) async fn end(&self, tx: Tx) -> Result<(i64, bool)> {
        let (revision, changed) = tx.finish().await?;
        self.announce(revision, changed);
        Ok((revision, changed))
    }

    fn announce(&self, revision: i64, changed: bool) {
        if changed {
            self.committed.send_if_modified(|newest| {
                let newer = revision > *newest;
                *newest = revision.max(*newest);
                newer
            });
        }
    }
}

async fn seen(tx: &mut Tx, request: Request<'_>, hash: &[u8]) -> Result<Option<Vec<u8>>> {
    let row: Option<(String, Vec<u8>, Vec<u8>)> =
        sqlx::query_as("SELECT method, body_hash, response FROM requests WHERE request_id = $1")
            .bind(request.id)
            .fetch_optional(tx.conn())
            .await?;
    match row {
        None => Ok(None),
        Some((method, body, response)) if method == request.method && body == hash => Ok(Some(response)),
        Some(_) => Err(StoreError::RequestReused),
    }
}
