mod draws;
mod faults;
mod trials;

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use spareline_proto::registry::v1 as pb;

use super::*;
use crate::fixtures;
use crate::ids::Revision;
use crate::items::{Item, Items};
use crate::view::Clock;

/// A server clock that reads 1000 s when the local one reads 100 s.
const NOW: Duration = Duration::from_secs(100);
const SERVER: i64 = 1000;

/// A proxy's state, and the request at hand.
struct Bench {
    view: View,
    health: Health,
    overlays: Overlays,
    policy: RequestPolicy,
    tried: Tried,
    rng: StdRng,
    now: Duration,
    alone: bool,
}

impl Bench {
    fn new(channels: Vec<pb::Channel>, statuses: Vec<pb::Status>) -> Self {
        let credentials: Vec<_> = channels.iter().flat_map(|c| c.credential_ids.clone()).collect();
        let items: Items = credentials
            .into_iter()
            .map(|id| Item::Credential(Arc::new(fixtures::credential(id))))
            .chain(channels.into_iter().map(|c| Item::Channel(Arc::new(c))))
            .chain(statuses.into_iter().map(|s| Item::Status(Arc::new(s))))
            .collect();
        let clock = Clock { server_time: Some(fixtures::at(SERVER)), now: NOW };
        let (view, rejections) = View::empty(7).replace(&items, "e", Revision(50), clock);
        assert_eq!(rejections, []);
        Self {
            view,
            health: Health::default(),
            overlays: Overlays::default(),
            policy: RequestPolicy::resolve(None, None),
            tried: Tried::default(),
            rng: StdRng::seed_from_u64(1),
            now: NOW,
            alone: false,
        }
    }

    fn pick(&mut self) -> Result<Picked, NoneLeft> {
        self.pick_by(None, None)
    }

    fn pick_by(&mut self, affinity: Option<&str>, pinned: Option<&str>) -> Result<Picked, NoneLeft> {
        let request = Pick {
            view: &self.view,
            group: "default",
            model: "m",
            endpoint: Some(Endpoint::ChatCompletions),
            policy: &self.policy,
            tried: &self.tried,
            health: &self.health,
            overlays: &self.overlays,
            affinity,
            pinned,
            alone: self.alone,
            now: self.now,
        };
        pick(&request, &mut self.rng)
    }

    /// The channel picked; the ticket is dropped.
    fn channel(&mut self) -> Option<i64> {
        self.pick().ok().map(|p| p.channel.id.0)
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn layered(id: i64, priority: i32) -> pb::Channel {
    pb::Channel { priority, ..fixtures::channel(id) }
}

fn weighted(id: i64, weight: u32) -> pb::Channel {
    pb::Channel { weight: Some(weight), ..fixtures::channel(id) }
}

fn keyed(id: i64, credential_ids: &[i64]) -> pb::Channel {
    pb::Channel { credential_ids: credential_ids.to_vec(), ..fixtures::channel(id) }
}

#[test]
fn nothing_to_pick_says_why() {
    let mut bench = Bench::new(vec![fixtures::channel(1)], vec![]);
    let mut ask = |group, model, endpoint, pinned| {
        let request = Pick {
            view: &bench.view,
            group,
            model,
            endpoint,
            policy: &bench.policy,
            tried: &bench.tried,
            health: &bench.health,
            overlays: &bench.overlays,
            affinity: None,
            pinned,
            alone: false,
            now: NOW,
        };
        pick(&request, &mut bench.rng).map(|p| p.channel.id.0).map_err(|n| n.reason)
    };
    assert_eq!(ask("default", "m", None, None), Ok(1));
    assert_eq!(ask("other", "m", None, None), Err(Reason::ModelNotFound));
    assert_eq!(ask("default", "n", None, None), Err(Reason::ModelNotFound));
    assert_eq!(ask("default", "m", Some(Endpoint::Messages), None), Err(Reason::EndpointNotAvailable));
    assert_eq!(ask("default", "m", None, Some("c2")), Err(Reason::ChannelNotFound));
    assert_eq!(ask("default", "m", None, Some("c1")), Ok(1));
}

#[test]
fn a_channel_without_credentials_sends_none_and_one_without_secrets_is_out() {
    let mut bench = Bench::new(vec![fixtures::channel(1)], vec![]);
    assert!(bench.pick().unwrap().credential.is_none());

    let clock = Clock { server_time: None, now: NOW };
    let items: Items = [Item::Channel(Arc::new(keyed(1, &[9])))].into_iter().collect();
    let (view, _) = View::empty(7).replace(&items, "e", Revision(50), clock);
    bench.view = view;
    let left = Left { disabled: 1, ..Left::default() };
    assert_eq!(bench.pick().unwrap_err(), NoneLeft { reason: Reason::AllFailed, retry_after: None, left });
}

#[test]
fn a_tried_key_leaves_its_siblings() {
    let mut bench = Bench::new(vec![keyed(1, &[1, 2])], vec![]);
    let first = bench.pick().unwrap();
    bench.tried.key(&first);
    let second = bench.pick().unwrap();
    assert_ne!(first.credential.as_ref().unwrap().id, second.credential.as_ref().unwrap().id);
    bench.tried.key(&second);
    assert_eq!(bench.pick().unwrap_err().reason, Reason::AllFailed);
}

#[test]
fn credentials_are_drawn_at_random_or_by_rank() {
    let mut bench = Bench::new(vec![keyed(1, &[1, 2, 3])], vec![]);
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..600 {
        *seen.entry(bench.pick().unwrap().credential.unwrap().id.0).or_insert(0) += 1;
    }
    assert!(seen.values().all(|n| (140..260).contains(n)), "{seen:?}");

    let mut ranked = keyed(1, &[3, 1, 2]);
    ranked.options.get_or_insert_default().credential_order = pb::CredentialOrder::Rank.into();
    let dead = fixtures::out(fixtures::on_credential(3), pb::Cause::Credential, 9);
    let mut bench = Bench::new(vec![ranked], vec![dead]);
    assert_eq!(bench.pick().unwrap().credential.unwrap().id.0, 1, "the first usable one");
}

#[test]
fn an_ability_status_with_a_key_is_out_only_with_that_key() {
    let other = fixtures::out(fixtures::on_ability(1, "n", Some(2)), pb::Cause::ModelUnavailable, 9);
    let this = fixtures::out(fixtures::on_ability(1, "m", Some(1)), pb::Cause::ModelUnavailable, 9);
    let mut bench = Bench::new(vec![keyed(1, &[1, 2])], vec![other, this]);
    for _ in 0..20 {
        assert_eq!(bench.pick().unwrap().credential.unwrap().id.0, 2);
    }
}

#[test]
fn a_pinned_request_meets_its_channel_also_drained_but_not_disabled() {
    let mut bench = Bench::new(vec![weighted(1, 1), weighted(2, 0)], vec![]);
    assert_eq!(bench.pick_by(None, Some("c2")).unwrap().channel.id.0, 2);
    let out = fixtures::out(fixtures::on_channel(2), pb::Cause::Operator, 9);
    let mut bench = Bench::new(vec![weighted(1, 1), weighted(2, 0)], vec![out]);
    assert_eq!(bench.pick_by(None, Some("c2")).unwrap_err().reason, Reason::AllFailed);
}

#[test]
fn a_retry_prefers_another_failure_domain_of_the_layer() {
    let zoned = |id, zone: &str| pb::Channel {
        labels: [("failure_domain".to_owned(), zone.to_owned())].into(),
        ..fixtures::channel(id)
    };
    let mut bench = Bench::new(vec![zoned(1, "a"), zoned(2, "a"), zoned(3, "b")], vec![]);
    let first = loop {
        let picked = bench.pick().unwrap();
        if picked.channel.id.0 != 3 {
            break picked;
        }
    };
    bench.tried.channel(&first);
    let second = bench.pick().unwrap();
    assert_eq!(second.channel.id.0, 3);
    bench.tried.channel(&second);
    assert!(bench.pick().is_ok(), "what is left of the same domain comes last, not never");
}

#[test]
fn a_missing_endpoint_is_local_and_expires() {
    let mut bench = Bench::new(vec![fixtures::channel(1), layered(2, -1)], vec![]);
    bench.overlays.endpoint_missing(ChannelId(1), &Arc::from("m"), Endpoint::ChatCompletions, NOW);
    assert_eq!(bench.channel(), Some(2));
    bench.pass(601);
    assert_eq!(bench.channel(), Some(1));
}
