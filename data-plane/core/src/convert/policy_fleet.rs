//! What the fleet believes, from the wire.

use std::time::Duration;

use spareline_proto::registry::v1 as pb;

use super::check::Check;
use super::duration;
use crate::policy::FleetPolicy;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) fn check(check: &mut Check, fleet: &pb::FleetPolicy) {
    check.duration("fleet.throttle_default", fleet.throttle_default.as_ref(), SECOND, DAY);
    check.duration("fleet.throttle_initial", fleet.throttle_initial.as_ref(), SECOND, DAY);
    check.duration("fleet.probe_interval", fleet.probe_interval.as_ref(), SECOND, HOUR);
    check.duration("fleet.budget_window", fleet.budget_window.as_ref(), SECOND, DAY);
    check.range("fleet.degraded_after", fleet.degraded_after, 1, 1000);
    check.range("fleet.unhealthy_after", fleet.unhealthy_after, 1, 1000);
    check.range("fleet.budget_percent", fleet.budget_percent, 0, 100);
    check.range("fleet.budget_min", fleet.budget_min, 0, 1_000_000);

    let usual = FleetPolicy::default();
    let initial = duration(fleet.throttle_initial.as_ref());
    let default = duration(fleet.throttle_default.as_ref()).unwrap_or(usual.throttle_default);
    if initial.is_some_and(|i| i > default) {
        check.add("fleet.throttle_initial", "must not be longer than throttle_default");
    }
    let degraded = fleet.degraded_after.unwrap_or(usual.degraded_after);
    let unhealthy = fleet.unhealthy_after.unwrap_or(usual.unhealthy_after);
    if degraded > unhealthy {
        check.add("fleet.degraded_after", format!("must not be above unhealthy_after, which is {unhealthy}"));
    }
}
