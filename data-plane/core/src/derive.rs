//! The state of a channel as a reader should see it, derived from its own status and those beneath it.
//!
//! A throttle whose time has passed reads as active. A channel is out by its own status, or because its last usable
//! credential is out; an ability status with a credential takes out that key for that model only. Leases (`probing`)
//! are the store's to add.

use spareline_proto::registry::v1 as pb;

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
    pub since: Option<prost_types::Timestamp>,
    /// Until when, or when the next probe is due.
    pub until: Option<prost_types::Timestamp>,
    /// Credentials that can be used now.
    pub usable: u32,
    /// Credentials it lists.
    pub total: u32,
    /// Used, but failing.
    pub degraded: bool,
}

/// Whether a status takes its subject out at `now`.
pub fn is_out(_status: &pb::Status, _now: &prost_types::Timestamp) -> bool {
    todo!()
}

/// The state of one channel at `now`, by the same clock as the statuses' times.
pub fn channel_state(_items: &Items, _channel: &pb::Channel, _now: &prost_types::Timestamp) -> ChannelState {
    todo!()
}
