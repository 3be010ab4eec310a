//! What an operator is told when a call cannot be carried out: a code, one sentence, and every field at fault.

use spareline_core::convert::Violation;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::reflect::NotDescribed;
use crate::store::StoreError;

/// Collects everything that is wrong with a request.
#[derive(Debug, Default)]
pub(super) struct Violations(Vec<Violation>);

impl Violations {
    /// Notes that `field` is at fault.
    pub(super) fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push(Violation { field: field.into(), problem: problem.into() });
    }

    /// Notes what a validation found, with `prefix` before its fields.
    pub(super) fn extend(&mut self, prefix: &str, violations: Vec<Violation>) {
        for Violation { field, problem } in violations {
            let field = if field.is_empty() { prefix.to_owned() } else { format!("{prefix}.{field}") };
            self.0.push(Violation { field, problem });
        }
    }

    /// Nothing, or INVALID_ARGUMENT with all of them.
    pub(super) fn done(self) -> Result<(), Status> {
        if self.0.is_empty() { Ok(()) } else { Err(invalid(&self.0)) }
    }
}

/// INVALID_ARGUMENT; the message says it all for those who see no details.
pub(super) fn invalid(violations: &[Violation]) -> Status {
    let mut details = ErrorDetails::new();
    let mut message = String::new();
    for violation in violations {
        details.add_bad_request_violation(&violation.field, &violation.problem);
        if !message.is_empty() {
            message.push_str("; ");
        }
        message.push_str(&violation.field);
        message.push_str(": ");
        message.push_str(&violation.problem);
    }
    Status::with_error_details(Code::InvalidArgument, message, details)
}

/// INVALID_ARGUMENT for one field.
pub(super) fn invalid_field(field: &str, problem: impl Into<String>) -> Status {
    invalid(&[Violation { field: field.to_owned(), problem: problem.into() }])
}

/// One of the other codes, with a stable reason that programs can read.
pub(super) fn refused(code: Code, reason: &str, message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(reason, "spareline", std::collections::HashMap::new());
    Status::with_error_details(code, message, details)
}

/// A status on its way out of a transaction.
#[derive(Debug)]
pub(super) struct Refusal(Box<Status>);

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

/// The store's answer as a caller may see it: what only concerns us goes to the log.
pub(super) fn of_store(error: StoreError) -> Status {
    match error {
        StoreError::Unavailable(_) => {
            tracing::warn!(event = "database_unavailable", %error, "a call needs the database");
            refused(Code::Unavailable, "database_unavailable", "the database is unavailable: try again later")
        }
        StoreError::NotFound(_) => refused(Code::NotFound, "not_found", error.to_string()),
        StoreError::AlreadyExists(_) => refused(Code::AlreadyExists, "already_exists", error.to_string()),
        StoreError::Conflict(_) => refused(Code::Aborted, "lost_race", error.to_string()),
        StoreError::Precondition(_) => refused(Code::FailedPrecondition, "precondition", error.to_string()),
        StoreError::Invalid(violations) => {
            let of = |v: crate::store::Violation| Violation { field: v.field, problem: v.problem };
            invalid(&violations.into_iter().map(of).collect::<Vec<_>>())
        }
        StoreError::RequestReused => invalid_field("request_id", "was used before for another request"),
        StoreError::Corrupt(_) | StoreError::Migrate(_) | StoreError::Database(_) => {
            tracing::error!(event = "database_error", %error, "a call failed in the database");
            refused(Code::Internal, "internal", "a fault of the control plane: its log says more")
        }
    }
}
