//! What the fleet believes: the global policy's part that decides on statuses, with its built-in defaults.

use std::time::Duration;

use spareline_proto::registry::v1 as pb;

/// The resolved fleet policy.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetRules {
    /// Whether verdicts may disable without a human, where the channel does not say.
    pub auto_disable: bool,
    /// Whether probes may bring back without a human.
    pub auto_enable: bool,
    /// How long a throttle without a hint lasts.
    pub throttle_default: Duration,
    /// Where a throttle without a hint starts, doubling up to `throttle_default`.
    pub throttle_initial: Option<Duration>,
    /// The longest pause between two rounds of the prober.
    pub probe_interval: Duration,
    /// Failures in a row that make a subject degraded.
    pub degraded_after: u32,
    /// Failures in a row that ask for a probe.
    pub unhealthy_after: u32,
    /// Automatic disables believed at once, in percent of live credentials and abilities.
    pub budget_percent: u32,
    /// Automatic disables always believed.
    pub budget_min: u32,
    /// The window of the budget.
    pub budget_window: Duration,
}

impl Default for FleetRules {
    fn default() -> Self {
        FleetRules {
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

impl FleetRules {
    /// Reads the global policy; `None` (no such row) and unset fields mean the defaults.
    pub fn of(global: Option<&pb::Policy>) -> FleetRules {
        let built_in = FleetRules::default();
        let Some(fleet) = global.and_then(|policy| policy.fleet.as_ref()) else { return built_in };
        FleetRules {
            auto_disable: fleet.auto_disable.unwrap_or(built_in.auto_disable),
            auto_enable: fleet.auto_enable.unwrap_or(built_in.auto_enable),
            throttle_default: duration(&fleet.throttle_default).unwrap_or(built_in.throttle_default),
            throttle_initial: duration(&fleet.throttle_initial),
            probe_interval: duration(&fleet.probe_interval).unwrap_or(built_in.probe_interval),
            degraded_after: fleet.degraded_after.unwrap_or(built_in.degraded_after).max(1),
            unhealthy_after: fleet.unhealthy_after.unwrap_or(built_in.unhealthy_after).max(1),
            budget_percent: fleet.budget_percent.unwrap_or(built_in.budget_percent),
            budget_min: fleet.budget_min.unwrap_or(built_in.budget_min),
            budget_window: duration(&fleet.budget_window).unwrap_or(built_in.budget_window),
        }
    }

    /// How many subjects may be out by machine at once when `live` credentials and abilities exist.
    pub fn budget(&self, live: u64) -> u64 {
        (live * u64::from(self.budget_percent) / 100).max(u64::from(self.budget_min))
    }
}

fn duration(value: &Option<prost_types::Duration>) -> Option<Duration> {
    value.and_then(|d| Duration::try_from(d).ok()).filter(|d| !d.is_zero())
}
