//! Pauses between tries: full jitter for reconnecting, a near-exact series for probes.
//!
//! No clock and no global generator: the caller sleeps, and passes the generator in.

#[cfg(test)]
mod tests;

use std::time::Duration;

use rand::{Rng, RngExt as _};

/// Reconnecting: full jitter between a floor and a ceiling that doubles up to a cap. At the cap the jitter remains, so
/// that a fleet that lost its server does not come back as one.
#[derive(Clone, Debug)]
pub struct FullJitter {
    floor: Duration,
    cap: Duration,
    ceiling: Duration,
}

/// Probes: `initial`, times `factor` each time, at most `cap`; every value +-10 %.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// The first pause.
    pub initial: Duration,
    /// Growth, above 1.
    pub factor: f64,
    /// The longest pause, before the +-10 %.
    pub cap: Duration,
}

// === impl FullJitter ===

impl FullJitter {
    /// 100 ms floor, 15 s cap.
    pub const fn reconnect() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(15))
    }

    /// Between `floor` and a ceiling that starts at twice the floor and doubles to `cap`.
    pub const fn new(floor: Duration, cap: Duration) -> Self {
        Self { floor, cap, ceiling: floor }
    }

    /// The next pause: uniform in `floor ..= ceiling`.
    pub fn next(&mut self, rng: &mut impl Rng) -> Duration {
        self.ceiling = self.ceiling.saturating_mul(2).min(self.cap).max(self.floor);
        if self.ceiling <= self.floor {
            return self.floor;
        }
        rng.random_range(self.floor..=self.ceiling)
    }

    /// After a success (for the watch: once a frame was applied).
    pub const fn reset(&mut self) {
        self.ceiling = self.floor;
    }
}

// === impl Series ===

impl Series {
    /// Probes of a dead key or balance: 60 s, doubling to 1 h.
    pub const HARD: Self =
        Self { initial: Duration::from_secs(60), factor: 2.0, cap: Duration::from_secs(3600) };
    /// Probes of an unhealthy subject, and the local breaker: 10 s, x1.5, cap 20 s.
    pub const SOFT: Self =
        Self { initial: Duration::from_secs(10), factor: 1.5, cap: Duration::from_secs(20) };

    /// The pause after `tries` fruitless tries (0: the first), without jitter.
    pub fn nominal(&self, tries: u32) -> Duration {
        let factor = self.factor.powi(i32::try_from(tries).unwrap_or(i32::MAX));
        let seconds = (self.initial.as_secs_f64() * factor).min(self.cap.as_secs_f64());
        Duration::from_secs_f64(seconds)
    }

    /// The pause after `tries` fruitless tries, +-10 % by `jitter` in 0..1.
    pub fn pause(&self, tries: u32, jitter: f64) -> Duration {
        self.nominal(tries).mul_f64(0.9 + 0.2 * jitter.clamp(0.0, 1.0))
    }
}
