//! Weights, layers, affinity: what a pick never does, and how often it does what.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The chi-square statistic of counts against weights, and its 99.9 % quantile for that many cells.
fn chi_square(counts: &BTreeMap<i64, u32>, weights: &BTreeMap<i64, u32>) -> (f64, f64) {
    let n = f64::from(counts.values().sum::<u32>());
    let total = f64::from(weights.values().sum::<u32>());
    let statistic = weights.iter().filter(|(_, w)| **w > 0).map(|(id, w)| {
        let expected = n * f64::from(*w) / total;
        (f64::from(counts.get(id).copied().unwrap_or(0)) - expected).powi(2) / expected
    });
    let k = weights.values().filter(|w| **w > 0).count() as f64 - 1.0;
    // Wilson and Hilferty.
    let quantile = k * (1.0 - 2.0 / (9.0 * k) + 3.09 * (2.0 / (9.0 * k)).sqrt()).powi(3);
    (statistic.sum(), quantile)
}

fn count(bench: &mut Bench, picks: u32) -> BTreeMap<i64, u32> {
    let mut counts = BTreeMap::new();
    for _ in 0..picks {
        *counts.entry(bench.channel().unwrap()).or_insert(0) += 1;
    }
    counts
}

fn assert_shares(bench: &mut Bench, weights: &[(i64, u32)]) {
    let weights: BTreeMap<_, _> = weights.iter().copied().collect();
    let counts = count(bench, 20_000);
    let (statistic, quantile) = chi_square(&counts, &weights);
    assert!(statistic < quantile, "{statistic} >= {quantile}: {counts:?}");
    assert!(counts.keys().all(|id| weights[id] > 0), "{counts:?}");
}

#[test]
fn shares_are_as_weights_say() {
    let mut bench =
        Bench::new(vec![weighted(1, 70), weighted(2, 30), weighted(3, 0), weighted(4, 1)], vec![]);
    assert_shares(&mut bench, &[(1, 70), (2, 30), (3, 0), (4, 1)]);
}

#[test]
fn shares_of_what_is_left_are_as_weights_say() {
    let channels = || (1..=8).map(|id| weighted(id, u32::try_from(id).unwrap())).collect();
    // By status, and by what was tried: the two paths of a draw.
    let outs = [1, 8].map(|id| fixtures::out(fixtures::on_channel(id), pb::Cause::Quota, 9)).to_vec();
    let mut bench = Bench::new(channels(), outs);
    let weights: Vec<_> = (2..=7).map(|id| (id, u32::try_from(id).unwrap())).collect();
    assert_shares(&mut bench, &weights);
    let mut bench = Bench::new(channels(), vec![]);
    bench.tried.channels = vec![ChannelId(1), ChannelId(8)];
    assert_shares(&mut bench, &weights);
}

#[test]
fn all_weights_zero_share_evenly_and_a_zero_among_others_drains() {
    let mut bench = Bench::new(vec![weighted(1, 0), weighted(2, 0)], vec![]);
    assert_shares(&mut bench, &[(1, 1), (2, 1)]);
    let out = fixtures::out(fixtures::on_channel(1), pb::Cause::Quota, 9);
    let mut bench = Bench::new(vec![weighted(1, 5), weighted(2, 0)], vec![out]);
    assert_eq!(bench.channel(), None, "drained stays drained when the rest is out");
}

#[test]
fn an_affinity_key_meets_the_same_channel_and_shares_are_as_weights_say() {
    let channels = || (1..=5).map(|id| weighted(id, u32::try_from(id).unwrap())).collect::<Vec<_>>();
    let mut bench = Bench::new(channels(), vec![]);
    let mut reversed = Bench::new(channels().into_iter().rev().collect(), vec![]);
    let mut counts = BTreeMap::new();
    for i in 0..20_000 {
        let key = format!("user-{i}");
        let first = bench.pick_by(Some(&key), None).unwrap().channel.id.0;
        if i < 200 {
            assert_eq!(bench.pick_by(Some(&key), None).unwrap().channel.id.0, first);
            assert_eq!(reversed.pick_by(Some(&key), None).unwrap().channel.id.0, first);
        }
        *counts.entry(first).or_insert(0) += 1;
    }
    let weights = (1..=5).map(|id| (id, u32::try_from(id).unwrap())).collect();
    let (statistic, quantile) = chi_square(&counts, &weights);
    assert!(statistic < quantile, "{statistic} >= {quantile}: {counts:?}");
}

#[test]
fn an_affinity_key_goes_away_and_comes_back_and_moves_nobody_else() {
    let channels: Vec<_> = (1..=5).map(|id| keyed(id, &[id, id + 10])).collect();
    let mut whole = Bench::new(channels.clone(), vec![]);
    let favourite = whole.pick_by(Some("k"), None).unwrap();
    let out = fixtures::out(fixtures::on_channel(favourite.channel.id.0), pb::Cause::Quota, 9);
    let mut part = Bench::new(channels, vec![out]);
    for i in 0..300 {
        let key = format!("user-{i}");
        let before = whole.pick_by(Some(&key), None).unwrap();
        let after = part.pick_by(Some(&key), None).unwrap();
        if before.channel.id != favourite.channel.id {
            assert_eq!(after.channel.id, before.channel.id);
            assert_eq!(after.credential, before.credential);
        }
    }
    assert_ne!(part.pick_by(Some("k"), None).unwrap().channel.id, favourite.channel.id);
}

#[test]
fn a_strict_affinity_does_not_switch() {
    let mut bench = Bench::new((1..=5).map(fixtures::channel).collect(), vec![]);
    bench.policy.affinity.strict = true;
    let picked = bench.pick_by(Some("k"), None).unwrap();
    bench.tried.channel(&picked);
    assert_eq!(bench.pick_by(Some("k"), None).unwrap_err().reason, Reason::AllFailed);
}

/// These are on every sidecar: a change here moves every caller.
#[test]
fn golden_affinities() {
    let mut bench = Bench::new((1..=9).map(|id| weighted(id, 3)).collect(), vec![]);
    let met: Vec<_> = ["a", "b", "alice", "bob", "", "ключ"]
        .iter()
        .map(|k| bench.pick_by(Some(k), None).unwrap().channel.id.0)
        .collect();
    assert_eq!(met, GOLDEN);
}

const GOLDEN: [i64; 6] = [4, 4, 4, 2, 8, 1];

#[test]
fn next_layer_goes_down_and_tries_the_last_layer_again() {
    let mut bench = Bench::new(vec![layered(1, 9), layered(2, 9), layered(3, 5), layered(4, 1)], vec![]);
    bench.policy.layer_order = LayerOrder::NextLayer;
    let mut priorities = Vec::new();
    for _ in 0..5 {
        let picked = bench.pick().unwrap();
        priorities.push(picked.priority);
        bench.tried.channel(&picked);
    }
    assert_eq!(priorities, [9, 5, 1, 1, 1]);
}

#[derive(Clone, Debug)]
struct Made {
    priority: i32,
    weight: u32,
    out: bool,
    tried: bool,
    overlaid: bool,
}

fn made() -> impl Strategy<Value = Made> {
    (0..3_i32, 0..4_u32, any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(priority, weight, out, tried, overlaid)| Made { priority, weight, out, tried, overlaid })
}

proptest! {
    #[test]
    fn a_pick_is_never_tried_out_or_drained_and_of_the_highest_layer_left(
        made in prop::collection::vec(made(), 1..12),
        sticky in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let id = |i: usize| i64::try_from(i).unwrap() + 1;
        let channels = made.iter().enumerate().map(|(i, m)| pb::Channel {
            priority: m.priority,
            ..weighted(id(i), m.weight)
        });
        let outs = made.iter().enumerate().filter(|(_, m)| m.out);
        let outs = outs.map(|(i, _)| fixtures::out(fixtures::on_channel(id(i)), pb::Cause::Operator, 9));
        let mut bench = Bench::new(channels.collect(), outs.collect());
        bench.rng = StdRng::seed_from_u64(seed);
        for (i, m) in made.iter().enumerate() {
            if m.tried {
                bench.tried.channels.push(ChannelId(id(i)));
            }
            if m.overlaid {
                let found = crate::overlay::Found {
                    subject: crate::Subject::Channel(ChannelId(id(i))),
                    cause: crate::Cause::Credential,
                    hint: None,
                    revision: Revision(50),
                    verdict_id: Arc::from("v"),
                };
                bench.overlays.add(&found, &bench.view, NOW, &mut bench.rng);
            }
        }
        let drained = |m: &Made| {
            m.weight == 0 && made.iter().any(|o| o.priority == m.priority && o.weight > 0)
        };
        let left = |m: &Made| !m.out && !m.tried && !m.overlaid && !drained(m);
        let highest = made.iter().filter(|m| left(m)).map(|m| m.priority).max();
        for _ in 0..8 {
            match bench.pick_by(sticky.then_some("k"), None) {
                Ok(picked) => {
                    let m = &made[usize::try_from(picked.channel.id.0 - 1).unwrap()];
                    prop_assert!(left(m), "{m:?}");
                    prop_assert_eq!(Some(m.priority), highest);
                    prop_assert!(!picked.last_resort);
                }
                Err(none) => {
                    prop_assert_eq!(highest, None, "{:?}", none);
                    prop_assert_eq!(none.reason, Reason::AllFailed);
                }
            }
        }
    }
}
