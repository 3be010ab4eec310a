//! How long a throttle lasts, and what is left of it when its time is over.

use std::time::Duration;

use spareline_core::Cause;
use spareline_core::classify::Hint;
use spareline_core::policy::FleetPolicy;
use time::OffsetDateTime;

use super::{State, Status, VerdictInput};

/// A throttle's end.
pub(super) struct Throttle {
    /// When it is over.
    pub(super) until: OffsetDateTime,
    /// The provider said so.
    pub(super) hinted: bool,
    /// How often in a row it came without a hint.
    pub(super) throttles: u32,
}

impl Throttle {
    /// As a verdict claims it.
    pub(super) fn of(
        input: &VerdictInput,
        status: &Status,
        rules: &FleetPolicy,
        now: OffsetDateTime,
    ) -> Throttle {
        if let Some(wait) = input.retry_after {
            // What is left may be nothing: that is a throttle whose time is over, not one of a second.
            let wait = if wait.is_zero() { wait } else { believed(wait) };
            return Throttle { until: now + wait, hinted: true, throttles: status.throttles };
        }
        let reached = now - input.age;
        if rules.throttle_initial.is_none() {
            return Throttle { until: reached + rules.throttle_default, hinted: false, throttles: 0 };
        }
        // It grows while throttles follow each other closely, and starts anew after a quiet time.
        let repeated =
            status.throttled_until.is_some_and(|end| end <= now && now < end + rules.throttle_default);
        let throttles = if repeated { status.throttles.saturating_add(1) } else { status.throttles };
        let running = status.cause_in_force(now) == Some(Cause::Throttled);
        let throttles = if repeated || running { throttles } else { 0 };
        Throttle { until: reached + rules.throttle(throttles), hinted: false, throttles }
    }

    /// Later than every deadline in force, by a tenth of what is left of it at least.
    pub(super) fn extends<'s>(
        &self,
        statuses: impl Iterator<Item = &'s Status>,
        now: OffsetDateTime,
    ) -> bool {
        let latest = statuses
            .filter(|s| s.cause_in_force(now) == Some(Cause::Throttled))
            .filter_map(|s| s.retry_at)
            .max();
        latest.is_none_or(|at| self.until > at && (self.until - at) * 10 >= at - now)
    }
}

/// As much of a provider's hint as is believed.
pub(super) fn believed(hint: Duration) -> Duration {
    hint.clamp(Hint::MIN, Hint::MAX)
}

/// A throttle whose time is over: active, without a probe. A flag and a verdict that waits for a probe stay, and so does the fence.
pub(crate) fn ended(status: Status) -> Status {
    Status {
        state: State::Active,
        cause: None,
        reason: String::new(),
        actor: "prober".into(),
        evidence: None,
        disabled_at: None,
        retry_at: None,
        hinted: false,
        failed_probes: 0,
        ..status
    }
}
