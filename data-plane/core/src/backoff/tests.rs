use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::*;

#[test]
fn full_jitter_stays_between_floor_and_cap_and_spreads_at_the_cap() {
    let mut rng = StdRng::seed_from_u64(7);
    let mut backoff = FullJitter::reconnect();
    let pauses: Vec<_> = (0..2_000).map(|_| backoff.next(&mut rng)).collect();
    assert!(pauses[0] <= Duration::from_millis(200), "{:?}", pauses[0]);
    assert!(pauses.iter().all(|p| (Duration::from_millis(100)..=Duration::from_secs(15)).contains(p)));
    let late = &pauses[100..];
    let below_third = late.iter().filter(|p| **p < Duration::from_secs(5)).count();
    assert!((400..900).contains(&below_third), "uniform at the cap, not stuck: {below_third}");
}

#[test]
fn reset_starts_over() {
    let mut rng = StdRng::seed_from_u64(1);
    let mut backoff = FullJitter::reconnect();
    for _ in 0..20 {
        backoff.next(&mut rng);
    }
    backoff.reset();
    assert!(backoff.next(&mut rng) <= Duration::from_millis(200));
}

#[test]
fn hard_series_doubles_from_a_minute_to_an_hour() {
    let seconds: Vec<_> = (0..8).map(|n| Series::HARD.nominal(n).as_secs()).collect();
    assert_eq!(seconds, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
    assert_eq!(Series::HARD.nominal(u32::MAX).as_secs(), 3600);
}

#[test]
fn soft_series_grows_by_half_to_twenty_seconds() {
    let ms: Vec<_> = (0..4).map(|n| Series::SOFT.nominal(n).as_millis()).collect();
    assert_eq!(ms, [10_000, 15_000, 20_000, 20_000]);
}

proptest! {
    #[test]
    fn pauses_are_within_ten_percent(tries in 0u32..200, jitter in -1.0..2.0) {
        let nominal = Series::HARD.nominal(tries).as_secs_f64();
        let pause = Series::HARD.pause(tries, jitter).as_secs_f64();
        prop_assert!((pause / nominal - 1.0).abs() <= 0.1001);
    }
}
