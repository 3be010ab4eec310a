//! One request goes first when a time has run out.

use super::*;
use crate::health::Soft;
use crate::overlay::Found;
use crate::{Cause, CredentialId, Subject};

/// How many of so many picks, all in flight at once, are trials of channel 1.
fn trials(bench: &mut Bench, picks: usize) -> Vec<Picked> {
    let picked: Vec<_> = (0..picks).map(|_| bench.pick().unwrap()).collect();
    picked.into_iter().filter(|p| p.channel.id.0 == 1).collect()
}

fn broken() -> Bench {
    let mut bench = Bench::new(vec![layered(1, 9), layered(2, 0)], vec![]);
    let fleet = *bench.view.fleet();
    for body in 0..5 {
        let mut picked = bench.pick().unwrap();
        assert_eq!(picked.channel.id.0, 1);
        picked.ticket.failure(Soft::Answered, body, &fleet, bench.now);
    }
    bench
}

#[test]
fn an_open_breaker_lets_exactly_one_of_a_thousand_through_per_window() {
    let mut bench = broken();
    let fleet = *bench.view.fleet();
    assert_eq!(trials(&mut bench, 1000).len(), 0);
    // 10 s, then x1.5, capped at 20 s.
    for (round, window) in [10, 15, 20, 20].into_iter().enumerate() {
        bench.pass(window - 1);
        assert_eq!(trials(&mut bench, 100).len(), 0, "round {round}");
        bench.pass(1);
        let mut through = trials(&mut bench, 1000);
        assert_eq!(through.len(), 1, "round {round}");
        assert!(through[0].trial);
        through[0].ticket.failure(Soft::Answered, 100 + round as u64, &fleet, bench.now);
        drop(through);
        assert_eq!(trials(&mut bench, 100).len(), 0);
    }
    bench.pass(20);
    let mut through = trials(&mut bench, 1000);
    through[0].ticket.success();
    assert_eq!(trials(&mut bench, 1000).len(), 1000, "open to all");
}

#[test]
fn a_trial_dropped_half_way_frees_its_slot() {
    let mut bench = broken();
    bench.pass(10);
    for _ in 0..10 {
        let through = trials(&mut bench, 50);
        assert_eq!(through.len(), 1);
        drop(through);
    }
}

#[test]
fn after_a_throttle_one_request_tries_first() {
    let throttled = fixtures::throttled(fixtures::on_credential(1), SERVER - 10, SERVER + 90, true, 9);
    let mut bench =
        Bench::new(vec![pb::Channel { priority: 9, ..keyed(1, &[1]) }, layered(2, 0)], vec![throttled]);
    bench.pass(89);
    assert_eq!(trials(&mut bench, 50).len(), 0);
    bench.pass(11);
    let mut through = trials(&mut bench, 50);
    assert_eq!(through.len(), 1, "back by time alone, 0 to 10 % later");
    through[0].ticket.success();
    assert_eq!(trials(&mut bench, 50).len(), 50);
}

#[test]
fn a_throttles_jitter_stays_within_a_tenth_and_differs_between_proxies() {
    let mut untils = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let throttled = fixtures::throttled(fixtures::on_channel(1), SERVER, SERVER + 100, true, 9);
        let items = [Item::Channel(Arc::new(fixtures::channel(1))), Item::Status(Arc::new(throttled))];
        let clock = Clock { server_time: Some(fixtures::at(SERVER)), now: NOW };
        let (view, _) = View::empty(seed).replace(&items.into_iter().collect(), "e", Revision(1), clock);
        let until = view.outs(ChannelId(1)).unwrap().own.as_ref().unwrap().until.unwrap();
        assert!((NOW + Duration::from_secs(100)..=NOW + Duration::from_secs(110)).contains(&until));
        untils.insert(until);
    }
    assert!(untils.len() > 40);
}

#[test]
fn a_clock_ten_minutes_off_does_not_move_a_throttle() {
    for skew in [-600, 0, 600] {
        let server = SERVER + skew;
        let throttled = fixtures::throttled(fixtures::on_channel(1), server, server + 30, true, 9);
        let items = [Item::Channel(Arc::new(fixtures::channel(1))), Item::Status(Arc::new(throttled))];
        let clock = Clock { server_time: Some(fixtures::at(server)), now: NOW };
        let (view, _) = View::empty(1).replace(&items.into_iter().collect(), "e", Revision(1), clock);
        let subject = Subject::Channel(ChannelId(1));
        assert!(view.out(&subject, NOW + Duration::from_secs(29)).is_some());
        assert!(view.out(&subject, NOW + Duration::from_secs(34)).is_none());
    }
}

#[test]
fn a_throttle_that_was_over_before_the_process_began_is_over() {
    let throttled = fixtures::throttled(fixtures::on_channel(1), SERVER - 5000, SERVER - 2000, true, 9);
    let items = [Item::Channel(Arc::new(fixtures::channel(1))), Item::Status(Arc::new(throttled))];
    let clock = Clock { server_time: Some(fixtures::at(SERVER)), now: Duration::ZERO };
    let (view, _) = View::empty(1).replace(&items.into_iter().collect(), "e", Revision(1), clock);
    assert!(view.out(&Subject::Channel(ChannelId(1)), Duration::ZERO).is_none());
}

#[test]
fn a_lone_request_after_a_throttle_does_not_lock_the_others_out_for_long() {
    let throttled = fixtures::throttled(fixtures::on_channel(1), SERVER - 10, SERVER, true, 9);
    let mut bench = Bench::new(vec![fixtures::channel(1)], vec![throttled]);
    bench.pass(2);
    let first = bench.pick().unwrap();
    assert!(first.trial);
    let second = bench.pick().unwrap();
    assert!(second.last_resort, "others only as a last resort");
    bench.pass(5);
    assert!(!bench.pick().unwrap().last_resort, "a refusal would have come by now");
}

#[test]
fn without_a_control_plane_what_a_machine_disabled_is_tried_when_its_time_has_come() {
    let due = |cause, revision| pb::Status {
        retry_at: Some(fixtures::at(SERVER + 60)),
        ..fixtures::out(fixtures::on_channel(1), cause, revision)
    };
    for (cause, pauses) in [(pb::Cause::Credential, [60, 120]), (pb::Cause::Unhealthy, [10, 15])] {
        let mut bench = Bench::new(vec![layered(1, 9), layered(2, 0)], vec![due(cause, 9)]);
        bench.pass(61);
        assert_eq!(trials(&mut bench, 50).len(), 0, "the prober's business");
        bench.alone = true;
        for pause in pauses {
            let mut through = trials(&mut bench, 50);
            assert_eq!(through.len(), 1, "{cause:?}");
            through[0].ticket.condemned(bench.now);
            drop(through);
            bench.pass(pause - 1);
            assert_eq!(trials(&mut bench, 50).len(), 0, "{cause:?}");
            bench.pass(1);
        }
        trials(&mut bench, 50)[0].ticket.success();
        assert_eq!(trials(&mut bench, 50).len(), 50, "{cause:?}");
    }
    let mut bench = Bench::new(vec![layered(1, 9), layered(2, 0)], vec![due(pb::Cause::Operator, 9)]);
    bench.alone = true;
    bench.pass(100_000);
    assert_eq!(trials(&mut bench, 50).len(), 0, "an operator's decision is never tried");
}

#[test]
fn an_overlay_that_ran_out_lets_one_request_try_first() {
    let mut bench = Bench::new(vec![pb::Channel { priority: 9, ..keyed(1, &[1]) }, layered(2, 0)], vec![]);
    let found = Found {
        subject: Subject::Credential(CredentialId(1)),
        cause: Cause::Credential,
        hint: None,
        revision: Revision(50),
        verdict_id: Arc::from("v"),
    };
    bench.overlays.add(&found, &bench.view, bench.now, &mut bench.rng);
    assert_eq!(trials(&mut bench, 50).len(), 0);
    bench.pass(67);
    let mut through = trials(&mut bench, 50);
    assert_eq!(through.len(), 1);
    through[0].ticket.success();
    assert_eq!(bench.overlays.succeeded(&through[0].ticket.mark, None), [Arc::from("v")]);
    assert_eq!(trials(&mut bench, 50).len(), 50);
}
