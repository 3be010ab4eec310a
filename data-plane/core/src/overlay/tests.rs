use rand::SeedableRng;
use rand::rngs::StdRng;
use spareline_proto::registry::v1 as pb;

use super::*;
use crate::fixtures;
use crate::ids::CredentialId;
use crate::items::{Delta, Item, Items};
use crate::view::Clock;

const NOW: Duration = Duration::from_secs(100);

struct Bench {
    view: View,
    overlays: Overlays,
    rng: StdRng,
    now: Duration,
}

impl Bench {
    fn new() -> Self {
        let channel = pb::Channel { credential_ids: vec![1, 2], ..fixtures::channel(1) };
        let mut items = Items::default();
        items.insert(Item::Channel(Arc::new(channel)));
        items.insert(Item::Credential(Arc::new(fixtures::credential(1))));
        items.insert(Item::Credential(Arc::new(fixtures::credential(2))));
        let (view, _) = View::empty(1).replace(&items, "e", Revision(50), clock());
        Self { view, overlays: Overlays::default(), rng: StdRng::seed_from_u64(1), now: NOW }
    }

    fn add(&mut self, subject: Subject, cause: Cause, hint: Option<u64>) -> Added {
        let found = Found {
            subject,
            cause,
            hint: hint.map(Duration::from_secs),
            revision: Revision(50),
            verdict_id: Arc::from("v"),
        };
        self.overlays.add(&found, &self.view, self.now, &mut self.rng)
    }

    fn status(&mut self, status: pb::Status) {
        let delta = Delta { statuses: vec![Arc::new(status)], ..Default::default() };
        let (view, rejections) = self.view.apply(&delta, Revision(60), clock());
        assert_eq!(rejections, []);
        self.view = view;
        self.overlays.reconcile(&self.view, self.now);
    }

    fn seconds_left(&self) -> Option<u64> {
        self.overlays.list(self.now).first().map(|o| (o.until - self.now).as_secs())
    }
}

fn clock() -> Clock {
    Clock { server_time: Some(fixtures::at(1000)), now: NOW }
}

fn key(id: i64) -> Subject {
    Subject::Credential(CredentialId(id))
}

#[test]
fn a_hard_overlay_lasts_a_minute_and_doubles_to_fifteen() {
    let mut bench = Bench::new();
    for expected in [60.0, 120.0, 240.0, 480.0, 900.0, 900.0] {
        let added = bench.add(key(1), Cause::Credential, None);
        let length = (added.until.unwrap() - bench.now).as_secs_f64();
        assert!((expected * 0.9..=expected * 1.1).contains(&length), "{length} is not about {expected}");
        assert!(added.report);
        bench.now = added.until.unwrap();
    }
    bench.overlays.succeeded(&mark(1), None);
    assert!(bench.add(key(1), Cause::Credential, None).until.unwrap() - bench.now < Duration::from_secs(67));
}

fn mark(credential: i64) -> Mark {
    Mark {
        channel: ChannelId(1),
        model: Arc::from("m"),
        credential: Some(CredentialId(credential)),
        revision: Revision(50),
        spec_revision: Revision(1),
    }
}

#[test]
fn one_report_per_overlay() {
    let mut bench = Bench::new();
    assert!(bench.add(key(1), Cause::Credential, None).report);
    assert!(!bench.add(key(1), Cause::Credential, None).report);
    assert!(!bench.add(key(1), Cause::Throttled, Some(60)).report, "weaker than what is in force");
    assert!(bench.add(key(2), Cause::Throttled, Some(60)).report);
    assert!(bench.add(key(2), Cause::Quota, None).report, "stronger");
}

#[test]
fn a_later_deadline_extends_and_an_earlier_one_never_shortens() {
    let mut bench = Bench::new();
    bench.add(key(1), Cause::Throttled, Some(1));
    let extended = bench.add(key(1), Cause::Throttled, Some(30));
    assert!(extended.report);
    assert!(bench.seconds_left() >= Some(30));
    let shorter = bench.add(key(1), Cause::Throttled, Some(5));
    assert_eq!((shorter.until, shorter.report), (extended.until, false));
    let little = bench.add(key(1), Cause::Throttled, Some(31));
    assert!(!little.report, "under 10 % is no news");
}

#[test]
fn short_hints_stay_local() {
    let mut bench = Bench::new();
    let added = bench.add(key(1), Cause::Throttled, Some(9));
    assert!(added.until.is_some() && !added.report);
    assert!(bench.add(key(2), Cause::Throttled, Some(10)).report);
}

#[test]
fn a_throttle_without_a_hint_lasts_as_the_policy_says_and_grows_on_repetition() {
    let mut bench = Bench::new();
    bench.add(key(1), Cause::Throttled, None);
    assert!((300..=330).contains(&bench.seconds_left().unwrap()));
    let fleet = pb::FleetPolicy {
        throttle_initial: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..Default::default()
    };
    let policy = pb::Policy { fleet: Some(fleet), revision: 55, ..Default::default() };
    let delta = Delta { policies: vec![Arc::new(policy)], ..Default::default() };
    bench.view = bench.view.apply(&delta, Revision(55), clock()).0;
    for expected in [1.0, 2.0, 4.0, 8.0] {
        let until = bench.add(key(2), Cause::Throttled, None).until.unwrap();
        let length = (until - bench.now).as_secs_f64();
        assert!((expected..=expected * 1.1).contains(&length), "{length}");
        bench.now = until;
    }
}

#[test]
fn a_subject_outside_the_view_is_reported_but_not_laid_over() {
    let mut bench = Bench::new();
    assert_eq!(bench.add(key(9), Cause::Credential, None), Added { until: None, report: true });
    assert!(bench.overlays.is_empty());
}

#[test]
fn the_fleets_word_ends_an_overlay() {
    // Out for the fleet.
    let mut bench = Bench::new();
    bench.add(key(1), Cause::Credential, None);
    bench.status(fixtures::out(fixtures::on_credential(1), pb::Cause::Credential, 60));
    assert!(bench.overlays.is_empty());
    // Enabled after the attempt was picked; or its channel was.
    for (subject, fence, ends) in [
        (fixtures::on_credential(1), 60, true),
        (fixtures::on_credential(1), 50, false),
        (fixtures::on_channel(1), 60, true),
        (fixtures::on_credential(2), 60, false),
    ] {
        let mut bench = Bench::new();
        bench.add(key(1), Cause::Credential, None);
        bench.status(fixtures::active(subject, 60, fence));
        assert_eq!(bench.overlays.is_empty(), ends, "fence {fence}");
    }
}

#[test]
fn stale_and_unknown_end_an_overlay_and_other_answers_do_not() {
    for (disposition, ends) in [
        (Disposition::Stale, true),
        (Disposition::UnknownSubject, true),
        (Disposition::Applied, false),
        (Disposition::Pending, false),
        (Disposition::Suppressed, false),
        (Disposition::Local, false),
    ] {
        let mut bench = Bench::new();
        bench.add(key(1), Cause::Credential, None);
        bench.overlays.answered("other", disposition);
        assert!(!bench.overlays.is_empty());
        bench.overlays.answered("v", disposition);
        assert_eq!(bench.overlays.is_empty(), ends, "{disposition:?}");
    }
}

#[test]
fn a_success_ends_what_said_otherwise_and_withdraws_its_verdicts() {
    let mut bench = Bench::new();
    bench.add(key(1), Cause::Credential, None);
    bench.add(key(2), Cause::Credential, None);
    assert_eq!(bench.overlays.succeeded(&mark(1), None), [Arc::from("v")]);
    assert_eq!(bench.overlays.list(bench.now).len(), 1);
}

#[test]
fn what_leaves_the_view_takes_its_overlay_along() {
    let mut bench = Bench::new();
    bench.add(key(1), Cause::Credential, None);
    bench.overlays.reconcile(&View::empty(1), bench.now);
    assert!(bench.overlays.is_empty());
}
