//! Statuses: operators' enables and disables, and the projection onto abilities.

use spareline_core::Subject;
use spareline_proto::registry::v1 as pb;

use super::{Result, Tx};

/// What an enable did.
#[derive(Clone, Debug, PartialEq)]
pub struct Enabled {
    /// The subject's new status.
    pub status: pb::Status,
    /// Automatic statuses beneath a channel that were cleared.
    pub cleared: Vec<pb::Status>,
    /// What stays out beneath it, because an operator disabled it.
    pub still_disabled: Vec<pb::Status>,
}

impl Tx {
    /// Makes a subject serve. Always writes, and raises the fence, even of an active subject; on a channel it clears every
    /// automatic status beneath it.
    ///
    /// # Errors
    /// `NotFound` for subjects that are not in the registry.
    pub async fn enable(&mut self, subject: &Subject, comment: &str) -> Result<Enabled> {
        let _ = (subject, comment);
        todo!()
    }

    /// Takes a subject out until a human brings it back. Repeated with the same comment it changes nothing.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn disable(&mut self, subject: &Subject, comment: &str) -> Result<pb::Status> {
        let _ = (subject, comment);
        todo!()
    }
}
