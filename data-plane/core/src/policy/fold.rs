//! Folding the levels of a policy into one, field by field.

use std::time::Duration;

use spareline_proto::registry::v1 as pb;

use super::presets::Preset;
use super::{FleetPolicy, fleet};
use crate::convert::duration_ref;
use crate::limits::Limits;

/// What is in force for a group: its own policy, where unset the global one, where unset the preset and what is built
/// in. `group: None` asks for the global policy itself, with `fleet` filled in.
pub fn effective(global: Option<&pb::Policy>, group: Option<&pb::Policy>) -> pb::Policy {
    let levels = [group, global];
    let named = levels.into_iter().flatten().find_map(|p| p.preset.parse::<Preset>().ok());
    let mut folded = group.or(global).cloned().unwrap_or_default();
    if let Some(global) = global.filter(|_| group.is_some()) {
        fold(&mut folded, global);
    }
    let preset = named.unwrap_or_default();
    folded.preset = preset.as_str().to_owned();
    fold(&mut folded, &preset.base());
    folded.attempt_policy =
        Some(limits_ref(crate::convert::limits(folded.attempt_policy.as_ref()).over(Limits::default())));
    folded.rules = global.map(|g| g.rules.clone()).unwrap_or_default();
    folded.fleet = if group.is_none() { Some(fleet::to_wire(&FleetPolicy::resolve(global))) } else { None };
    folded
}

/// Fills what is unset in `policy` from a wider level.
fn fold(policy: &mut pb::Policy, wider: &pb::Policy) {
    macro_rules! or {
        ($($field:ident),+ $(,)?) => { $(if policy.$field.is_none() { policy.$field = wider.$field.clone(); })+ };
    }
    or!(
        max_attempts,
        last_resort,
        max_dead_credentials,
        same_channel_retries,
        throttle_wait_max,
        switch_on_unknown_outcome,
        retry_budget,
        deadline,
        stateful_channel,
        expose_channels,
        allow_pinning,
        pinned_switch_on_channel_error,
        passthrough,
        request_usage,
    );
    if policy.layer_order == 0 {
        policy.layer_order = wider.layer_order;
    }
    policy.attempt_policy = merged(policy.attempt_policy, wider.attempt_policy, fold_limits);
    policy.affinity = merged(policy.affinity.take(), wider.affinity.clone(), fold_affinity);
    policy.stream = merged(policy.stream, wider.stream, |mut own, wider| {
        if own.commit == 0 {
            own.commit = wider.commit;
        }
        own
    });
    policy.error_text = merged(policy.error_text.take(), wider.error_text.clone(), fold_error_text);
    for (endpoint, model) in &wider.default_models {
        policy.default_models.entry(endpoint.clone()).or_insert_with(|| model.clone());
    }
    for reaction in &wider.reactions {
        match policy.reactions.iter_mut().find(|r| r.evidence == reaction.evidence) {
            None => policy.reactions.push(reaction.clone()),
            Some(own) => {
                own.switch = own.switch.or(reaction.switch);
                own.penalise = own.penalise.or(reaction.penalise);
            }
        }
    }
}

fn merged<T>(own: Option<T>, wider: Option<T>, fold: impl FnOnce(T, T) -> T) -> Option<T> {
    match (own, wider) {
        (Some(own), Some(wider)) => Some(fold(own, wider)),
        (own, wider) => own.or(wider),
    }
}

fn fold_limits(own: pb::AttemptPolicy, wider: pb::AttemptPolicy) -> pb::AttemptPolicy {
    pb::AttemptPolicy {
        connect_timeout: own.connect_timeout.or(wider.connect_timeout),
        first_content_timeout: own.first_content_timeout.or(wider.first_content_timeout),
        response_timeout: own.response_timeout.or(wider.response_timeout),
        idle_timeout: own.idle_timeout.or(wider.idle_timeout),
        write_timeout: own.write_timeout.or(wider.write_timeout),
    }
}

fn fold_affinity(own: pb::AffinityPolicy, wider: pb::AffinityPolicy) -> pb::AffinityPolicy {
    pb::AffinityPolicy {
        header: if own.header.is_empty() { wider.header } else { own.header },
        body_field: if own.body_field.is_empty() { wider.body_field } else { own.body_field },
        strict: own.strict.or(wider.strict),
    }
}

fn fold_error_text(mut own: pb::ErrorTextPolicy, wider: pb::ErrorTextPolicy) -> pb::ErrorTextPolicy {
    if own.mode == 0 {
        own.mode = wider.mode;
    }
    if own.remove_words.is_empty() {
        own.remove_words = wider.remove_words;
    }
    for (code, text) in wider.texts {
        own.texts.entry(code).or_insert(text);
    }
    own
}

fn limits_ref(limits: Limits) -> pb::AttemptPolicy {
    let wire = |d: Duration| Some(duration_ref(d));
    pb::AttemptPolicy {
        connect_timeout: wire(limits.connect_timeout),
        first_content_timeout: wire(limits.first_content_timeout),
        response_timeout: wire(limits.response_timeout),
        idle_timeout: wire(limits.idle_timeout),
        write_timeout: wire(limits.write_timeout),
    }
}
