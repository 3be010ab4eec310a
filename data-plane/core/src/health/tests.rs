use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::fixtures;
use crate::ids::{ChannelId, CredentialId, Revision};
use crate::items::{Item, Items};
use crate::policy::FleetPolicy;
use crate::view::Clock;

const NOW: Duration = Duration::from_secs(100);

fn mark(spec_revision: i64) -> Mark {
    Mark {
        channel: ChannelId(1),
        model: Arc::from("m"),
        credential: Some(CredentialId(1)),
        revision: Revision(50),
        spec_revision: Revision(spec_revision),
    }
}

fn ticket(health: &Health) -> Ticket {
    Ticket::new(mark(1), health.clone(), Vec::new())
}

fn fail(health: &Health, soft: Soft, body: u64) -> Crossing {
    ticket(health).failure(soft, body, &FleetPolicy::default(), NOW)
}

fn in_a_row(health: &Health) -> Vec<u32> {
    health.troubled().into_iter().map(|t| t.in_a_row).collect()
}

#[test]
fn three_are_degraded_five_open_the_breaker() {
    let health = Health::default();
    let crossings: Vec<_> = (0..7).map(|body| fail(&health, Soft::Answered, body)).collect();
    use Crossing::{Degraded, None, Opened};
    assert_eq!(crossings, [None, None, Degraded, None, Opened, None, None]);
    assert_eq!(health.troubled()[0].open_until, Some(NOW + Duration::from_secs(10)));
}

#[test]
fn only_failures_in_a_row_count() {
    let health = Health::default();
    for pattern in ["FFSF", "FFFFS", "FSFFFFS", "SFFFF"] {
        for (body, what) in (0..).zip(pattern.chars()) {
            match what {
                'F' => assert_ne!(fail(&health, Soft::Answered, body), Crossing::Opened, "{pattern}"),
                _ => ticket(&health).success(),
            }
        }
        ticket(&health).success();
        assert_eq!(in_a_row(&health), [0; 0], "{pattern}");
    }
}

#[test]
fn an_answer_counts_against_the_ability_and_none_against_the_channel() {
    let health = Health::default();
    fail(&health, Soft::NoAnswer, 1);
    fail(&health, Soft::NoAnswer, 2);
    assert_eq!(health.troubled()[0].subject, Subject::Channel(ChannelId(1)));
    fail(&health, Soft::Answered, 3);
    let troubled = health.troubled();
    assert_eq!(troubled.len(), 1, "it answered, so the channel is there");
    assert_eq!(troubled[0].subject, mark(1).ability_subject());
}

#[test]
fn a_poison_prompt_retried_nine_times_condemns_nobody() {
    let health = Health::default();
    for _ in 0..9 {
        assert_eq!(fail(&health, Soft::Answered, 42), Crossing::None);
    }
    assert_eq!(in_a_row(&health), [1]);
    assert_eq!(health.drain()[0].failures, 1);
    // A minute later it is news again.
    let later = NOW + Duration::from_secs(60);
    ticket(&health).failure(Soft::Answered, 42, &FleetPolicy::default(), later);
    assert_eq!(in_a_row(&health), [2]);
}

#[test]
fn five_silent_attempts_in_a_row_count_as_five_failures() {
    let health = Health::default();
    let silent = |body| ticket(&health).silent(body, &FleetPolicy::default(), NOW);
    let crossings: Vec<_> = (0..5).map(silent).collect();
    assert_eq!(crossings[..4], [Crossing::None; 4]);
    assert_eq!(crossings[4], Crossing::Opened);
    assert_eq!(health.drain()[0].trailing_failures, 5);

    let health = Health::default();
    for body in 0..20 {
        assert_eq!(ticket(&health).silent(body, &FleetPolicy::default(), NOW), Crossing::None);
        if body % 4 == 3 {
            ticket(&health).success();
        }
    }
}

#[test]
fn tallies_say_what_happened_since_the_last_report_per_spec() {
    let health = Health::default();
    ticket(&health).success();
    fail(&health, Soft::Answered, 1);
    fail(&health, Soft::Answered, 2);
    ticket(&health).condemned(NOW);
    Ticket::new(mark(2), health.clone(), Vec::new()).success();
    let mut tallies = health.drain();
    tallies.retain(|t| t.subject == mark(1).ability_subject());
    tallies.sort_by_key(|t| t.spec_revision);
    let figures: Vec<_> =
        tallies.iter().map(|t| (t.spec_revision.0, t.successes, t.failures, t.trailing_failures)).collect();
    assert_eq!(figures, [(1, 1, 3, 3), (2, 1, 0, 0)]);
    assert!(health.drain().is_empty());
}

#[test]
fn what_is_the_callers_fault_or_nobodys_counts_nowhere() {
    let health = Health::default();
    ticket(&health).answered();
    drop(ticket(&health));
    assert!(health.drain().is_empty());
    assert!(health.troubled().is_empty());
}

#[test]
fn an_answer_to_a_bad_request_ends_a_row_of_failures() {
    let health = Health::default();
    fail(&health, Soft::NoAnswer, 1);
    ticket(&health).answered();
    assert!(health.troubled().is_empty());
}

#[test]
fn what_left_the_view_is_forgotten() {
    let health = Health::default();
    (0..5).for_each(|body| {
        fail(&health, Soft::NoAnswer, body);
    });
    assert!(!health.is_calm());
    health.reconcile(&View::empty(1), NOW);
    assert!(health.is_calm());
    assert!(health.troubled().is_empty());
}

#[test]
fn what_an_operator_brings_back_is_no_longer_spared() {
    let view = |fence| {
        let items: Items = [
            Item::Channel(Arc::new(fixtures::channel(1))),
            Item::Status(Arc::new(fixtures::active(fixtures::on_channel(1), fence, fence))),
        ]
        .into_iter()
        .collect();
        View::empty(7).replace(&items, "e", Revision(90), Clock { server_time: None, now: NOW }).0
    };
    for soft in [Soft::NoAnswer, Soft::Answered] {
        let health = Health::default();
        (0..5).for_each(|body| {
            fail(&health, soft, body);
        });
        health.reconcile(&view(50), NOW);
        assert!(!health.is_calm(), "enabled before these failures");
        health.reconcile(&view(51), NOW);
        assert!(health.is_calm() && health.troubled().is_empty());
    }
}

#[test]
fn a_thousand_threads_find_exactly_one_trial_per_window() {
    let health = Health::default();
    (0..5).for_each(|body| {
        fail(&health, Soft::NoAnswer, body);
    });
    let subject = Subject::Channel(ChannelId(1));
    for window in [10, 15, 20, 20] {
        let until = health.troubled()[0].open_until.unwrap();
        let entered: usize = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        let one = || {
                            let mut state = health.lock();
                            let open = state.breakers[&subject].door(until) == gate::Door::One;
                            if open {
                                state.enter(&gate::Held::Breaker(subject.clone()), until);
                            }
                            usize::from(open)
                        };
                        (0..125).map(|_| one()).sum::<usize>()
                    })
                })
                .collect();
            tries.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(entered, 1);
        let held = vec![gate::Held::Breaker(subject.clone())];
        let fleet = FleetPolicy::default();
        Ticket::new(mark(1), health.clone(), held).failure(Soft::NoAnswer, 100 + window, &fleet, until);
    }
    let last = health.troubled()[0].open_until.unwrap();
    assert_eq!(last, NOW + Duration::from_secs(10 + 15 + 20 + 20 + 20));
}
