//! Staged changes: who sees a candidate, when a rollout moves on, and when it stops.
//!
//! [`cohort`], [`gate`], [`step`] and [`blame`] decide and are pure; [`controller`] carries out, one replica at a time. Invariants:
//! a cohort never shrinks while its rollout lasts; missing evidence holds; whatever is unclear pauses rather than
//! spreads. The rows, and who may change what meanwhile, are the store's.

pub(crate) mod blame;
pub(crate) mod cohort;
pub(crate) mod controller;
pub(crate) mod gate;
pub(crate) mod step;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use spareline_core::items::{Item, ItemKey, Items};
use spareline_core::{ChannelId, Revision};
use spareline_proto::registry::v1 as pb;

pub(crate) use cohort::Cohort;
pub(crate) use controller::control;

/// A rollout that lasts, as the world shows it to its cohort.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// The rollout.
    pub rollout_id: i64,
    /// When it last changed.
    pub revision: Revision,
    /// Who sees it.
    pub cohort: Cohort,
    /// What they see.
    pub changes: Vec<Staged>,
}

/// One candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Staged {
    /// In place of the channel, or a new one.
    Channel(Arc<pb::Channel>),
    /// The channel is gone.
    NoChannel(ChannelId),
    /// In place of the policy, or a new one.
    Policy(Arc<pb::Policy>),
}

impl Overlay {
    /// Lays the candidates over a registry.
    pub fn lay(&self, items: &mut Items) {
        for change in &self.changes {
            match change {
                Staged::Channel(channel) => {
                    items.insert(Item::Channel(channel.clone()));
                }
                Staged::Policy(policy) => {
                    items.insert(Item::Policy(policy.clone()));
                }
                Staged::NoChannel(id) => items.remove(&ItemKey::Channel(*id)),
            }
        }
    }
}
