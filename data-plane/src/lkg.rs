//! Last known good: the registry on disk, so that a proxy that starts without a control plane serves at once.
//!
//! Two files take turns, so that one of them is whole at every moment: a write goes beside them, is synced and takes the
//! place of the *older* copy. Each is sealed as a whole, since it holds keys of providers, and says how long it is, what
//! it hashes to and what the registry inside adds up to. What does not hold is not used: never half a view.
//!
//! It runs on the control thread; requests never wait for it. A copy that was in use when the process died at its start
//! several times is put aside. Overlays and counts are not kept: they are about the moment.

mod codec;
mod disk;
mod guard;
mod keep;
mod key;
mod restore;
mod seal;
mod slots;
#[cfg(test)]
mod tests;

pub use codec::Refusal;
pub use keep::keep;
pub use restore::{Keeper, restore};

use std::time::SystemTime;

use spareline_proto::dataplane::v1::{WatchResponse, watch_response::Message};

/// How far the server's clock is ahead of ours, in milliseconds, where a message says.
pub(crate) fn clock_offset_ms(message: &WatchResponse, now: SystemTime) -> Option<i64> {
    let server = match message.message.as_ref()? {
        Message::Snapshot(m) => m.server_time,
        Message::Update(m) => m.server_time,
        Message::Checkpoint(m) => m.server_time,
        Message::Welcome(_) | Message::Goodbye(_) => None,
    }?;
    let nanos = spareline_core::convert::nanos_between(&now.into(), &server);
    i64::try_from(nanos / 1_000_000).ok()
}
