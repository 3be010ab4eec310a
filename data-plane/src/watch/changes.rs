//! What a new view changed, said in the log: subjects that went out or came back, and channels whose own state turned.

use std::{collections::BTreeSet, sync::Arc, time::SystemTime};

use prost_types::Timestamp;
use spareline_core::{
    ChannelId, Subject, convert,
    derive::{channel_state, is_out},
    items::ItemKey,
    session::Published,
    view::{Rejection, View},
};
use spareline_proto::registry::v1 as pb;

use crate::{state::Shared, words};

/// Logs one published view.
pub(crate) fn log(shared: &Shared, published: &Published) {
    let (before, view) = (&published.before, &published.view);
    tracing::info!(
        event = "registry_applied",
        revision = view.revision().0,
        epoch = %view.epoch(),
        snapshot = published.snapshot,
        channels = view.items().channel_count(),
        statuses = published.delta.statuses.len(),
        rejected = published.rejections.len(),
        "registry applied"
    );
    rejected(shared, &published.rejections);
    forget(shared, published);
    // What was out before this process began is no news.
    if before.epoch().is_empty() {
        return;
    }
    let now = Timestamp::from(SystemTime::now());
    let mut channels = BTreeSet::new();
    let changed = published.delta.statuses.iter().filter_map(|s| convert::subject(s.subject.as_ref()?));
    let removed = published.delta.removed.iter().filter_map(|key| match key {
        ItemKey::Status(subject) => Some(subject.clone()),
        _ => None,
    });
    for subject in changed.chain(removed) {
        one(&subject, before, view, &now);
        touched(&subject, view, &mut channels);
    }
    for id in channels {
        turned(id, before, view, &now);
    }
}

/// Logs and counts what is not used.
pub(crate) fn rejected(shared: &Shared, rejections: &[Rejection]) {
    for rejection in rejections {
        shared.metrics.rejected_items.inc();
        tracing::error!(
            event = "item_rejected",
            item = ?rejection.key,
            version = rejection.version,
            kept = rejection.kept,
            "an item cannot be used: {}", rejection.message
        );
    }
}

/// Channels that left, or have another name now, leave the metrics too, and so do models.
fn forget(shared: &Shared, published: &Published) {
    let removed = published.delta.removed.iter().filter_map(|key| match key {
        ItemKey::Channel(id) => Some(*id),
        _ => None,
    });
    for id in removed.chain(published.delta.channels.iter().map(|c| ChannelId(c.channel_id))) {
        let name = published.before.line(id).map(|line| &line.spec.name);
        if let Some(name) = name
            && published.view.line(id).is_none_or(|line| line.spec.name != *name)
        {
            shared.metrics.forget_channel(name);
        }
    }
    let table = published.view.table();
    shared.metrics.forget_models(|group, model| table.entry(group, model).is_some());
}

fn one(subject: &Subject, before: &View, view: &View, now: &Timestamp) {
    let out = |status: Option<&Arc<pb::Status>>| {
        status.filter(|s| is_out(s, now)).map(|s| (s.cause(), s.reason.clone(), s.actor.clone()))
    };
    let (was, is) = (out(before.items().status(subject)), out(view.items().status(subject)));
    if was.as_ref().map(|w| w.0) == is.as_ref().map(|i| i.0) {
        return;
    }
    let name = words::subject(subject, view);
    let cause = |cause: pb::Cause| convert::cause(cause.into()).map_or("", |c| c.as_str());
    let actor = view.items().status(subject).map(|s| s.actor.clone()).unwrap_or_default();
    let (state, shown) = match (&is, &was) {
        (Some((c, reason, _)), _) => ("disabled", (cause(*c), reason.as_str())),
        (None, Some((c, _, _))) => ("active", (cause(*c), "")),
        (None, None) => ("active", ("", "")),
    };
    tracing::info!(
        event = "status_changed",
        subject = %name,
        state,
        cause = shown.0,
        reason = shown.1,
        actor = %actor,
        revision = view.revision().0,
        "{name} is {state}"
    );
}

/// The channels that a status may concern.
fn touched(subject: &Subject, view: &View, channels: &mut BTreeSet<ChannelId>) {
    match subject {
        Subject::Channel(id) | Subject::Ability { channel: id, .. } => {
            channels.insert(*id);
        }
        Subject::Credential(key) => {
            channels.extend(view.lines().filter(|l| l.spec.credentials.contains(key)).map(|l| l.spec.id));
        }
    }
}

fn turned(id: ChannelId, before: &View, view: &View, now: &Timestamp) {
    let (Some(was), Some(is)) = (before.items().channel(id), view.items().channel(id)) else { return };
    let was = channel_state(before.items(), was, now);
    let state = channel_state(view.items(), is, now);
    let word = |c: Option<spareline_core::Cause>| c.map_or("", |c| c.as_str());
    match (was.cause, state.cause) {
        (None, Some(_)) => tracing::warn!(
            event = "channel_disabled",
            channel = %is.name,
            cause = word(state.cause),
            reason = %state.reason,
            usable = state.usable,
            total = state.total,
            revision = view.revision().0,
            "channel {} is out: {}", is.name, word(state.cause)
        ),
        (Some(_), None) => tracing::info!(
            event = "channel_recovered",
            channel = %is.name,
            cause = word(was.cause),
            usable = state.usable,
            total = state.total,
            revision = view.revision().0,
            "channel {} is back", is.name
        ),
        _ => {}
    }
}
