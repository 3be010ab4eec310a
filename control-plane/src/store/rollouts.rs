//! Rollouts: rows, what followers read of them, and the evidence by which they move.
//!
//! A candidate is a row of `channel_specs` that `channels` does not point at; a channel that only a rollout has is a deleted one
//! until the rollout succeeds. The database keeps that a channel or a policy is in one active rollout at most.

mod blamed;
mod change;
mod evidence;
mod guard;
mod history;
mod lease;
mod promote;
mod read;
mod row;

pub use change::NewChange;
pub use history::SpecRecord;
pub use lease::Lease;
pub use row::{ChangeRow, RolloutRow, Target};

pub(super) use blamed::{Blamed, Candidates};
pub(super) use read::overlays;

use read::find;
use row::state_word;
