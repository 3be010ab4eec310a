//! `/debug/registry`: what is in force here, without secrets.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use spareline_core::{convert, derive::channel_state};

use crate::{state::Shared, words};

/// The page, as JSON.
pub(super) fn registry(shared: &Shared) -> String {
    let view = shared.view();
    let now = shared.now();
    let clock = prost_types::Timestamp::from(SystemTime::now());
    let items = view.items();
    let channels: Vec<Value> = view
        .lines()
        .map(|line| {
            let spec = &line.spec;
            let state = items.channel(spec.id).map(|c| channel_state(items, c, &clock)).unwrap_or_default();
            json!({
                "channel_id": spec.id.0,
                "name": &*spec.name,
                "provider": spec.provider.as_str(),
                "vendor": spec.vendor.as_deref(),
                "base_url": spec.base_url.as_str(),
                "groups": spec.groups.iter().map(|g| &**g).collect::<Vec<_>>(),
                "models": spec.models.iter().map(|m| json!({
                    "model": &*m.name,
                    "upstream_model": &*m.upstream,
                    "priority": m.priority,
                    "weight": m.weight,
                    "endpoints": m.endpoints.iter().map(|e| e.as_str()).collect::<Vec<_>>(),
                })).collect::<Vec<_>>(),
                "priority": spec.priority,
                "weight": spec.weight,
                "credential_ids": spec.credentials.iter().map(|c| c.0).collect::<Vec<_>>(),
                "spec_revision": spec.spec_revision.0,
                "state": if state.cause.is_some() { "disabled" } else { "active" },
                "cause": state.cause.map(|c| c.as_str()),
                "reason": state.reason,
                "usable_credentials": state.usable,
                "degraded": state.degraded,
            })
        })
        .collect();
    let statuses: Vec<Value> = items
        .statuses()
        .map(|(subject, status)| {
            json!({
                "subject": words::subject(subject, &view),
                "state": status.state().as_str_name(),
                "cause": convert::cause(status.cause).map(|c| c.as_str()),
                "reason": status.reason,
                "actor": status.actor,
                "revision": status.revision,
                "fence_revision": status.fence_revision,
                "retry_at": status.retry_at.as_ref().map(ToString::to_string),
            })
        })
        .collect();
    let overlays: Vec<Value> = shared
        .overlays
        .list(now)
        .into_iter()
        .map(|o| {
            json!({
                "subject": words::subject(&o.subject, &view),
                "cause": o.cause.as_str(),
                "reason": o.cause.as_str(),
                "until": in_wall_clock(o.until, now),
                "left_s": o.until.saturating_sub(now).as_secs_f64(),
                "hinted": o.hinted,
            })
        })
        .collect();
    let troubled: Vec<Value> = shared
        .health
        .troubled()
        .into_iter()
        .map(|t| {
            json!({
                "subject": words::subject(&t.subject, &view),
                "failures_in_a_row": t.in_a_row,
                "breaker_open_for_s": t.open_until.map(|until| until.saturating_sub(now).as_secs_f64()),
            })
        })
        .collect();
    let page = json!({
        "proxy_id": shared.config.proxy_id,
        "groups": shared.config.groups.iter().map(|g| &**g).collect::<Vec<_>>(),
        "ready": shared.is_ready(),
        "alone": shared.is_alone(),
        "epoch": &**view.epoch(),
        "revision": view.revision().0,
        "digest": format!("{:016x}", items.digest()),
        "channels": channels,
        "statuses": statuses,
        "overlays": overlays,
        "health": troubled,
        "policies": items.policies().map(|(group, p)| json!({
            "group": &**group,
            "preset": p.preset,
            "revision": p.revision,
        })).collect::<Vec<_>>(),
        "reports_waiting": shared.spool.len(),
    });
    serde_json::to_string_pretty(&page).unwrap_or_default()
}

/// A time of the process's clock, for humans.
fn in_wall_clock(at: Duration, now: Duration) -> String {
    let wall = SystemTime::now() + at.saturating_sub(now);
    time::OffsetDateTime::from(wall)
        .format(&time::format_description::well_known::Rfc3339)
        .unwrap_or_default()
}
