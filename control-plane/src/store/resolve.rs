//! From readable names to subjects and back.

use spareline_core::Subject;
use spareline_proto::admin::v1 as admin;

use super::{Result, Store, Tx};

impl Tx {
    /// Finds what a readable name means: a channel, one of its credentials (by id or fingerprint), one of its models, or a
    /// model with one credential. A credential's id needs no channel.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`.
    pub async fn resolve(&mut self, name: &admin::SubjectName) -> Result<Subject> {
        let _ = name;
        todo!()
    }
}

impl Store {
    /// As [`Tx::resolve`], without the lock.
    ///
    /// # Errors
    /// `NotFound`, `Invalid`.
    pub async fn resolve(&self, name: &admin::SubjectName) -> Result<Subject> {
        let _ = name;
        todo!()
    }
}
