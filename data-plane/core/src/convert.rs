//! From the wire to what the code uses, and back: ONE validation for the admin API, `apply` and the proxy.
//!
//! Every mistake is reported at once, each with the path of its field. Nothing is repaired silently. What needs the
//! rest of the registry (do the listed credentials exist? is the name taken?) is not checked here.

mod channel;
mod check;
mod options;
mod policy;
mod policy_fleet;
mod status;
mod subject;
#[cfg(test)]
mod tests;
mod urls;
mod words;

pub use channel::channel;
pub use check::Violation;
pub use policy::{limits, policy};
pub use status::{StatusSpec, status};
pub use subject::{subject, subject_ref};
pub use urls::{is_version, mistaken, without_endpoint};
pub use words::{cause, cause_ref, credential_order, endpoint, endpoint_ref, probe_kind};

use std::time::Duration;

/// A wire duration; `None` where unset, negative or out of range.
pub fn duration(wire: Option<&prost_types::Duration>) -> Option<Duration> {
    Duration::try_from(*wire?).ok()
}

/// A duration as it goes on the wire; longer than the wire can say counts as the longest.
pub fn duration_ref(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// `later - earlier` in nanoseconds; negative where the order is the other way round.
pub fn nanos_between(earlier: &prost_types::Timestamp, later: &prost_types::Timestamp) -> i128 {
    let nanos = |t: &prost_types::Timestamp| i128::from(t.seconds) * 1_000_000_000 + i128::from(t.nanos);
    nanos(later) - nanos(earlier)
}
