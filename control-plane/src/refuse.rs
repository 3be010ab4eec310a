//! What a caller is told when a call cannot be carried out: a code, one sentence, and every field at fault.
//!
//! One place for all services, so that the same trouble has the same code and the same `reason` everywhere. What only
//! concerns us goes to the log, and an answer stays small enough for the trailers of any client.

use spareline_core::convert::Violation;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::reflect::NotDescribed;
use crate::store::StoreError;

/// Names our errors in `google.rpc.ErrorInfo`.
pub(crate) const DOMAIN: &str = "spareline";

/// Most bytes of fields and problems in one answer: gRPC puts them into trailers, twice, and clients bound those.
const MOST: usize = 3 * 1024;

/// Longest text of one of them, in bytes.
const LONGEST: usize = 512;

/// Collects everything that is wrong with a request.
#[derive(Debug, Default)]
pub(crate) struct Violations(Vec<Violation>);

impl Violations {
    /// Notes that `field` is at fault.
    pub(crate) fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Violation::new(field, problem));
    }

    /// Notes what a validation found, with `prefix` before its fields.
    pub(crate) fn extend(&mut self, prefix: &str, violations: Vec<Violation>) {
        for Violation { field, problem } in violations {
            let field = if field.is_empty() { prefix.to_owned() } else { format!("{prefix}.{field}") };
            self.0.push(Violation { field, problem });
        }
    }

    /// Takes over what was noted elsewhere, with `prefix` before its fields; whether there was anything.
    pub(crate) fn take(&mut self, prefix: &str, other: Violations) -> bool {
        let any = !other.0.is_empty();
        self.extend(prefix, other.0);
        any
    }

    /// Nothing, or all of them.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with `google.rpc.BadRequest`.
    pub(crate) fn done(self) -> Result<(), Status> {
        if self.0.is_empty() { Ok(()) } else { Err(invalid(&self.0)) }
    }
}

/// INVALID_ARGUMENT; the message says it all for those who see no details. What no longer fits is counted.
pub(crate) fn invalid(violations: &[Violation]) -> Status {
    let mut details = ErrorDetails::new();
    let mut message = String::new();
    for (told, violation) in violations.iter().enumerate() {
        let (field, problem) = (short(&violation.field), short(&violation.problem));
        if told > 0 && message.len() + field.len() + problem.len() > MOST {
            let more = format!("and {} more", violations.len() - told);
            details.add_bad_request_violation("", &more);
            message.push_str("; ");
            message.push_str(&more);
            break;
        }
        details.add_bad_request_violation(&*field, &*problem);
        if told > 0 {
            message.push_str("; ");
        }
        message.push_str(&field);
        message.push_str(": ");
        message.push_str(&problem);
    }
    Status::with_error_details(Code::InvalidArgument, message, details)
}

/// INVALID_ARGUMENT for one field.
pub(crate) fn invalid_field(field: &str, problem: impl Into<String>) -> Status {
    invalid(&[Violation::new(field, problem)])
}

/// One of the other codes, with a stable reason that programs can read.
pub(crate) fn refused(code: Code, reason: &str, message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(reason, DOMAIN, std::collections::HashMap::new());
    Status::with_error_details(code, short(&message.into()), details)
}

/// The store's answer as a caller may see it.
pub(crate) fn of_store(error: StoreError) -> Status {
    match error {
        StoreError::Unavailable(_) => {
            // Whoever follows the database says so once; a fleet that reports would say so a thousand times.
            tracing::debug!(event = "call_without_database", %error);
            refused(Code::Unavailable, "database_unavailable", "the database is unavailable: try again later")
        }
        StoreError::NotFound(_) => refused(Code::NotFound, "not_found", error.to_string()),
        StoreError::AlreadyExists(_) => refused(Code::AlreadyExists, "already_exists", error.to_string()),
        StoreError::Conflict(_) => refused(Code::Aborted, "lost_race", error.to_string()),
        StoreError::Precondition(_) => refused(Code::FailedPrecondition, "precondition", error.to_string()),
        StoreError::Invalid(violations) => invalid(&violations),
        StoreError::RequestReused => invalid_field("request_id", "was used before for another request"),
        StoreError::Corrupt(_) | StoreError::Pooled | StoreError::Migrate(_) | StoreError::Database(_) => {
            tracing::error!(event = "database_error", %error, "a call failed in the database");
            refused(Code::Internal, "internal", "a fault of the control plane: its log says more")
        }
    }
}

/// A status on its way out of a transaction.
#[derive(Debug)]
pub(crate) struct Refusal(Box<Status>);

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self(Box::new(of_store(error)))
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self(Box::new(status))
    }
}

impl From<NotDescribed> for Refusal {
    fn from(error: NotDescribed) -> Self {
        tracing::error!(event = "admin_internal", %error, "a call failed by a fault of ours");
        Self(Box::new(refused(Code::Internal, "internal", "a fault of the control plane: its log says more")))
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        *refusal.0
    }
}

fn short(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= LONGEST {
        return text.into();
    }
    format!("{}...", &text[..text.floor_char_boundary(LONGEST)]).into()
}

#[cfg(test)]
mod tests;
