//! The one writer path.

use std::future::Future;
use std::pin::Pin;

use sqlx::{PgConnection, Postgres, Transaction};
use time::OffsetDateTime;
use uuid::Uuid;

use super::events::Event;
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
pub struct Tx {
    pub(super) inner: Transaction<'static, Postgres>,
    pub(super) actor: String,
    pub(super) epoch: Uuid,
    pub(super) revision: i64,
    pub(super) now: OffsetDateTime,
    pub(super) key: super::secrets::SecretKey,
    pub(super) events: Vec<Event>,
    pub(super) dry: bool,
}

impl Tx {
    /// The revision that this transaction's changes get.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The epoch.
    pub fn epoch(&self) -> Uuid {
        self.epoch
    }

    /// The database's clock, read when the lock was taken.
    pub fn now(&self) -> OffsetDateTime {
        self.now
    }

    /// Who is writing, for the audit log.
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Check everything, write nothing: the transaction is rolled back at its end (`validate_only`).
    pub fn dry_run(&mut self) {
        self.dry = true;
    }

    pub(super) fn conn(&mut self) -> &mut PgConnection {
        &mut self.inner
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
        let _ = (actor, work);
        todo!()
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
        let _ = (actor, request, work);
        todo!()
    }
}

#[allow(dead_code)]
type _Unused = Result<()>;
