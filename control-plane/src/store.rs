//! The database: channels, credentials, policies, statuses and their one commit-ordered revision.
//!
//! Invariants: every change of the registry goes through [`Store::write`], which holds the head's row lock from before
//! its first read until the commit, so that revisions become visible in the order they were handed out; one
//! transaction takes at most one revision, and none if it changed nothing; each changed item leaves an event, by which
//! replicas follow. Secrets enter here and leave only through [`Store::load`] and [`Store::changes_since`].
//!
//! It does not decide (that is `decide`), validate specs by themselves (that is `spareline_core::convert`),
//! nor speak to anyone but Postgres. A lost database is [`StoreError::Unavailable`], never a panic.

mod abilities;
mod channels;
mod combine;
mod connect;
mod credentials;
mod error;
mod events;
mod facts;
mod health;
mod json;
mod last;
mod listen;
mod load;
mod policies;
mod probes;
mod proxies;
mod read;
mod resolve;
mod rollouts;
mod rows;
mod secrets;
mod statuses;
mod tx;
mod verdicts;

pub use channels::ChannelKey;
pub use connect::{Store, StoreOptions};
pub use credentials::NewCredential;
pub use error::StoreError;
pub use events::EventFilter;
pub use health::HealthResult;
pub use listen::{Hint, Listener};
pub use load::{ChangeSet, Changes, Head, Snapshot};
pub use probes::{Claim, ProbeResult};
pub(crate) use proxies::MAX_NAME;
pub use proxies::ProxyRow;
pub use read::{ChannelFilter, Page};
pub use rollouts::{ChangeRow, Lease, NewChange, RolloutRow, SpecRecord, Target as RolloutTarget};
pub(crate) use rows::timestamp;
pub(crate) use secrets::problem as problem_of_secret;
pub use statuses::Enabled;
pub use tx::{Request, Tx, Work, Written};
pub use verdicts::VerdictsResult;

/// A result of the store.
pub type Result<T> = std::result::Result<T, StoreError>;

#[cfg(test)]
mod tests;
