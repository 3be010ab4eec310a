//! Policies: one per group and one for all.

use spareline_proto::registry::v1 as pb;

use super::{Result, Store, Tx};

impl Tx {
    /// One policy as stored, if there is one. Empty group: the global one.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn policy(&mut self, group: &str) -> Result<Option<pb::Policy>> {
        let _ = group;
        todo!()
    }

    /// Creates or replaces a validated policy; a non-empty `etag` must match. The same content again changes nothing.
    ///
    /// # Errors
    /// `Conflict`.
    pub async fn put_policy(&mut self, policy: pb::Policy) -> Result<pb::Policy> {
        let _ = policy;
        todo!()
    }

    /// Removes a group's policy.
    ///
    /// # Errors
    /// `NotFound`; `Precondition` for the global one.
    pub async fn delete_policy(&mut self, group: &str) -> Result<()> {
        let _ = group;
        todo!()
    }
}

impl Store {
    /// One policy as stored, if there is one.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn policy(&self, group: &str) -> Result<Option<pb::Policy>> {
        let _ = group;
        todo!()
    }

    /// All policies, the global one first.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn policies(&self) -> Result<Vec<pb::Policy>> {
        todo!()
    }
}
