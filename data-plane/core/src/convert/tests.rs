use spareline_proto::registry::v1 as pb;

use super::*;
use crate::fixtures;
use crate::spec::EndpointSet;
use crate::words::{Endpoint, Provider};

fn fields(change: impl FnOnce(&mut pb::Channel)) -> Vec<String> {
    let mut wire = fixtures::channel(1);
    change(&mut wire);
    match channel(&wire) {
        Ok(_) => Vec::new(),
        Err(violations) => violations.into_iter().map(|v| v.field).collect(),
    }
}

fn options(change: impl FnOnce(&mut pb::ChannelOptions)) -> Vec<String> {
    fields(|c| change(c.options.get_or_insert_default()))
}

fn policy_fields(change: impl FnOnce(&mut pb::Policy)) -> Vec<String> {
    let mut wire = pb::Policy::default();
    change(&mut wire);
    policy(&wire).err().unwrap_or_default().into_iter().map(|v| v.field).collect()
}

#[test]
fn the_shortest_channel_takes_its_defaults() {
    let spec = channel(&fixtures::channel(1)).unwrap();
    assert_eq!(spec.provider, Provider::OpenAiCompatible);
    assert_eq!(&*spec.groups[0], "default");
    assert_eq!((spec.weight, spec.multiplier), (1, 1.0));
    assert_eq!(spec.models[0].upstream, spec.models[0].name);
    assert_eq!(spec.endpoints, EndpointSet::usual(Provider::OpenAiCompatible));
    assert!(!spec.endpoints.has(Some(Endpoint::Responses)));
}

#[test]
fn a_model_entry_overrides_its_channel() {
    let mut wire = fixtures::channel(1);
    wire.weight = Some(5);
    wire.priority = 2;
    wire.attempt_policy = Some(pb::AttemptPolicy {
        connect_timeout: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
        idle_timeout: Some(prost_types::Duration { seconds: 7, nanos: 0 }),
        ..Default::default()
    });
    wire.models.push(pb::ModelEntry {
        upstream_model: "other".into(),
        priority: Some(9),
        weight: Some(0),
        endpoints: vec![pb::Endpoint::Embeddings.into()],
        attempt_policy: Some(pb::AttemptPolicy {
            connect_timeout: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
            ..Default::default()
        }),
        ..fixtures::model("n")
    });
    let spec = channel(&wire).unwrap();
    let (m, n) = (&spec.models[0], &spec.models[1]);
    assert_eq!((m.priority, m.weight), (2, 5));
    assert_eq!((n.priority, n.weight, &*n.upstream), (9, 0, "other"));
    assert_eq!(n.limits.connect_timeout, Some(Duration::from_secs(1)));
    assert_eq!(
        n.limits.idle_timeout,
        Some(Duration::from_secs(7)),
        "the channel's, where the entry says nothing"
    );
    assert_eq!(n.endpoints, EndpointSet::of(&[Endpoint::Embeddings]));
}

#[test]
fn names_are_never_numbers() {
    for good in ["a", "a-1", "mock-bad-key"] {
        assert!(fields(|c| c.name = good.into()).is_empty(), "{good}");
    }
    for bad in ["", "42", "4a", "-a", "A", "a_b", "a.b", "ä", &"a".repeat(64)] {
        assert_eq!(fields(|c| c.name = bad.into()), ["name"], "{bad}");
    }
}

#[test]
fn base_urls_are_plain_and_carry_no_secret() {
    for good in ["http://127.0.0.1:9/v1/", "https://[::1]/a/b", "https://x.openai.azure.com/?api-version=1"] {
        assert!(fields(|c| c.base_url = good.into()).is_empty(), "{good}");
    }
    for bad in [
        "",
        "ftp://x",
        "x.example.com",
        "https://",
        "https://u@x",
        "https://u:p@x",
        "https://x/#f",
        " https://x",
    ] {
        assert_eq!(fields(|c| c.base_url = bad.into())[0], "base_url", "{bad}");
    }
    let secret =
        channel(&pb::Channel { base_url: "https://x/?api_key=sk-hidden".into(), ..fixtures::channel(1) });
    let violations = secret.unwrap_err();
    assert_eq!(violations[0].field, "base_url");
    assert!(!violations[0].problem.contains("sk-hidden"));
}

#[test]
fn every_mistake_is_reported_at_once() {
    let found = fields(|c| {
        c.name = "42".into();
        c.provider = "openrouter".into();
        c.base_url = "ftp://x".into();
        c.groups = vec!["ok".into(), "no good".into(), "ok".into()];
        c.models = vec![fixtures::model("m"), fixtures::model("m"), fixtures::model("")];
        c.weight = Some(2_000_000);
        c.multiplier = Some(-1.0);
        c.labels = [("Bad Key".into(), "v".into())].into();
        c.credential_ids = vec![3, 3, -1];
        c.endpoints = vec![99];
        c.display_name = "x".repeat(201);
        c.attempt_policy = Some(pb::AttemptPolicy {
            idle_timeout: Some(prost_types::Duration { seconds: -1, nanos: 0 }),
            ..Default::default()
        });
    });
    let expected = [
        "name",
        "provider",
        "base_url",
        "groups[1]",
        "groups[2]",
        "weight",
        "multiplier",
        "attempt_policy.idle_timeout",
        "labels[\"Bad Key\"]",
        "credential_ids[1]",
        "credential_ids[2]",
        "endpoints[0]",
        "models[1].model",
        "models[2].model",
        "display_name",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_channel_needs_a_model() {
    assert_eq!(fields(|c| c.models.clear()), ["models"]);
}

#[test]
fn options_foreign_to_the_provider_are_refused() {
    assert_eq!(options(|o| o.api_version = "2024-10-21".into()), ["options.api_version"]);
    assert_eq!(options(|o| o.organization = "org".into()), ["options.organization"]);
    assert_eq!(fields(|c| c.provider = "azure_openai".into()), ["options.api_version"], "required there");
    let azure = fields(|c| {
        c.provider = "azure_openai".into();
        c.options.get_or_insert_default().api_version = "2024-10-21".into();
    });
    assert!(azure.is_empty());
}

#[test]
fn headers_may_name_neither_credentials_nor_the_connection() {
    for bad in [
        "Authorization",
        "x-api-key",
        "API-KEY",
        "cookie",
        "Connection",
        "te",
        "Host",
        "content-length",
        "a b",
    ] {
        let found = options(|o| o.headers = [(bad.to_owned(), "v".to_owned())].into());
        assert_eq!(found, [format!("options.headers[{bad:?}]")], "{bad}");
    }
    assert!(options(|o| o.headers = [("x-team".to_owned(), "v".to_owned())].into()).is_empty());
    assert_eq!(options(|o| o.headers = [("x-a".to_owned(), "a\nb".to_owned())].into()).len(), 1);
}

#[test]
fn other_options_are_checked() {
    assert_eq!(options(|o| o.probe_model = "n".into()), ["options.probe_model"]);
    assert_eq!(options(|o| o.proxy_url = "socks5://x".into()), ["options.proxy_url"]);
    assert_eq!(options(|o| o.proxy_url = "http://u:p@x:1".into()), ["options.proxy_url"]);
    assert_eq!(options(|o| o.ca_pem = "x".into()), ["options.ca_pem"]);
    assert_eq!(options(|o| o.probe = 77), ["options.probe"]);
    assert!(options(|o| o.probe_model = "m".into()).is_empty());
}

#[test]
fn what_the_fleet_believes_is_global() {
    let found = policy_fields(|p| {
        p.group = "default".into();
        p.fleet = Some(pb::FleetPolicy::default());
        p.rules = vec![pb::Rule {
            rule_id: "r".into(),
            class: "throttle".into(),
            statuses: "429".into(),
            ..Default::default()
        }];
    });
    assert_eq!(found, ["fleet", "rules"]);
    let global = policy_fields(|p| {
        p.fleet = Some(pb::FleetPolicy { auto_disable: Some(false), ..Default::default() })
    });
    assert!(global.is_empty());
}

#[test]
fn policies_are_checked_whole() {
    let found = policy_fields(|p| {
        p.preset = "best".into();
        p.max_attempts = Some(0);
        p.max_dead_credentials = Some(257);
        p.same_channel_retries = Some(4);
        p.stateful_channel = Some("42".into());
        p.layer_order = 9;
        p.affinity = Some(pb::AffinityPolicy { header: "authorization".into(), ..Default::default() });
        p.default_models = [("chat".to_owned(), "m".to_owned())].into();
        p.reactions = vec![
            pb::Reaction { evidence: "418".into(), switch: Some(true), penalise: None },
            pb::Reaction { evidence: "throttle".into(), switch: None, penalise: None },
        ];
        p.fleet = Some(pb::FleetPolicy {
            degraded_after: Some(6),
            budget_percent: Some(101),
            ..Default::default()
        });
    });
    let expected = [
        "preset",
        "max_attempts",
        "max_dead_credentials",
        "same_channel_retries",
        "stateful_channel",
        "layer_order",
        "affinity.header",
        "default_models[\"chat\"]",
        "reactions[0].evidence",
        "reactions[1]",
        "fleet.budget_percent",
        "fleet.degraded_after",
    ];
    assert_eq!(found, expected);
    assert!(policy_fields(|p| p.preset = "layered".into()).is_empty());
}

#[test]
fn subjects_go_both_ways() {
    for wire in [
        fixtures::on_channel(1),
        fixtures::on_credential(2),
        fixtures::on_ability(3, "a/b", None),
        fixtures::on_ability(3, "m", Some(4)),
    ] {
        assert_eq!(subject_ref(&subject(&wire).unwrap()), wire);
    }
    for nothing in [
        pb::Subject::default(),
        fixtures::on_channel(0),
        fixtures::on_credential(-1),
        fixtures::on_ability(1, "", None),
        fixtures::on_ability(1, "m", Some(0)),
    ] {
        assert_eq!(subject(&nothing), None);
    }
}

#[test]
fn a_status_of_an_unknown_cause_is_out_until_a_human_says_otherwise() {
    let mut wire = fixtures::out(fixtures::on_channel(1), pb::Cause::Quota, 1);
    wire.cause = 99;
    assert_eq!(status(&wire).unwrap().cause, Some(crate::Cause::Operator));
    wire.state = 0;
    assert_eq!(status(&wire).unwrap_err()[0].field, "state");
}
