//! What the world is made of: everything at one revision, and what changed since.

use spareline_proto::{dataplane::v1 as dp, registry::v1 as pb};
use uuid::Uuid;

use super::{Result, Store};

/// Where the registry's history stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Changes when history is not continuous.
    pub epoch: Uuid,
    /// Commit-ordered.
    pub revision: i64,
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
}

impl Store {
    /// Where the registry stands.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn head(&self) -> Result<Head> {
        todo!()
    }

    /// Everything, in one snapshot transaction.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn load(&self) -> Result<Snapshot> {
        todo!()
    }

    /// What changed since `since`, in one snapshot transaction.
    ///
    /// # Errors
    /// `Unavailable`, `Corrupt`.
    pub async fn changes_since(&self, since: Head) -> Result<Changes> {
        let _ = since;
        todo!()
    }

    /// Starts a new epoch, after a restore or a failover that lost commits; the id sequences move on as well.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn new_epoch(&self, actor: &str) -> Result<Head> {
        let _ = actor;
        todo!()
    }
}
