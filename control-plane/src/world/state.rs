//! What readers derive from statuses: whether a subject, or a whole channel, is out at a moment.

use std::sync::Arc;
use std::time::SystemTime;

use spareline_core::items::Items;
use spareline_core::{ChannelId, CredentialId, Subject};
use spareline_proto::registry::v1 as pb;

/// Whether a status takes its subject out at `now`: a throttle whose time is over does not.
pub fn is_out(status: &pb::Status, now: SystemTime) -> bool {
    let over = |at: &prost_types::Timestamp| SystemTime::try_from(*at).is_ok_and(|at| at <= now);
    status.state() == pb::ServingState::Disabled
        && !(status.cause() == pb::Cause::Throttled && status.retry_at.as_ref().is_none_or(over))
}

/// The status that takes a subject out at `now`.
pub fn out<'a>(items: &'a Items, subject: &Subject, now: SystemTime) -> Option<&'a Arc<pb::Status>> {
    items.status(subject).filter(|status| is_out(status, now))
}

/// What takes a channel out: its own status, or its last usable credential's.
pub fn channel_out<'a>(
    items: &'a Items,
    channel: &pb::Channel,
    now: SystemTime,
) -> Option<&'a Arc<pb::Status>> {
    if let Some(own) = out(items, &Subject::Channel(ChannelId(channel.channel_id)), now) {
        return Some(own);
    }
    let mut last = None;
    for credential in &channel.credential_ids {
        last = Some(out(items, &Subject::Credential(CredentialId(*credential)), now)?);
    }
    last
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
