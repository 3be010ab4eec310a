//! Which lines to ask about a subject: channel, model and key, the most telling first. Pure.

use std::sync::Arc;

use prost_types::Timestamp;
use spareline_core::items::Items;
use spareline_core::secret::Secret;
use spareline_core::spec::{ChannelSpec, ModelSpec};
use spareline_core::{Cause, ChannelId, CredentialId, Subject};
use spareline_core::{convert, derive};

/// Most lines asked for one subject.
const MOST: usize = 4;
/// Most models asked on one channel.
const MODELS: usize = 2;

/// One way to ask.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The channel.
    pub channel: Arc<ChannelSpec>,
    /// The model.
    pub model: Arc<ModelSpec>,
    /// The key to send; none for a channel without.
    pub secret: Option<Secret>,
}

/// The lines for a subject; empty where nobody can be asked.
pub(crate) fn lines(items: &Items, subject: &Subject, now: &Timestamp) -> Vec<Line> {
    let mut lines = match subject {
        Subject::Credential(id) => of_credential(items, *id, now),
        Subject::Channel(id) => {
            let Some(channel) = spec(items, *id) else { return Vec::new() };
            let keys = keys(items, &channel, now, true);
            cross(&channel, &models(items, &channel, now), &keys)
        }
        Subject::Ability { channel, model, credential } => {
            let Some(channel) = spec(items, *channel) else { return Vec::new() };
            let Some(model) = channel.model(model).cloned() else { return Vec::new() };
            let keys = match credential {
                Some(id) => secret(items, *id).map(Some).into_iter().collect(),
                // A dead key tells nothing of a model.
                None => keys(items, &channel, now, false),
            };
            cross(&channel, &[model], &keys)
        }
    };
    lines.truncate(MOST);
    lines
}

/// The lines of one channel with one key.
pub(crate) fn of_channel(channel: Arc<ChannelSpec>, secret: Option<Secret>) -> Vec<Line> {
    let models = preferred(&channel, |_| true);
    cross(&channel, &models, &[secret])
}

fn of_credential(items: &Items, id: CredentialId, now: &Timestamp) -> Vec<Line> {
    let Some(secret) = secret(items, id) else { return Vec::new() };
    let subject = Subject::Credential(id);
    let mut channels: Vec<_> = derive::channels_of(items, &subject)
        .filter_map(|channel| {
            let out = derive::out(items, &Subject::Channel(ChannelId(channel.channel_id)), now).is_some();
            spec(items, ChannelId(channel.channel_id)).map(|spec| (out, spec))
        })
        .collect();
    channels.sort_by_key(|(out, _)| *out);
    let lines = |(_, channel): &(bool, Arc<ChannelSpec>)| {
        cross(channel, &models(items, channel, now), &[Some(secret.clone())])
    };
    channels.iter().flat_map(lines).collect()
}

fn cross(channel: &Arc<ChannelSpec>, models: &[Arc<ModelSpec>], keys: &[Option<Secret>]) -> Vec<Line> {
    let line = |model: &Arc<ModelSpec>, secret: &Option<Secret>| Line {
        channel: channel.clone(),
        model: model.clone(),
        secret: secret.clone(),
    };
    models.iter().flat_map(|model| keys.iter().map(move |secret| line(model, secret))).collect()
}

/// `probe_model`, else those whose ability is not out; all of them where every one is.
fn models(items: &Items, channel: &ChannelSpec, now: &Timestamp) -> Vec<Arc<ModelSpec>> {
    preferred(channel, |model| {
        let subject = Subject::Ability { channel: channel.id, model: model.name.clone(), credential: None };
        derive::out(items, &subject, now).is_none()
    })
}

fn preferred(channel: &ChannelSpec, usable: impl Fn(&ModelSpec) -> bool) -> Vec<Arc<ModelSpec>> {
    let named = channel.options.probe_model.as_ref();
    let mut models: Vec<_> = channel.models.to_vec();
    models.sort_by_key(|m| (Some(&m.name) != named && Some(&m.upstream) != named, !usable(m)));
    models.truncate(MODELS);
    models
}

/// The keys to ask with: the usable ones by rank; with `dead_too` the others after them.
fn keys(items: &Items, channel: &ChannelSpec, now: &Timestamp, dead_too: bool) -> Vec<Option<Secret>> {
    if channel.credentials.is_empty() {
        return vec![None];
    }
    let out = |id: &CredentialId| {
        let status = derive::out(items, &Subject::Credential(*id), now);
        // A throttled key lives.
        status.is_some_and(|s| convert::cause(s.cause) != Some(Cause::Throttled))
    };
    let (dead, usable): (Vec<&CredentialId>, Vec<&CredentialId>) =
        channel.credentials.iter().partition(|id| out(id));
    let rest = if dead_too { dead } else { Vec::new() };
    usable.into_iter().chain(rest).filter_map(|id| secret(items, *id)).map(Some).collect()
}

fn spec(items: &Items, id: ChannelId) -> Option<Arc<ChannelSpec>> {
    convert::channel(items.channel(id)?).ok().map(Arc::new)
}

fn secret(items: &Items, id: CredentialId) -> Option<Secret> {
    items.credential(id).map(|c| Secret::new(c.secret.as_str()))
}
