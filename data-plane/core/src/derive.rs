//! The state of a channel as a reader should see it, derived from its own status and those beneath it.
//!
//! A throttle whose time has passed reads as active. A channel is out by its own status, or because its last usable
//! credential is out; an ability status takes out that model, with a credential only that key for it, and never the
//! channel. Leases (`probing`) are the store's to add.

#[cfg(test)]
mod tests;

use prost_types::Timestamp;
use spareline_proto::registry::v1 as pb;

use crate::convert;
use crate::ids::{ChannelId, CredentialId, Subject};
use crate::items::Items;
use crate::words::Cause;

/// Where a channel stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelState {
    /// Out, and why; where its credentials are why, the mildest cause. `None`: active.
    pub cause: Option<Cause>,
    /// One line for humans.
    pub reason: String,
    /// Since when it is out.
    pub since: Option<Timestamp>,
    /// Until when, or when the next probe is due.
    pub until: Option<Timestamp>,
    /// Credentials that can be used now.
    pub usable: u32,
    /// Credentials it lists.
    pub total: u32,
    /// Used, but failing.
    pub degraded: bool,
}

/// Why a status takes its subject out at `now`; `None`: it does not.
pub fn out_cause(status: &pb::Status, now: &Timestamp) -> Option<Cause> {
    let cause = convert::status(status).ok()?.cause?;
    let over = cause == Cause::Throttled
        && status.retry_at.as_ref().is_some_and(|at| convert::nanos_between(at, now) >= 0);
    (!over).then_some(cause)
}

/// Whether a status takes its subject out at `now`.
pub fn is_out(status: &pb::Status, now: &Timestamp) -> bool {
    out_cause(status, now).is_some()
}

/// The state of one channel at `now`, by the same clock as the statuses' times.
pub fn channel_state(items: &Items, channel: &pb::Channel, now: &Timestamp) -> ChannelState {
    let id = ChannelId(channel.channel_id);
    let own = items.status(&Subject::Channel(id));
    let keys = channel.credential_ids.iter().map(|c| items.status(&Subject::Credential(CredentialId(*c))));
    let outs: Vec<_> = keys.flatten().filter_map(|s| Some((out_cause(s, now)?, s))).collect();
    let total = u32::try_from(channel.credential_ids.len()).unwrap_or(u32::MAX);
    let state = ChannelState {
        usable: total.saturating_sub(u32::try_from(outs.len()).unwrap_or(u32::MAX)),
        total,
        degraded: own.is_some_and(|s| s.degraded) || items.ability_statuses(id).any(|(_, s)| s.degraded),
        ..Default::default()
    };
    let mildest = outs.into_iter().min_by_key(|(cause, s)| (*cause, until_key(s)));
    match own.and_then(|s| Some((out_cause(s, now)?, s))) {
        Some((cause, status)) => state.out(cause, status),
        None => match mildest {
            Some((cause, status)) if state.usable == 0 => state.out(cause, status),
            _ => state,
        },
    }
}

/// Whether a model of a channel can be served at `now`: the channel is in, and so is the model with one of its keys.
pub fn model_usable(items: &Items, channel: &pb::Channel, model: &str, now: &Timestamp) -> bool {
    let id = ChannelId(channel.channel_id);
    let out = |subject: &Subject| items.status(subject).is_some_and(|s| is_out(s, now));
    let ability = |credential| Subject::Ability { channel: id, model: model.into(), credential };
    let keys = channel.credential_ids.iter().map(|c| CredentialId(*c));
    let mut usable = keys.filter(|c| !out(&Subject::Credential(*c)) && !out(&ability(Some(*c))));
    !out(&Subject::Channel(id))
        && !out(&ability(None))
        && (channel.credential_ids.is_empty() || usable.next().is_some())
}

fn until_key(status: &pb::Status) -> (i64, i32) {
    status.retry_at.as_ref().map_or((i64::MAX, 0), |t| (t.seconds, t.nanos))
}

impl ChannelState {
    fn out(self, cause: Cause, status: &pb::Status) -> Self {
        Self {
            cause: Some(cause),
            reason: status.reason.clone(),
            since: status.disabled_at,
            until: status.retry_at,
            ..self
        }
    }
}
