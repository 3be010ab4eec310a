//! The state of a channel as a reader should see it, derived from its own status and those beneath it; for both planes.
//!
//! A throttle whose time has passed reads as active. A channel is out by its own status, or because its last usable
//! credential is out; an ability status takes out that model, with a credential only that key for it, and never the
//! channel. Leases (`probing`) are the store's to add.

#[cfg(test)]
mod tests;

use std::sync::Arc;

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

/// The status that takes a subject out at `now`.
pub fn out<'a>(items: &'a Items, subject: &Subject, now: &Timestamp) -> Option<&'a Arc<pb::Status>> {
    items.status(subject).filter(|status| is_out(status, now))
}

/// The status that takes a channel out at `now`: its own, or where all its credentials are out the mildest of theirs.
pub fn channel_out<'a>(
    items: &'a Items,
    channel: &pb::Channel,
    now: &Timestamp,
) -> Option<&'a Arc<pb::Status>> {
    let own = out(items, &Subject::Channel(ChannelId(channel.channel_id)), now);
    own.or_else(|| {
        let keys = keys_out(items, channel, now);
        if keys.len() < channel.credential_ids.len() {
            return None;
        }
        keys.into_iter().min_by_key(|status| (out_cause(status, now), until_key(status)))
    })
}

/// The statuses that take credentials of a channel out at `now`.
fn keys_out<'a>(items: &'a Items, channel: &pb::Channel, now: &Timestamp) -> Vec<&'a Arc<pb::Status>> {
    let keys = channel.credential_ids.iter().map(|id| Subject::Credential(CredentialId(*id)));
    keys.filter_map(|key| out(items, &key, now)).collect()
}

/// The channels a subject lies beneath, or is shared by.
pub fn channels_of<'a>(
    items: &'a Items,
    subject: &'a Subject,
) -> Box<dyn Iterator<Item = &'a Arc<pb::Channel>> + 'a> {
    match subject {
        Subject::Channel(id) | Subject::Ability { channel: id, .. } => {
            Box::new(items.channel(*id).into_iter())
        }
        Subject::Credential(id) => {
            Box::new(items.channels().map(|(_, c)| c).filter(|c| c.credential_ids.contains(&id.0)))
        }
    }
}

/// The state of one channel at `now`, by the same clock as the statuses' times.
pub fn channel_state(items: &Items, channel: &pb::Channel, now: &Timestamp) -> ChannelState {
    let id = ChannelId(channel.channel_id);
    let own = items.status(&Subject::Channel(id));
    let total = u32::try_from(channel.credential_ids.len()).unwrap_or(u32::MAX);
    let out = u32::try_from(keys_out(items, channel, now).len()).unwrap_or(u32::MAX);
    let why = channel_out(items, channel, now);
    ChannelState {
        cause: why.and_then(|status| out_cause(status, now)),
        reason: why.map(|status| status.reason.clone()).unwrap_or_default(),
        since: why.and_then(|status| status.disabled_at),
        until: why.and_then(|status| status.retry_at),
        usable: total.saturating_sub(out),
        total,
        degraded: own.is_some_and(|s| s.degraded) || items.ability_statuses(id).any(|(_, s)| s.degraded),
    }
}

/// Whether a model of a channel can be served at `now`: the channel is in, and so is the model with one of its keys.
pub fn model_usable(items: &Items, channel: &pb::Channel, model: &str, now: &Timestamp) -> bool {
    let id = ChannelId(channel.channel_id);
    let out = |subject: &Subject| out(items, subject, now).is_some();
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
