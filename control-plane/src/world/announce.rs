//! Says in the log what changed in the fleet's serving state, whoever changed it.
//!
//! `status_changed` for every subject whose state or cause turned; `channel_disabled` and `channel_recovered` where a
//! channel's own, derived state did. Each replica says so once per change, when it starts to tell the proxies.

use std::collections::BTreeSet;

use prost_types::Timestamp;
use spareline_core::items::Items;
use spareline_core::{ChannelId, Subject, convert, derive};
use spareline_proto::registry::v1 as pb;

/// Logs what turned between two worlds of one history.
pub(super) fn changes(before: &Items, after: &Items, now: &Timestamp) {
    let delta = before.diff(after);
    let mut touched = BTreeSet::new();
    for status in &delta.statuses {
        let Some(subject) = status.subject.as_ref().and_then(convert::subject) else { continue };
        let names: Vec<_> = derive::channels_of(after, &subject).map(|c| c.name.as_str()).collect();
        touched.extend(derive::channels_of(after, &subject).map(|c| ChannelId(c.channel_id)));
        let old = before.status(&subject);
        let turned = |f: fn(&pb::Status) -> i32| old.map_or(0, |s| f(s)) != f(status);
        let was_active = old.is_none_or(|s| s.state() == pb::ServingState::Active);
        let is_active = status.state() == pb::ServingState::Active;
        if (was_active && is_active) || !(turned(|s| s.state) || turned(|s| s.cause)) {
            continue;
        }
        tracing::info!(
            event = "status_changed",
            subject = %describe(&subject),
            channels = %names.join(","),
            state = word(status.state),
            cause = cause_word(status),
            reason = %status.reason,
            actor = %status.actor,
            revision = status.revision,
            "{} is {}", describe(&subject), word(status.state)
        );
    }
    touched.extend(delta.channels.iter().map(|c| ChannelId(c.channel_id)));
    for id in touched {
        let (Some(old), Some(new)) = (before.channel(id), after.channel(id)) else { continue };
        let (was, is) = (derive::channel_out(before, old, now), derive::channel_out(after, new, now));
        match (was, is) {
            (None, Some(why)) => tracing::info!(
                event = "channel_disabled",
                channel = %new.name,
                cause = cause_word(why),
                reason = %why.reason,
                actor = %why.actor,
                "channel {} is out", new.name
            ),
            (Some(_), None) => {
                tracing::info!(event = "channel_recovered", channel = %new.name, "channel {} is back", new.name);
            }
            _ => {}
        }
    }
}

/// A subject, for logs: `channel:3`, `credential:4`, `ability:3/model`, `ability:3/model#4`.
pub(crate) fn describe(subject: &Subject) -> String {
    match subject {
        Subject::Channel(id) => format!("channel:{id}"),
        Subject::Credential(id) => format!("credential:{id}"),
        Subject::Ability { channel, model, credential: None } => format!("ability:{channel}/{model}"),
        Subject::Ability { channel, model, credential: Some(credential) } => {
            format!("ability:{channel}/{model}#{credential}")
        }
    }
}

fn word(state: i32) -> &'static str {
    if state == pb::ServingState::Disabled as i32 { "disabled" } else { "active" }
}

fn cause_word(status: &pb::Status) -> &'static str {
    convert::cause(status.cause).map_or("", |cause| cause.as_str())
}
