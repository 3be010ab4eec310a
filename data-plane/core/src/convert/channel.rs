//! Channels from the wire.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use spareline_proto::registry::v1 as pb;
use url::Url;

use super::check::{Check, Violation};
use super::urls::base_url;
use super::{endpoint, options};
use crate::classify;
use crate::ids::{ChannelId, CredentialId, Revision};
use crate::limits::PartialLimits;
use crate::spec::{ChannelSpec, DEFAULT_GROUP, EndpointSet, ModelSpec};
use crate::words::Provider;

const MAX_WEIGHT: u32 = 1_000_000;
const MAX_DISPLAY_NAME: usize = 200;
const MAX_LABELS: usize = 64;

/// Validates and compiles a channel. The id and the revision are taken as they are: a new channel has none yet.
///
/// # Errors
/// Every mistake at once.
pub fn channel(wire: &pb::Channel) -> Result<ChannelSpec, Vec<Violation>> {
    let mut check = Check::default();
    name(&mut check, "name", &wire.name);
    let provider = match wire.provider.parse::<Provider>() {
        Ok(provider) => Some(provider),
        Err(unknown) => {
            check.add("provider", unknown.to_string());
            None
        }
    };
    let base_url = base_url(&mut check, &wire.base_url);
    let groups = groups(&mut check, &wire.groups);
    check.range("weight", wire.weight, 0, MAX_WEIGHT);
    if wire.multiplier.is_some_and(|m| !m.is_finite() || m < 0.0) {
        check.add("multiplier", "must be a number that is not negative");
    }
    let limits = limits(&mut check, "attempt_policy", wire.attempt_policy.as_ref());
    labels(&mut check, &wire.labels);
    let credentials = credentials(&mut check, &wire.credential_ids);
    let own = endpoints(&mut check, "endpoints", &wire.endpoints);
    let endpoints = match (own.is_empty(), provider) {
        (true, Some(provider)) => EndpointSet::usual(provider),
        _ => own,
    };
    let models = models(&mut check, wire, limits, endpoints);
    let options = options::options(&mut check, wire, provider);
    if wire.display_name.chars().count() > MAX_DISPLAY_NAME || wire.display_name.chars().any(char::is_control)
    {
        check.add("display_name", "must be at most 200 characters, none of them control characters");
    }
    let vendor = vendor(wire, base_url.as_ref());

    let spec = provider.zip(base_url).map(|(provider, base_url)| ChannelSpec {
        id: ChannelId(wire.channel_id),
        name: Arc::from(wire.name.as_str()),
        provider,
        vendor,
        base_url,
        groups,
        models,
        priority: wire.priority,
        weight: wire.weight.unwrap_or(1),
        multiplier: wire.multiplier.unwrap_or(1.0),
        auto_disable: wire.auto_disable,
        limits,
        labels: wire.labels.clone(),
        failure_domain: wire.labels.get("failure_domain").map(|d| Arc::from(d.as_str())),
        credentials,
        spec_revision: Revision(wire.spec_revision),
        options,
        endpoints,
    });
    check.finish(spec)
}

/// `[a-z][a-z0-9-]{0,62}`: a channel's name is never a number, so that it can stand beside ids.
pub(super) fn name(check: &mut Check, field: &str, name: &str) {
    let tail = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.len() > 63 || !name.chars().all(tail) {
        check.add(
            field,
            "must be a lower-case letter, then at most 62 lower-case letters, digits and hyphens",
        );
    }
}

/// A group's name.
pub(super) fn group(check: &mut Check, field: impl Display, group: &str) {
    let good = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let starts = group.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !starts || group.len() > 63 || !group.chars().all(good) {
        check.add(field, "must be a letter or digit, then at most 62 letters, digits, '_', '.' and '-'");
    }
}

/// Limits, each between 1 ms and 24 h.
pub(super) fn limits(
    check: &mut Check,
    field: impl Display,
    wire: Option<&pb::AttemptPolicy>,
) -> PartialLimits {
    let Some(wire) = wire else { return PartialLimits::default() };
    let (min, max) = (Duration::from_millis(1), Duration::from_secs(24 * 3600));
    let mut limit =
        |name: &str, d: &Option<_>| check.duration(format_args!("{field}.{name}"), d.as_ref(), min, max);
    PartialLimits {
        connect_timeout: limit("connect_timeout", &wire.connect_timeout),
        first_content_timeout: limit("first_content_timeout", &wire.first_content_timeout),
        response_timeout: limit("response_timeout", &wire.response_timeout),
        idle_timeout: limit("idle_timeout", &wire.idle_timeout),
        write_timeout: limit("write_timeout", &wire.write_timeout),
    }
}

fn groups(check: &mut Check, wire: &[String]) -> Vec<Arc<str>> {
    let mut seen = HashSet::new();
    for (i, name) in wire.iter().enumerate() {
        group(check, format_args!("groups[{i}]"), name);
        if !seen.insert(name) {
            check.add(format_args!("groups[{i}]"), format!("{name:?} is named twice"));
        }
    }
    match wire {
        [] => vec![Arc::from(DEFAULT_GROUP)],
        groups => groups.iter().map(|g| Arc::from(g.as_str())).collect(),
    }
}

fn models(
    check: &mut Check,
    wire: &pb::Channel,
    limits_above: PartialLimits,
    above: EndpointSet,
) -> Vec<Arc<ModelSpec>> {
    if wire.models.is_empty() {
        check.add("models", "must have at least one model");
    }
    let mut seen = HashSet::new();
    let mut models = Vec::with_capacity(wire.models.len());
    for (i, entry) in wire.models.iter().enumerate() {
        check.text(format_args!("models[{i}].model"), &entry.model, 256);
        if !seen.insert(entry.model.as_str()) {
            check.add(format_args!("models[{i}].model"), format!("{:?} is named twice", entry.model));
        }
        if !entry.upstream_model.is_empty() {
            check.text(format_args!("models[{i}].upstream_model"), &entry.upstream_model, 256);
        }
        check.range(format_args!("models[{i}].weight"), entry.weight, 0, MAX_WEIGHT);
        let own = limits(check, format_args!("models[{i}].attempt_policy"), entry.attempt_policy.as_ref());
        let endpoints = endpoints(check, format_args!("models[{i}].endpoints"), &entry.endpoints);
        let name: Arc<str> = Arc::from(entry.model.as_str());
        models.push(Arc::new(ModelSpec {
            upstream: match entry.upstream_model.as_str() {
                "" => name.clone(),
                upstream => Arc::from(upstream),
            },
            name,
            priority: entry.priority.unwrap_or(wire.priority),
            weight: entry.weight.or(wire.weight).unwrap_or(1),
            limits: own.or(limits_above),
            endpoints: if endpoints.is_empty() { above } else { endpoints },
        }));
    }
    models
}

fn endpoints(check: &mut Check, field: impl Display, wire: &[i32]) -> EndpointSet {
    let mut set = EndpointSet::EMPTY;
    for (i, value) in wire.iter().enumerate() {
        match endpoint(*value) {
            None => check.add(format!("{field}[{i}]"), "is not an endpoint that this build knows"),
            Some(e) if set.has(Some(e)) => check.add(format!("{field}[{i}]"), format!("{e} is named twice")),
            Some(e) => set.insert(e),
        }
    }
    set
}

fn labels(check: &mut Check, labels: &BTreeMap<String, String>) {
    if labels.len() > MAX_LABELS {
        check.add("labels", "must be at most 64");
    }
    for (key, value) in labels {
        check.word(format_args!("labels[{key:?}]"), key, "_-./", 63);
        if !value.is_empty() {
            check.text(format_args!("labels[{key:?}]"), value, 256);
        }
    }
}

fn credentials(check: &mut Check, ids: &[i64]) -> Vec<CredentialId> {
    let mut seen = HashSet::new();
    for (i, id) in ids.iter().enumerate() {
        if *id <= 0 {
            check.add(format!("credential_ids[{i}]"), "must be positive");
        } else if !seen.insert(id) {
            check.add(format!("credential_ids[{i}]"), format!("{id} is named twice"));
        }
    }
    ids.iter().map(|id| CredentialId(*id)).collect()
}

fn vendor(wire: &pb::Channel, base_url: Option<&Url>) -> Option<Arc<str>> {
    let written = wire.options.as_ref().map_or("", |o| o.vendor.as_str());
    if written.is_empty() {
        base_url?.host_str().and_then(classify::vendor_of_host).map(Arc::from)
    } else {
        Some(Arc::from(written))
    }
}
