//! How calls are refused: every violation at once, and a lost database as what it is.

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::store::StoreError;

/// Names our errors in `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "spareline";

/// What is wrong with a request, collected field by field.
#[derive(Debug, Default)]
pub struct Violations(ErrorDetails, usize);

impl Violations {
    /// One more.
    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.add_bad_request_violation(field, problem);
        self.1 += 1;
    }

    /// Nothing, or all of them.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with `google.rpc.BadRequest`.
    pub fn done(self) -> Result<(), Status> {
        if self.1 == 0 {
            return Ok(());
        }
        let texts = self.0.bad_request().map(|b| {
            let of = |v: &tonic_types::FieldViolation| format!("{}: {}", v.field, v.description);
            b.field_violations.iter().take(5).map(of).collect::<Vec<_>>().join("; ")
        });
        Err(Status::with_error_details(Code::InvalidArgument, texts.unwrap_or_default(), self.0))
    }
}

/// A refusal with a reason that programs can read.
pub fn with_reason(code: Code, reason: &str, message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(reason, DOMAIN, std::collections::HashMap::new());
    Status::with_error_details(code, message, details)
}

/// The store's answer to a call that had nothing wrong with it.
pub fn unavailable(error: &StoreError) -> Status {
    if error.is_unavailable() {
        return Status::unavailable("the database is unavailable: try again");
    }
    tracing::error!(event = "store_failed", error = %error);
    Status::internal("the store failed")
}
