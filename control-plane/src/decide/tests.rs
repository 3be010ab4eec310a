//! Properties of the decisions, and the tables of the semantics.

use std::time::Duration;

use proptest::prelude::*;
use spareline_core::policy::FleetPolicy;
use spareline_core::{Cause, ChannelId, CredentialId, Subject};
use spareline_proto::registry::v1 as pb;
use time::OffsetDateTime;

use super::*;

const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH.saturating_add(time::Duration::days(20_000));

fn at(seconds: i64) -> OffsetDateTime {
    NOW + time::Duration::seconds(seconds)
}

fn causes() -> impl Strategy<Value = Cause> {
    prop::sample::select(Cause::ALL)
}

fn reported() -> impl Strategy<Value = Cause> {
    prop::sample::select(&[Cause::Throttled, Cause::ModelUnavailable, Cause::Quota, Cause::Credential][..])
}

prop_compose! {
    fn statuses()(
        cause in prop::option::of(causes()),
        retry in -600_i64..3600,
        fence in 0_i64..20,
        failed in 0_u32..12,
        pending in prop::option::of(reported()),
    ) -> Status {
        Status {
            state: if cause.is_some() { State::Disabled } else { State::Active },
            cause,
            disabled_at: cause.map(|_| at(-700)),
            retry_at: cause.filter(|c| *c != Cause::Operator).map(|_| at(retry)),
            failed_probes: failed,
            fence,
            revision: 20,
            pending: pending.map(|cause| Pending {
                cause,
                reason: String::new(),
                actor: "proxy:p".into(),
                evidence: None,
                since: at(-5),
                suppressed: false,
            }),
            pending_due: pending.map(|_| at(0)),
            ..Status::default()
        }
    }
}

prop_compose! {
    fn inputs()(
        cause in prop::option::weighted(0.95, causes()),
        observed_revision in 0_i64..40,
        confirm in prop::bool::weighted(0.2),
        retry in prop::option::of(0_u64..2000),
        age in 0_u64..700,
    ) -> VerdictInput {
        VerdictInput {
            cause,
            observed_revision,
            confirm,
            retry_after: retry.map(Duration::from_secs),
            age: Duration::from_secs(age),
            actor: "proxy:p".into(),
            evidence: None,
        }
    }
}

fn facts(status: &Status) -> Facts<'_> {
    Facts {
        same_history: true,
        known: Known::Live,
        status,
        wider: None,
        channel_fence: 0,
        auto_disable: None,
        budget: Budget { out: 0, allowed: 3 },
    }
}

fn input(cause: Cause) -> VerdictInput {
    VerdictInput {
        cause: Some(cause),
        observed_revision: 100,
        confirm: false,
        retry_after: None,
        age: Duration::ZERO,
        actor: "proxy:p".into(),
        evidence: None,
    }
}

fn out(cause: Cause, retry: i64) -> Status {
    Status {
        state: State::Disabled,
        cause: Some(cause),
        disabled_at: Some(at(-60)),
        retry_at: Some(at(retry)),
        revision: 5,
        ..Status::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Fences, order of causes and deadlines hold for every row and every verdict.
    #[test]
    fn part7_a_verdict_never_breaks_fence_order_or_deadline(
        status in statuses(), input in inputs(), auto in prop::option::of(any::<bool>()),
        channel_fence in 0_i64..40, used in 0_u64..6, jitter in 0.0..1.0_f64,
    ) {
        let facts = Facts { auto_disable: auto, channel_fence, budget: Budget { out: used, allowed: 3 }, ..facts(&status) };
        let rules = FleetPolicy::default();
        let decision = verdict(&input, &facts, &rules, NOW, jitter);
        let fence = status.fence.max(channel_fence);
        if input.observed_revision < fence {
            prop_assert_eq!(decision.disposition, Disposition::Stale);
        }
        prop_assert_eq!(decision.write.is_some(), decision.disposition == Disposition::Applied);
        if decision.pend.is_some() {
            prop_assert!(matches!(decision.disposition, Disposition::Pending | Disposition::Suppressed));
        }
        if let Some(next) = &decision.write {
            let cause = next.cause.unwrap();
            prop_assert!(input.observed_revision >= fence && auto != Some(false));
            prop_assert!(!matches!(cause, Cause::Operator | Cause::Unhealthy | Cause::ModelUnavailable));
            prop_assert!(!input.confirm && input.age <= Duration::from_secs(300));
            prop_assert!(next.is_out(NOW) && next.pending.is_none() && next.fence == status.fence);
            if let Some(before) = status.cause_in_force(NOW) {
                prop_assert!(cause > before || (cause, before) == (Cause::Throttled, Cause::Throttled));
                if before == cause {
                    prop_assert!(next.retry_at > status.retry_at, "a deadline is never shortened");
                }
            }
            // The same again is known: nothing is written twice.
            let again = verdict(&input, &Facts { status: next, ..facts.clone() }, &rules, NOW, jitter);
            prop_assert_eq!(again.disposition, Disposition::Already);
        }
        if let Some(next) = &decision.pend {
            let same = Status { pending: status.pending.clone(), pending_due: status.pending_due, ..next.clone() };
            prop_assert_eq!(&same, &status, "what waits changes nothing but itself");
            let again = verdict(&input, &Facts { status: next, ..facts.clone() }, &rules, NOW, jitter);
            prop_assert_eq!((again.disposition, again.changes()), (decision.disposition, false));
        }
    }

    /// A probe never touches an operator's word, and publishes only what differs.
    #[test]
    fn part8_a_probe_never_overrules_a_human_and_publishes_only_changes(
        status in statuses(), kind in 0..4, cause in reported(), soft in any::<bool>(), last_active in any::<bool>(),
        by_hand in any::<bool>(), auto_enable in any::<bool>(), jitter in 0.0..1.0_f64,
    ) {
        let text = || "seen".to_owned();
        let outcome = match kind {
            0 => ProbeOutcome::Good,
            1 => ProbeOutcome::Bad { cause: if soft { Cause::Unhealthy } else { cause }, reason: text(), evidence: None },
            2 => ProbeOutcome::Throttled { retry_after: None, reason: text(), evidence: None },
            _ => ProbeOutcome::Inconclusive { reason: text() },
        };
        let rules = FleetPolicy { auto_enable, ..FleetPolicy::default() };
        let subject = Subject::Credential(CredentialId(1));
        let held = Held { last_active, by_hand };
        let change = probed(&subject, &status, &outcome, held, &rules, NOW, jitter);
        match &change {
            ProbeChange::Times(next) => {
                prop_assert_eq!((next.state, next.cause, next.fence), (status.state, status.cause, status.fence));
                if let Some(due) = next.due_at() {
                    let settled = status.pending.is_some() && next.pending.is_none();
                    prop_assert!(due > NOW || settled, "no hot loop: {due}");
                }
            }
            ProbeChange::Publish { status: next, raise_fence } => {
                prop_assert!(status.cause_in_force(NOW) != Some(Cause::Operator) || status.state == State::Active);
                prop_assert_eq!(*raise_fence, matches!(outcome, ProbeOutcome::Good));
                prop_assert!(next.pending.is_none());
                prop_assert!(!by_hand || status.is_out(NOW) || next.state == State::Active);
                if status.cause_in_force(NOW) == Some(Cause::Throttled) && *raise_fence {
                    prop_assert_eq!((next.cause, next.retry_at), (status.cause, status.retry_at), "back by time");
                }
                if next.state == State::Active {
                    prop_assert!(matches!(outcome, ProbeOutcome::Good));
                    prop_assert!(auto_enable || !status.is_out(NOW));
                }
            }
        }
        if matches!(outcome, ProbeOutcome::Inconclusive { .. }) {
            prop_assert!(matches!(change, ProbeChange::Times(_)));
        }
    }

    #[test]
    fn part8_pauses_stay_within_a_tenth_of_the_series(failed in 0_u32..40, jitter in 0.0..=1.0_f64) {
        let hard = 60.0 * 2_f64.powi(failed.min(10) as i32);
        let pause = super::probe::pause(Cause::Credential, failed, jitter).as_secs_f64();
        let middle = hard.min(3600.0);
        prop_assert!(pause >= middle * 0.899 && pause <= middle * 1.101);
        let soft = super::probe::pause(Cause::Unhealthy, failed, jitter).as_secs_f64();
        let middle = (10.0 * 1.5_f64.powi(failed.min(10) as i32)).min(20.0);
        prop_assert!(soft >= middle * 0.899 && soft <= middle * 1.101);
    }
}

#[test]
fn part7_the_order_of_causes_is_the_semantics() {
    let order = [
        Cause::Operator,
        Cause::Credential,
        Cause::Quota,
        Cause::ModelUnavailable,
        Cause::Throttled,
        Cause::Unhealthy,
    ];
    assert!(order.windows(2).all(|w| w[0] > w[1]));
    let rules = FleetPolicy::default();
    let over = |before, cause| {
        let status = out(before, 300);
        verdict(&input(cause), &facts(&status), &rules, NOW, 0.5).disposition
    };
    assert_eq!(over(Cause::Quota, Cause::Credential), Disposition::Applied);
    assert_eq!(over(Cause::Credential, Cause::Quota), Disposition::Already);
    assert_eq!(over(Cause::Unhealthy, Cause::Throttled), Disposition::Applied);
    assert_eq!(over(Cause::Throttled, Cause::Quota), Disposition::Applied);
    assert_eq!(over(Cause::Operator, Cause::Credential), Disposition::Already);
    let past = out(Cause::Throttled, -1);
    assert_eq!(
        verdict(&input(Cause::Throttled), &facts(&past), &rules, NOW, 0.5).disposition,
        Disposition::Applied,
        "a throttle that is over reads as active"
    );
    let whole = out(Cause::Quota, 300);
    let one = Status::default();
    let wider = Facts { wider: Some(&whole), ..facts(&one) };
    assert_eq!(verdict(&input(Cause::Throttled), &wider, &rules, NOW, 0.5).disposition, Disposition::Already);
}

#[test]
fn a_growing_throttle_starts_small_doubles_and_starts_anew_after_quiet() {
    let rules = FleetPolicy { throttle_initial: Some(Duration::from_secs(20)), ..FleetPolicy::default() };
    let throttle = |status: &Status, now| {
        verdict(&input(Cause::Throttled), &facts(status), &rules, now, 0.5).write.map(|next| {
            let wait = (next.retry_at.unwrap() - now).whole_seconds();
            (next, wait)
        })
    };
    let mut status = Status::default();
    let mut now = NOW;
    let mut waits = Vec::new();
    for _ in 0..6 {
        let (next, wait) = throttle(&status, now).unwrap();
        waits.push(wait);
        now = next.retry_at.unwrap() + time::Duration::seconds(1);
        status = next;
    }
    assert_eq!(waits, [20, 40, 80, 160, 300, 300]);
    let (_, wait) = throttle(&status, now + time::Duration::seconds(400)).unwrap();
    assert_eq!(wait, 20);
}

#[test]
fn throttle_length_comes_from_the_hint_else_from_the_policy_and_age_counts() {
    let rules = FleetPolicy::default();
    let active = Status::default();
    let end = |input: &VerdictInput| {
        let decision = verdict(input, &facts(&active), &rules, NOW, 0.5);
        decision.write.map(|n| ((n.retry_at.unwrap() - NOW).whole_seconds(), n.hinted))
    };
    let throttled = input(Cause::Throttled);
    assert_eq!(end(&throttled), Some((300, false)));
    let old = VerdictInput { age: Duration::from_secs(60), ..throttled.clone() };
    assert_eq!(end(&old), Some((240, false)));
    let hinted = |s| VerdictInput { retry_after: Some(Duration::from_secs(s)), ..throttled.clone() };
    assert_eq!(end(&hinted(42)), Some((42, true)));
    assert_eq!(end(&hinted(999_999)), Some((900, true)));
    assert_eq!(end(&hinted(0)), None);
    let evidence = Some(pb::Evidence {
        http_status: 429,
        retry_hint: "retry-after: 999999".into(),
        excerpt: "slow down".into(),
        ..pb::Evidence::default()
    });
    let told = VerdictInput { evidence, ..hinted(900) };
    let written = verdict(&told, &facts(&active), &rules, NOW, 0.5).write.unwrap();
    assert_eq!(written.reason, "429 [retry-after: 999999]: slow down", "the provider's own words");
    let late = VerdictInput { age: Duration::from_secs(400), ..throttled };
    assert_eq!(
        verdict(&late, &facts(&active), &rules, NOW, 0.5).disposition,
        Disposition::Stale,
        "its time is over"
    );
}

#[test]
fn an_answer_below_500_brings_an_unhealthy_channel_back() {
    let subject = Subject::Channel(ChannelId(1));
    let status = out(Cause::Unhealthy, 10);
    let limited = ProbeOutcome::Throttled { retry_after: None, reason: "429".into(), evidence: None };
    let change = probed(&subject, &status, &limited, Held::default(), &FleetPolicy::default(), NOW, 0.5);
    let ProbeChange::Publish { status, raise_fence: true } = change else { panic!("{change:?}") };
    assert_eq!(status.state, State::Active);
    // A key that is limited lives: its cause becomes throttled.
    let key = Subject::Credential(CredentialId(1));
    let dead = out(Cause::Credential, 10);
    let change = probed(&key, &dead, &limited, Held::default(), &FleetPolicy::default(), NOW, 0.5);
    let ProbeChange::Publish { status, raise_fence: false } = change else { panic!("{change:?}") };
    assert_eq!((status.cause, status.retry_at), (Some(Cause::Throttled), Some(at(300))));
}

#[test]
fn part5_enable_and_disable_are_the_operators_whatever_was_there() {
    let status = Status { degraded: true, throttles: 3, fence: 2, ..out(Cause::Quota, 100) };
    let on = enabled(&status, "ann", 9);
    assert_eq!((on.state, on.fence, on.revision, on.actor.as_str()), (State::Active, 9, 9, "ann"));
    assert!(!on.degraded && on.due_at().is_none());
    let off = disabled(&status, "ann", "why", NOW, 9);
    assert_eq!((off.cause, off.fence, off.due_at()), (Some(Cause::Operator), 2, None));
    assert_eq!(off.disabled_at, Some(NOW));
    let later = disabled(&off, "bob", "again", at(50), 10);
    assert_eq!(later.disabled_at, Some(NOW), "the same absence");
    assert!(is_automatic(&status) && !is_automatic(&off) && !is_automatic(&on));
}

#[test]
fn a_channel_is_out_when_its_last_key_is_and_says_the_mildest_reason() {
    let credential = |id| pb::Credential { credential_id: id, ..Default::default() };
    let entry = |id, status: &Status| {
        let message = pb::Status {
            cause: if status.cause == Some(Cause::Quota) { pb::Cause::Quota } else { pb::Cause::Credential }
                .into(),
            reason: "r".into(),
            ..Default::default()
        };
        (Subject::Credential(CredentialId(id)), status.clone(), message)
    };
    let mut shown = Channel {
        channel: pb::Channel { channel_id: 1, ..Default::default() },
        credentials: vec![credential(1), credential(2)],
        statuses: vec![entry(1, &out(Cause::Credential, 60))],
    };
    let view = channel_view(&shown, NOW);
    assert_eq!(
        (view.state(), view.credentials_usable, view.credentials_total),
        (pb::ServingState::Active, 1, 2)
    );
    shown.statuses.push(entry(2, &out(Cause::Quota, 60)));
    let view = channel_view(&shown, NOW);
    assert_eq!(
        (view.state(), view.cause(), view.credentials_usable),
        (pb::ServingState::Disabled, pb::Cause::Quota, 0)
    );
    // A throttle that is over reads as active, here as everywhere.
    let mut over = entry(1, &out(Cause::Throttled, -1));
    over.2 =
        pb::Status { state: pb::ServingState::Disabled.into(), cause: pb::Cause::Throttled.into(), ..over.2 };
    shown.statuses = vec![over];
    let view = channel_view(&shown, NOW);
    assert_eq!(
        (view.state(), view.statuses[0].state(), view.statuses[0].cause()),
        (pb::ServingState::Active, pb::ServingState::Active, pb::Cause::Unspecified)
    );
}
