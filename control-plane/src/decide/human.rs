//! What an operator's word does to a status. It always wins, and only it undoes itself.

use spareline_core::Cause;
use time::OffsetDateTime;

use super::{State, Status};

/// The subject serves, and every verdict observed before `revision` is stale.
pub(crate) fn enabled(status: &Status, actor: &str, revision: i64) -> Status {
    Status {
        state: State::Active,
        actor: actor.to_owned(),
        fence: revision,
        revision,
        last_probed_at: status.last_probed_at,
        ..Status::default()
    }
}

/// The subject is out until a human brings it back.
pub(crate) fn disabled(
    status: &Status,
    actor: &str,
    comment: &str,
    now: OffsetDateTime,
    revision: i64,
) -> Status {
    let again = status.state == State::Disabled && status.cause == Some(Cause::Operator);
    Status {
        state: State::Disabled,
        cause: Some(Cause::Operator),
        reason: comment.to_owned(),
        actor: actor.to_owned(),
        disabled_at: status.disabled_at.filter(|_| again).or(Some(now)),
        last_probed_at: status.last_probed_at,
        fence: status.fence,
        revision,
        ..Status::default()
    }
}

/// Out by machine (a throttle that is over included), or about to be: what enabling a channel clears beneath it.
pub(crate) fn is_automatic(status: &Status) -> bool {
    status.pending.is_some()
        || status.degraded
        || (status.state == State::Disabled && status.cause != Some(Cause::Operator))
}
