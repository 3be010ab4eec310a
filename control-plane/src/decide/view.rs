//! A channel's own state, derived for readers from its status and those of its credentials.

use spareline_core::{Cause, Subject};
use spareline_proto::{admin::v1 as admin, registry::v1 as pb};
use time::OffsetDateTime;

use super::Status;

/// Everything needed to show a channel.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The spec.
    pub channel: pb::Channel,
    /// Its credentials, by rank, without secrets.
    pub credentials: Vec<pb::Credential>,
    /// Everything known beneath it: the row, the message as readers see it, whether a probe lease runs.
    pub statuses: Vec<(Subject, Status, pb::Status)>,
}

/// The channel as an operator wants to see it. Out by its own status, or because its last usable credential is.
pub(crate) fn channel_view(of: &Channel, now: OffsetDateTime) -> admin::ChannelView {
    let find = |wanted: &Subject| of.statuses.iter().find(|(subject, _, _)| subject == wanted);
    let own = find(&Subject::Channel(spareline_core::ChannelId(of.channel.channel_id)));
    let keys: Vec<_> = of
        .credentials
        .iter()
        .map(|c| find(&Subject::Credential(spareline_core::CredentialId(c.credential_id))))
        .collect();
    let out = |entry: &Option<&(Subject, Status, pb::Status)>| entry.is_some_and(|(_, s, _)| s.is_out(now));
    let usable = keys.iter().filter(|k| !out(k)).count();

    // The one that explains the channel's state: its own, else the mildest of its keys when all are out.
    let why = if out(&own) {
        own
    } else if !keys.is_empty() && usable == 0 {
        keys.iter().flatten().copied().min_by_key(|(_, s, _)| {
            (s.cause.unwrap_or(Cause::Operator), s.retry_at.unwrap_or(OffsetDateTime::UNIX_EPOCH))
        })
    } else {
        None
    };
    let probing = |entry: &(Subject, Status, pb::Status)| entry.2.state() == pb::ServingState::Probing;
    let state = match why {
        Some(entry) if probing(entry) => pb::ServingState::Probing,
        Some(_) => pb::ServingState::Disabled,
        None => pb::ServingState::Active,
    };
    let shown = why.map(|(_, _, message)| message);
    admin::ChannelView {
        channel: Some(of.channel.clone()),
        state: state.into(),
        cause: shown.map_or(0, |s| s.cause),
        reason: shown.map_or_else(String::new, |s| s.reason.clone()),
        since: shown.and_then(|s| s.disabled_at),
        until: shown.and_then(|s| s.retry_at),
        credentials_usable: u32::try_from(usable).unwrap_or(u32::MAX),
        credentials_total: u32::try_from(keys.len()).unwrap_or(u32::MAX),
        statuses: of.statuses.iter().map(|(_, status, message)| shown_status(status, message, now)).collect(),
    }
}

/// A status as operators see it: a throttle whose time is over reads as active, tidied or not.
fn shown_status(status: &Status, message: &pb::Status, now: OffsetDateTime) -> pb::Status {
    if !status.throttle_over(now) {
        return message.clone();
    }
    pb::Status {
        state: pb::ServingState::Active.into(),
        cause: pb::Cause::Unspecified.into(),
        reason: String::new(),
        disabled_at: None,
        retry_at: None,
        hinted: false,
        evidence: None,
        ..message.clone()
    }
}
