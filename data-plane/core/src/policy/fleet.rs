//! What the fleet believes: thresholds, automatic switches, probe intervals, budget. Global only.

use std::time::Duration;

use spareline_proto::registry::v1 as pb;

use crate::convert::{duration, duration_ref};

/// Resolved; the defaults are those of a registry without a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetPolicy {
    /// Whether verdicts may disable without a human, where a channel does not say.
    pub auto_disable: bool,
    /// Whether probes may bring back without a human.
    pub auto_enable: bool,
    /// How long a throttle without a hint lasts.
    pub throttle_default: Duration,
    /// Where set, a throttle without a hint starts here and doubles up to `throttle_default`.
    pub throttle_initial: Option<Duration>,
    /// The longest pause between two rounds of the prober.
    pub probe_interval: Duration,
    /// Failures in a row after which a subject is degraded.
    pub degraded_after: u32,
    /// Failures in a row after which the local breaker opens and a probe is asked for.
    pub unhealthy_after: u32,
    /// Automatic disables believed at once, as a percentage of live credentials and abilities.
    pub budget_percent: u32,
    /// Automatic disables always believed.
    pub budget_min: u32,
    /// The window of the budget.
    pub budget_window: Duration,
}

impl Default for FleetPolicy {
    fn default() -> Self {
        Self {
            auto_disable: true,
            auto_enable: true,
            throttle_default: Duration::from_secs(300),
            throttle_initial: None,
            probe_interval: Duration::from_secs(60),
            degraded_after: 3,
            unhealthy_after: 5,
            budget_percent: 10,
            budget_min: 3,
            budget_window: Duration::from_secs(300),
        }
    }
}

impl FleetPolicy {
    /// From the global policy.
    pub fn resolve(global: Option<&pb::Policy>) -> Self {
        let base = Self::default();
        let Some(fleet) = global.and_then(|g| g.fleet.as_ref()) else { return base };
        Self {
            auto_disable: fleet.auto_disable.unwrap_or(base.auto_disable),
            auto_enable: fleet.auto_enable.unwrap_or(base.auto_enable),
            throttle_default: duration(fleet.throttle_default.as_ref()).unwrap_or(base.throttle_default),
            throttle_initial: duration(fleet.throttle_initial.as_ref()),
            probe_interval: duration(fleet.probe_interval.as_ref()).unwrap_or(base.probe_interval),
            degraded_after: fleet.degraded_after.unwrap_or(base.degraded_after).max(1),
            unhealthy_after: fleet.unhealthy_after.unwrap_or(base.unhealthy_after).max(1),
            budget_percent: fleet.budget_percent.unwrap_or(base.budget_percent),
            budget_min: fleet.budget_min.unwrap_or(base.budget_min),
            budget_window: duration(fleet.budget_window.as_ref()).unwrap_or(base.budget_window),
        }
    }

    /// How many subjects may be out by machine at once where so many live credentials and abilities exist.
    pub fn budget(&self, live: u64) -> u64 {
        (live.saturating_mul(u64::from(self.budget_percent)) / 100).max(u64::from(self.budget_min))
    }

    /// How long the `repetition`th throttle without a hint lasts, counted from zero.
    pub fn throttle(&self, repetition: u32) -> Duration {
        match self.throttle_initial {
            None => self.throttle_default,
            Some(initial) => {
                initial.saturating_mul(1 << repetition.min(20)).min(self.throttle_default.max(initial))
            }
        }
    }
}

pub(super) fn to_wire(fleet: &FleetPolicy) -> pb::FleetPolicy {
    pb::FleetPolicy {
        auto_disable: Some(fleet.auto_disable),
        auto_enable: Some(fleet.auto_enable),
        throttle_default: Some(duration_ref(fleet.throttle_default)),
        throttle_initial: fleet.throttle_initial.map(duration_ref),
        probe_interval: Some(duration_ref(fleet.probe_interval)),
        degraded_after: Some(fleet.degraded_after),
        unhealthy_after: Some(fleet.unhealthy_after),
        budget_percent: Some(fleet.budget_percent),
        budget_min: Some(fleet.budget_min),
        budget_window: Some(duration_ref(fleet.budget_window)),
    }
}
