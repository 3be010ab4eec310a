//! What an operator is told when a call cannot be carried out: a code, one sentence, and every field at fault.

use spareline_core::convert::Violation;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

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

    /// Whether nothing is wrong so far.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing, or INVALID_ARGUMENT with all of them.
    pub(super) fn done(self) -> Result<(), Box<Status>> {
        if self.0.is_empty() { Ok(()) } else { Err(Box::new(invalid(&self.0))) }
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
