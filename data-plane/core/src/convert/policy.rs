//! Policies from the wire.

use spareline_proto::registry::v1 as pb;

use super::check::Violation;
use super::duration;
use crate::limits::PartialLimits;

/// Validates a policy; [`RequestPolicy::resolve`](crate::policy::RequestPolicy::resolve) compiles it.
///
/// # Errors
/// Every mistake at once.
pub fn policy(_wire: &pb::Policy) -> Result<(), Vec<Violation>> {
    todo!()
}

/// Limits as they were written; what is unusable counts as unset.
pub fn limits(wire: Option<&pb::AttemptPolicy>) -> PartialLimits {
    let Some(wire) = wire else { return PartialLimits::default() };
    let set = |d| duration(d).filter(|d| !d.is_zero());
    PartialLimits {
        connect_timeout: set(wire.connect_timeout.as_ref()),
        first_content_timeout: set(wire.first_content_timeout.as_ref()),
        response_timeout: set(wire.response_timeout.as_ref()),
        idle_timeout: set(wire.idle_timeout.as_ref()),
        write_timeout: set(wire.write_timeout.as_ref()),
    }
}
