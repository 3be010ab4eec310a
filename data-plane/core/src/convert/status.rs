//! Statuses from the wire.

use spareline_proto::registry::v1 as pb;

use super::check::{Check, Violation};
use super::{cause, subject};
use crate::ids::{Revision, Subject};
use crate::words::Cause;

/// A status, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSpec {
    /// What it is about.
    pub subject: Subject,
    /// Why it is out; `None`: it is active.
    pub cause: Option<Cause>,
    /// Used, but failing.
    pub degraded: bool,
    /// The time it is out for came from the provider.
    pub hinted: bool,
    /// Its version.
    pub revision: Revision,
    /// Verdicts observed below it are stale.
    pub fence: Revision,
}

/// Validates a status. One that is out for a reason this build does not know is out until a human says otherwise.
///
/// # Errors
/// Every mistake at once.
pub fn status(wire: &pb::Status) -> Result<StatusSpec, Vec<Violation>> {
    let mut check = Check::default();
    let subject = wire.subject.as_ref().and_then(subject);
    if subject.is_none() {
        check.add("subject", "must name a channel, a credential or an ability");
    }
    let out = match pb::ServingState::try_from(wire.state) {
        Ok(pb::ServingState::Active) => Some(false),
        Ok(pb::ServingState::Disabled | pb::ServingState::Probing) => Some(true),
        Ok(pb::ServingState::Unspecified) | Err(_) => {
            check.add("state", "is not a state that this build knows");
            None
        }
    };
    let spec = subject.zip(out).map(|(subject, out)| StatusSpec {
        subject,
        cause: out.then(|| cause(wire.cause).unwrap_or(Cause::Operator)),
        degraded: wire.degraded,
        hinted: wire.hinted,
        revision: Revision(wire.revision),
        fence: Revision(wire.fence_revision),
    });
    check.finish(spec)
}
