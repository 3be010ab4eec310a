use std::collections::BTreeMap;

use proptest::prelude::*;
use spareline_core::{Cause, ChannelId, CredentialId, Subject};
use spareline_proto::admin::v1::{Gate, RolloutState, Stage};
use spareline_proto::registry::v1 as pb;
use time::OffsetDateTime;

use crate::rollout::blame::{Case, Seen, blames};
use crate::rollout::cohort::{ALL, Cohort, Reach, at_least_one, point, share};
use crate::rollout::gate::{Evidence, Tally};
use crate::rollout::step::{Action, Standing, step};

fn cohort(id: i64, points: i64) -> Cohort {
    Cohort { rollout_id: id, stages: vec![Reach { points, ..Reach::default() }] }
}

proptest! {
    #[test]
    fn part4_a_larger_share_contains_every_smaller_one(id in 1i64.., a in 0i32..=100, b in 0i32..=100, proxy in "[a-z0-9-]{1,20}") {
        let (small, large) = (share(a.min(b)), share(a.max(b)));
        let none = BTreeMap::new();
        let (small, large) = (cohort(id, small).has(&proxy, &none), cohort(id, large).has(&proxy, &none));
        prop_assert!(!small || large);
        prop_assert!((0..ALL).contains(&point(id, &proxy)));
        prop_assert!(cohort(id, share(100)).has(&proxy, &none));
        prop_assert!(!cohort(id, share(0)).has(&proxy, &none));
    }

    #[test]
    fn part4_a_stage_above_zero_has_somebody(id in 1i64.., percent in 0i32..=100, fleet in prop::collection::vec("[a-z]{1,8}", 0..20)) {
        let points = at_least_one(id, percent, fleet.iter().map(String::as_str));
        let inside = fleet.iter().filter(|p| point(id, p) < points).count();
        prop_assert_eq!(inside > 0, percent > 0 && !fleet.is_empty());
        prop_assert!(points >= share(percent) && points <= ALL);
    }

    /// Whatever the evidence: without all of it nothing moves, and nothing moves that is not active.
    #[test]
    fn part4_missing_evidence_never_advances(
        connected in 0usize..6, acked in 0usize..6, rejected in 0usize..3, outside in 0usize..3,
        attempts in 0i64..30, failures in 0i64..30, base in 0i64..30, base_failures in 0i64..30,
        min_acked in prop::option::of(0i32..=100), min_attempts in prop::option::of(0i64..30), delta in prop::option::of(0f64..50.0),
        bake in 0i64..100, passed in 0i64..100, percent in 0i32..=100, state in 1i32..5, last in any::<bool>(),
    ) {
        let (acked, failures, base_failures) = (acked.min(connected), failures.min(attempts), base_failures.min(base));
        let evidence = Evidence {
            connected, acked, outside,
            rejected: (0..rejected).map(|i| format!("p{i}")).collect(),
            lagging: Vec::new(),
            ours: Tally { attempts, failures },
            baseline: Tally { attempts: base, failures: base_failures },
        };
        let gate = Gate { min_acked_percent: min_acked, min_attempts, max_failure_delta: delta };
        let stage = Stage {
            percent,
            bake_time: Some(prost_types::Duration { seconds: bake, nanos: 0 }),
            gate: Some(gate),
            ..Stage::default()
        };
        let stages = if last { vec![stage] } else { vec![stage, Stage { percent: 100, ..Stage::default() }] };
        let started = OffsetDateTime::UNIX_EPOCH;
        let state = RolloutState::try_from(state).unwrap();
        let standing = Standing { state, stages: &stages, current: 0, started };
        let action = step(&standing, &evidence, started + time::Duration::seconds(passed));
        let moves = matches!(action, Action::Advance | Action::Finish);
        if moves {
            prop_assert_eq!(state, RolloutState::Active);
            prop_assert!(percent > 0 && passed >= bake && connected > 0 && rejected == 0);
            let wanted = min_acked.filter(|p| *p > 0).unwrap_or(100);
            prop_assert!(acked as i64 * 100 >= connected as i64 * i64::from(wanted));
            prop_assert!(attempts >= min_attempts.unwrap_or(0));
            if let Some(delta) = delta {
                prop_assert!(attempts > 0 && (base > 0 || outside == 0));
                let theirs = evidence.baseline.share().unwrap_or(0.0);
                prop_assert!(evidence.ours.share().unwrap() - theirs <= delta);
            }
            prop_assert_eq!(action == Action::Finish, last);
        }
        if state == RolloutState::Active && rejected > 0 {
            prop_assert!(matches!(action, Action::Pause(ref why) if why.contains("p0")), "{:?}", action);
        }
        if state != RolloutState::Active {
            prop_assert!(matches!(action, Action::Hold(_)));
        }
    }
}

#[test]
fn part4_who_was_in_stays_in_whatever_the_next_stage_selects() {
    let canary = BTreeMap::from([("tier".to_owned(), "canary".to_owned())]);
    let first = Reach { selector: canary.clone(), points: ALL, entered: 5 };
    let second = Reach { selector: BTreeMap::new(), points: 0, entered: 9 };
    let cohort = Cohort { rollout_id: 1, stages: vec![first, second] };
    assert_eq!(cohort.entered("a", &canary), Some(5));
    assert_eq!(cohort.entered("a", &BTreeMap::new()), None);
}

fn spec(base_url: &str, keys: &[i64], models: &[(&str, &str)]) -> pb::Channel {
    let model = |(m, u): &(&str, &str)| pb::ModelEntry {
        model: (*m).into(),
        upstream_model: (*u).into(),
        ..Default::default()
    };
    pb::Channel {
        channel_id: 1,
        name: "one".into(),
        provider: "openai".into(),
        base_url: base_url.into(),
        credential_ids: keys.to_vec(),
        models: models.iter().map(model).collect(),
        ..Default::default()
    }
}

#[test]
fn part4_only_what_the_difference_could_have_caused_counts_against_the_rollout() {
    let baseline = spec("https://a", &[1], &[("m", ""), ("n", "")]);
    let dead = Seen::Verdict(Cause::Credential);
    let key = |id| Subject::Credential(CredentialId(id));
    let ability = |m: &str| Subject::Ability { channel: ChannelId(1), model: m.into(), credential: None };
    let gone = Seen::Verdict(Cause::ModelUnavailable);
    let check = |candidate: &pb::Channel, sharing: &[pb::Channel], subject: Subject, seen| {
        blames(&Case { candidate, baseline: Some(&baseline), sharing }, &subject, seen)
    };
    let listing = std::slice::from_ref(&baseline);
    // A key of its own; the same key at another place; a shared key used in the same way.
    assert!(check(&spec("https://a", &[2], &[("m", "")]), &[], key(2), dead));
    assert!(check(&spec("https://b", &[1], &[("m", "")]), listing, key(1), dead));
    assert!(!check(&spec("https://a", &[1], &[("m", "x")]), listing, key(1), dead));
    // Its own key may be asked to slow down.
    assert!(!check(&spec("https://a", &[2], &[("m", "")]), &[], key(2), Seen::Verdict(Cause::Throttled)));
    // A model under another name, a model that is as it was.
    let renamed = spec("https://a", &[1], &[("m", "x"), ("n", "")]);
    assert!(check(&renamed, &[], ability("m"), gone));
    assert!(!check(&renamed, &[], ability("n"), gone));
    assert!(check(&renamed, &[], Subject::Channel(ChannelId(1)), Seen::Failures));
    // Nothing but the weight differs.
    let heavier = pb::Channel { weight: Some(9), ..baseline.clone() };
    assert!(!check(&heavier, &[], Subject::Channel(ChannelId(1)), Seen::Failures));
    // A channel that only the rollout has.
    let new = spec("https://a", &[2], &[("m", "")]);
    assert!(blames(&Case { candidate: &new, baseline: None, sharing: &[] }, &ability("m"), gone));
}
