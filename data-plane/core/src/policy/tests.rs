use std::time::Duration;

use spareline_proto::registry::v1 as pb;

use super::*;
use crate::classify::EvidenceKind;
use crate::words::Provider;

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn of_preset(preset: Preset) -> RequestPolicy {
    let policy = pb::Policy { preset: preset.as_str().to_owned(), ..Default::default() };
    RequestPolicy::resolve(Some(&policy), None)
}

/// The table of presets, cell by cell: switch, then penalise.
#[test]
fn every_cell_of_the_preset_table() {
    use EvidenceKind::*;
    let table: [(EvidenceKind, u16, [&str; 3]); 9] = [
        (Network, 0, ["switch+count", "switch+count", "switch+count"]),
        (ServerError, 503, ["switch+count", "switch+count", "switch+count"]),
        (UnknownOutcome, 504, ["switch+count", "switch+count", "count"]),
        (Throttle, 429, ["switch+count", "", "switch"]),
        (DeadKey, 401, ["switch+count", "", "switch+count"]),
        (ModelUnavailable, 404, ["switch+count", "", ""]),
        (RequestTimeout, 408, ["switch+count", "", ""]),
        (Redirect, 307, ["switch+count", "", "switch+count"]),
        (OtherClientError, 422, ["", "", ""]),
    ];
    for (kind, status, cells) in table {
        for (preset, expected) in Preset::ALL.into_iter().zip(cells) {
            let reaction = of_preset(preset).reaction(kind, Provider::OpenAi, status);
            let found = [(reaction.switch, "switch"), (reaction.penalise, "count")];
            let found: Vec<_> = found.into_iter().filter(|(set, _)| *set).map(|(_, word)| word).collect();
            assert_eq!(found.join("+"), expected, "{kind:?} under {}", preset.as_str());
        }
    }
    let odd = |preset, provider, status| {
        of_preset(preset).reaction(EvidenceKind::OtherClientError, provider, status).switch
    };
    assert!(odd(Preset::Layered, Provider::Anthropic, 400));
    assert!(!odd(Preset::Layered, Provider::Anthropic, 422));
    assert!(!odd(Preset::Layered, Provider::OpenAi, 400));
    assert!(!odd(Preset::Availability, Provider::Anthropic, 400));
}

#[test]
fn presets_set_attempts_and_layers() {
    let figures = Preset::ALL.map(|p| {
        let policy = of_preset(p);
        (policy.max_attempts, policy.max_dead_credentials, policy.layer_order)
    });
    let expected =
        [(3, 16, LayerOrder::FinishLayer), (3, 0, LayerOrder::FinishLayer), (3, 0, LayerOrder::NextLayer)];
    assert_eq!(figures, expected);
}

#[test]
fn a_group_beats_the_global_policy_which_beats_the_preset() {
    let global = pb::Policy {
        preset: "conservative".into(),
        max_attempts: Some(5),
        last_resort: Some(false),
        attempt_policy: Some(pb::AttemptPolicy {
            connect_timeout: seconds(2),
            idle_timeout: seconds(20),
            ..Default::default()
        }),
        affinity: Some(pb::AffinityPolicy { header: "x-user".into(), ..Default::default() }),
        default_models: [
            ("moderations".to_owned(), "a".to_owned()),
            ("embeddings".to_owned(), "b".to_owned()),
        ]
        .into(),
        reactions: vec![pb::Reaction {
            evidence: "throttle".into(),
            switch: Some(true),
            penalise: Some(true),
        }],
        ..Default::default()
    };
    let group = pb::Policy {
        group: "gold".into(),
        preset: "layered".into(),
        max_attempts: Some(9),
        attempt_policy: Some(pb::AttemptPolicy { connect_timeout: seconds(1), ..Default::default() }),
        affinity: Some(pb::AffinityPolicy { strict: Some(true), ..Default::default() }),
        default_models: [("embeddings".to_owned(), "c".to_owned())].into(),
        reactions: vec![pb::Reaction { evidence: "throttle".into(), switch: None, penalise: Some(false) }],
        ..Default::default()
    };
    let p = RequestPolicy::resolve(Some(&global), Some(&group));
    assert_eq!((p.preset, p.max_attempts, p.last_resort), (Preset::Layered, 9, false));
    assert_eq!(p.limits.connect_timeout, Duration::from_secs(1));
    assert_eq!(p.limits.idle_timeout, Duration::from_secs(20));
    assert_eq!(p.limits.response_timeout, Duration::from_secs(600), "built in");
    assert_eq!((p.affinity.header.as_deref(), p.affinity.strict), (Some("x-user"), true));
    let models: Vec<_> = p.default_models.iter().map(|(e, m)| (e.as_str(), &**m)).collect();
    assert_eq!(models, [("embeddings", "c"), ("moderations", "a")]);
    let throttle = p.reaction(EvidenceKind::Throttle, Provider::OpenAi, 429);
    assert_eq!(throttle, Reaction { switch: true, penalise: false }, "folded field by field");
}

#[test]
fn a_double_bill_can_be_ruled_out_and_a_layered_group_may_switch_all_the_same() {
    let switches = |global: pb::Policy| {
        RequestPolicy::resolve(Some(&global), None)
            .reaction(EvidenceKind::UnknownOutcome, Provider::OpenAi, 504)
            .switch
    };
    assert!(!switches(pb::Policy { switch_on_unknown_outcome: Some(false), ..Default::default() }));
    let layered = pb::Policy { preset: "layered".into(), ..Default::default() };
    assert!(!switches(layered.clone()));
    assert!(switches(pb::Policy { switch_on_unknown_outcome: Some(true), ..layered.clone() }));
    // A reset or a time-out is a network error as well, and those switch under every preset unless ruled out.
    let no_answer = |global: pb::Policy| {
        RequestPolicy::resolve(Some(&global), None)
            .reaction(EvidenceKind::UnknownOutcome, Provider::OpenAi, 0)
            .switch
    };
    assert!(no_answer(layered.clone()));
    assert!(!no_answer(pb::Policy { switch_on_unknown_outcome: Some(false), ..layered }));
}

#[test]
fn what_is_in_force_can_be_shown_and_resolves_to_itself() {
    let global = pb::Policy { preset: "layered".into(), max_attempts: Some(7), ..Default::default() };
    let shown = effective(Some(&global), None);
    assert_eq!(
        (shown.preset.as_str(), shown.max_attempts, shown.last_resort),
        ("layered", Some(7), Some(true))
    );
    assert_eq!(shown.fleet.as_ref().unwrap().unhealthy_after, Some(5));
    assert_eq!(shown.attempt_policy.as_ref().unwrap().connect_timeout, seconds(5));
    assert_eq!(effective(Some(&shown), None), shown);
    assert!(crate::convert::policy(&shown).is_ok());
    let group = effective(Some(&global), Some(&pb::Policy { group: "g".into(), ..Default::default() }));
    assert_eq!((group.group.as_str(), group.fleet), ("g", None));
}

#[test]
fn a_registry_without_policies_has_the_documented_defaults() {
    let p = RequestPolicy::resolve(None, None);
    assert_eq!((p.preset, p.max_attempts, p.max_dead_credentials), (Preset::Availability, 3, 16));
    assert!(p.last_resort && p.switch_on_unknown_outcome == Some(true) && p.expose_channels && p.passthrough);
    assert!(!p.allow_pinning && !p.pinned_switch && !p.request_usage);
    assert_eq!((p.deadline, p.throttle_wait_max, p.retry_budget), (None, None, None));
    assert_eq!(FleetPolicy::resolve(None).throttle(3), Duration::from_secs(300));
}
