//! Policies from the wire.

use std::collections::HashSet;
use std::time::Duration;

use http::HeaderName;
use spareline_proto::registry::v1 as pb;

use super::channel::{group, limits as check_limits, name};
use super::check::{Check, Violation};
use super::options::is_credential_header;
use super::{duration, policy_fleet};
use crate::classify::Rules;
use crate::limits::PartialLimits;
use crate::policy::Preset;
use crate::policy::presets::CONFIGURABLE;
use crate::words::Endpoint;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Validates a policy; [`RequestPolicy::resolve`](crate::policy::RequestPolicy::resolve) compiles it.
///
/// # Errors
/// Every mistake at once.
pub fn policy(wire: &pb::Policy) -> Result<(), Vec<Violation>> {
    let mut check = Check::default();
    if !wire.group.is_empty() {
        group(&mut check, "group", &wire.group);
        global_only(&mut check, wire);
    }
    if !wire.preset.is_empty()
        && let Err(unknown) = wire.preset.parse::<Preset>()
    {
        check.add("preset", unknown.to_string());
    }
    check.range("max_attempts", wire.max_attempts, 1, 32);
    check.range("max_dead_credentials", wire.max_dead_credentials, 0, 256);
    check.range("same_channel_retries", wire.same_channel_retries, 0, 3);
    check_limits(&mut check, "attempt_policy", wire.attempt_policy.as_ref());
    check.duration(
        "throttle_wait_max",
        wire.throttle_wait_max.as_ref(),
        Duration::ZERO,
        Duration::from_secs(900),
    );
    check.duration("deadline", wire.deadline.as_ref(), Duration::ZERO, DAY);
    if let Some(budget) = &wire.retry_budget {
        check.range("retry_budget.percent", Some(budget.percent), 0, 1000);
        check.range("retry_budget.min_per_second", Some(budget.min_per_second), 0, 100_000);
    }
    if let Some(channel) = wire.stateful_channel.as_deref().filter(|c| !c.is_empty()) {
        name(&mut check, "stateful_channel", channel);
    }
    known_enums(&mut check, wire);
    affinity(&mut check, wire.affinity.as_ref());
    error_text(&mut check, wire.error_text.as_ref());
    for (endpoint, model) in &wire.default_models {
        let field = format!("default_models[{endpoint:?}]");
        if let Err(unknown) = endpoint.parse::<Endpoint>() {
            check.add(&field, unknown.to_string());
        }
        check.text(&field, model, 256);
    }
    reactions(&mut check, &wire.reactions);
    if let Err(violations) = Rules::with_operator(&wire.rules) {
        violations.into_iter().for_each(|v| check.add(v.field, v.problem));
    }
    if let Some(fleet) = &wire.fleet {
        policy_fleet::check(&mut check, fleet);
    }
    check.finish(Some(()))
}

/// Limits as they were written; what is unusable counts as unset.
pub fn limits(wire: Option<&pb::AttemptPolicy>) -> PartialLimits {
    let Some(wire) = wire else { return PartialLimits::default() };
    let set = |d| duration(d).filter(|d| !d.is_zero());
    PartialLimits {
        connect_timeout: set(wire.connect_timeout.as_ref()),
        first_content_timeout: set(wire.first_content_timeout.as_ref()),
        response_timeout: set(wire.response_timeout.as_ref()),
        idle_timeout: set(wire.idle_timeout.as_ref()),
        write_timeout: set(wire.write_timeout.as_ref()),
    }
}

fn global_only(check: &mut Check, wire: &pb::Policy) {
    if wire.fleet.is_some() {
        check.add("fleet", "what the fleet believes belongs in the global policy only");
    }
    if !wire.rules.is_empty() {
        check.add("rules", "rules belong in the global policy only");
    }
}

fn known_enums(check: &mut Check, wire: &pb::Policy) {
    let known = |ok: bool, field: &str, check: &mut Check| {
        if !ok {
            check.add(field, "is not a value that this build knows");
        }
    };
    known(pb::LayerOrder::try_from(wire.layer_order).is_ok(), "layer_order", check);
    if let Some(stream) = &wire.stream {
        known(pb::StreamCommit::try_from(stream.commit).is_ok(), "stream.commit", check);
    }
    if let Some(text) = &wire.error_text {
        known(pb::ErrorTextMode::try_from(text.mode).is_ok(), "error_text.mode", check);
    }
}

fn affinity(check: &mut Check, wire: Option<&pb::AffinityPolicy>) {
    let Some(wire) = wire else { return };
    if !wire.header.is_empty() {
        match HeaderName::try_from(wire.header.as_str()) {
            Err(_) => check.add("affinity.header", "is not a valid header name"),
            Ok(name) if is_credential_header(name.as_str()) => {
                check.add("affinity.header", "may not name a credential header");
            }
            Ok(_) => {}
        }
    }
    if !wire.body_field.is_empty() {
        check.text("affinity.body_field", &wire.body_field, 64);
    }
}

fn error_text(check: &mut Check, wire: Option<&pb::ErrorTextPolicy>) {
    let Some(wire) = wire else { return };
    if wire.remove_words.len() > 1000 {
        check.add("error_text.remove_words", "must be at most 1000");
    }
    for (i, word) in wire.remove_words.iter().enumerate() {
        check.text(format_args!("error_text.remove_words[{i}]"), word, 200);
    }
    for (code, text) in &wire.texts {
        let field = format!("error_text.texts[{code:?}]");
        check.text(&field, code, 128);
        if text.trim().is_empty() || text.len() > 2000 {
            check.add(field, "must be a text of at most 2000 bytes");
        }
    }
}

fn reactions(check: &mut Check, wire: &[pb::Reaction]) {
    let mut seen = HashSet::new();
    for (i, reaction) in wire.iter().enumerate() {
        let field = format!("reactions[{i}].evidence");
        if !CONFIGURABLE.iter().any(|k| k.as_str() == reaction.evidence) {
            let words: Vec<_> = CONFIGURABLE.iter().map(|k| k.as_str()).collect();
            check.add(&field, format!("must be one of {}", words.join(", ")));
        } else if !seen.insert(reaction.evidence.as_str()) {
            check.add(&field, format!("{:?} is named twice", reaction.evidence));
        }
        if reaction.switch.is_none() && reaction.penalise.is_none() {
            check.add(format!("reactions[{i}]"), "must set switch, penalise or both");
        }
    }
}
