//! What went wrong elsewhere: retries that go back to a broken channel, layers that are skipped, outages without a word.

use super::*;
use crate::health::Soft;
use crate::overlay::Found;
use crate::{Cause, Subject};

fn throttle(bench: &mut Bench, id: i64, hint: Option<u64>) {
    let found = Found {
        subject: Subject::Channel(ChannelId(id)),
        cause: Cause::Throttled,
        hint: hint.map(Duration::from_secs),
        revision: Revision(50),
        verdict_id: Arc::from("v"),
    };
    let added = bench.overlays.add(&found, &bench.view, bench.now, &mut bench.rng);
    assert!(added.until.is_some());
}

fn break_down(bench: &mut Bench) {
    for body in 0..5 {
        let mut picked = bench.pick().unwrap();
        let fleet = *bench.view.fleet();
        picked.ticket.failure(Soft::Answered, body, &fleet, bench.now);
    }
}

#[test]
fn every_layer_is_tried_once_in_order() {
    let mut bench = Bench::new(vec![layered(1, 9), layered(2, 8), layered(3, 7)], vec![]);
    let mut met = Vec::new();
    while let Ok(picked) = bench.pick() {
        met.push(picked.channel.id.0);
        bench.tried.channel(&picked);
    }
    assert_eq!(met, [1, 2, 3]);
}

#[test]
fn a_throttled_top_layer_leads_to_the_middle_one_in_either_order() {
    for order in [LayerOrder::FinishLayer, LayerOrder::NextLayer] {
        let mut bench = Bench::new(vec![layered(1, 10), layered(2, 5), layered(3, 0)], vec![]);
        bench.policy.layer_order = order;
        let first = bench.pick().unwrap();
        assert_eq!(first.channel.id.0, 1);
        throttle(&mut bench, 1, Some(30));
        bench.tried.channel(&first);
        assert_eq!(bench.channel(), Some(2));
    }
}

#[test]
fn a_sticky_callers_broken_channel_is_met_once() {
    let mut bench = Bench::new(vec![layered(1, 0), layered(2, 0), layered(3, 0)], vec![]);
    let mut met = std::collections::BTreeSet::new();
    while let Ok(picked) = bench.pick_by(Some("k"), None) {
        assert!(met.insert(picked.channel.id));
        bench.tried.channel(&picked);
    }
    assert_eq!(met.len(), 3);
}

#[test]
fn all_throttled_with_hints_is_a_wait_until_the_earliest() {
    let mut bench = Bench::new(vec![fixtures::channel(1), fixtures::channel(2)], vec![]);
    throttle(&mut bench, 1, Some(60));
    throttle(&mut bench, 2, Some(30));
    let none = bench.pick().unwrap_err();
    assert_eq!(none.reason, Reason::AllThrottled);
    let wait = none.retry_after.unwrap();
    assert!((30..=33).contains(&wait.as_secs()), "{wait:?}");
}

#[test]
fn a_hint_is_obeyed_and_a_guess_is_not_the_last_word() {
    let mut bench = Bench::new(vec![fixtures::channel(1)], vec![]);
    throttle(&mut bench, 1, None);
    let picked = bench.pick().unwrap();
    assert!(picked.last_resort);
    drop(picked);
    let none = bench.pick().unwrap_err();
    assert_eq!(none.reason, Reason::AllThrottled, "once a second");
    bench.pass(1);
    assert!(bench.pick().unwrap().last_resort);

    bench.policy.last_resort = false;
    bench.pass(1);
    assert_eq!(bench.pick().unwrap_err().reason, Reason::AllThrottled);
}

#[test]
fn proven_dead_is_no_last_resort_and_no_wait() {
    for cause in [pb::Cause::Credential, pb::Cause::Quota, pb::Cause::ModelUnavailable, pb::Cause::Operator] {
        let out = pb::Status {
            retry_at: Some(fixtures::at(SERVER + 60)),
            ..fixtures::out(fixtures::on_channel(1), cause, 9)
        };
        let mut bench = Bench::new(vec![fixtures::channel(1)], vec![out]);
        let left = Left { disabled: 1, ..Left::default() };
        assert_eq!(
            bench.pick().unwrap_err(),
            NoneLeft { reason: Reason::AllFailed, retry_after: None, left }
        );
    }
}

#[test]
fn the_unhealthy_come_before_the_throttled_as_last_resort() {
    let unhealthy = fixtures::out(fixtures::on_channel(2), pb::Cause::Unhealthy, 9);
    let mut bench = Bench::new(vec![layered(1, 9), layered(2, 0)], vec![unhealthy]);
    throttle(&mut bench, 1, None);
    let first = bench.pick().unwrap();
    assert_eq!((first.channel.id.0, first.last_resort), (2, true));
    let second = bench.pick().unwrap();
    assert_eq!((second.channel.id.0, second.last_resort), (1, true), "the unhealthy one's turn is used up");
    let none = bench.pick().unwrap_err();
    assert_eq!(none.reason, Reason::AllThrottled);
    assert_eq!(none.left, Left { throttled: 1, failing: 1, ..Left::default() });
}

#[test]
fn what_failed_in_this_request_is_no_reason_to_wait() {
    let mut bench = Bench::new(vec![fixtures::channel(1)], vec![]);
    break_down(&mut bench);
    let picked = bench.pick().unwrap();
    assert!(picked.last_resort);
    bench.tried.channel(&picked);
    let left = Left { tried: 1, ..Left::default() };
    assert_eq!(bench.pick().unwrap_err(), NoneLeft { reason: Reason::AllFailed, retry_after: None, left });
}

#[test]
fn a_lone_channel_that_fails_at_times_stays_in() {
    let mut bench = Bench::new(vec![fixtures::channel(1)], vec![]);
    let fleet = *bench.view.fleet();
    for body in 0..1000 {
        let mut picked = bench.pick().unwrap();
        assert!(!picked.last_resort);
        match body % 5 {
            0..4 => {
                picked.ticket.failure(Soft::Answered, body, &fleet, bench.now);
            }
            _ => picked.ticket.success(),
        }
    }
}

#[test]
fn twenty_keys_fifteen_of_them_dead_cost_no_request() {
    let channels: Vec<_> = (1..=20).map(|id| keyed(id, &[id])).collect();
    let mut bench = Bench::new(channels, vec![]);
    for request in 0..50 {
        bench.tried = Tried::default();
        let mut dead = 0;
        loop {
            let mut picked = bench.pick().unwrap();
            let id = picked.credential.as_ref().unwrap().id;
            if id.0 > 15 {
                picked.ticket.success();
                break;
            }
            dead += 1;
            picked.ticket.condemned(bench.now);
            bench.tried.key(&picked);
            let found = Found {
                subject: Subject::Credential(id),
                cause: Cause::Credential,
                hint: None,
                revision: Revision(50),
                verdict_id: Arc::from(format!("v{request}")),
            };
            bench.overlays.add(&found, &bench.view, bench.now, &mut bench.rng);
        }
        assert!(dead <= 15);
    }
    assert_eq!(bench.overlays.list(bench.now).len(), 15, "each is met once");
}
