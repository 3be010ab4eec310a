//! What can go wrong with the store, by who is to blame and whether a retry helps.

use spareline_core::convert::Violation;

/// What the store answers when it does not do what was asked. Nothing is ever half written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, or does not answer in time. A retry may help. (UNAVAILABLE)
    #[error("the database is unavailable: {}", plainly(.0))]
    Unavailable(#[source] sqlx::Error),
    /// No such thing. (NOT_FOUND)
    #[error("{0} not found")]
    NotFound(String),
    /// It is there already. (ALREADY_EXISTS)
    #[error("{0} already exists")]
    AlreadyExists(String),
    /// Somebody else changed it first. (ABORTED)
    #[error("{0} was changed meanwhile: read it again")]
    Conflict(String),
    /// Not possible in this state. (FAILED_PRECONDITION)
    #[error("{0}")]
    Precondition(String),
    /// The caller's values do not fit the registry. (INVALID_ARGUMENT)
    #[error("invalid: {}", .0.iter().map(Violation::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Violation>),
    /// A request id seen before, with another method or body. (INVALID_ARGUMENT)
    #[error("request_id was used before for another request")]
    RequestReused,
    /// A row that cannot be read. (INTERNAL)
    #[error("unreadable row: {0}")]
    Corrupt(String),
    /// There is a pooler in between that keeps no sessions. (INTERNAL)
    #[error(
        "database_url leads to a pooler that deals out connections by the transaction: give the database's own address, or a \
         pooler that pools by the session"
    )]
    Pooled,
    /// A migration failed. (INTERNAL)
    #[error("migration failed: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// Any other answer of the database. (INTERNAL)
    #[error("database error: {}", plainly(.0))]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// One violation.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> StoreError {
        StoreError::Invalid(vec![Violation::new(field, problem)])
    }

    /// The same of fields that stand elsewhere in the request: below `path` instead of `field`.
    pub(super) fn within(mut self, field: &str, path: &str) -> StoreError {
        if let StoreError::Invalid(violations) = &mut self {
            for violation in violations {
                if let Some(rest) = violation.field.strip_prefix(field) {
                    violation.field = format!("{path}{rest}");
                }
            }
        }
        self
    }

    /// The database did not answer in time.
    pub fn silent() -> StoreError {
        StoreError::Unavailable(sqlx::Error::Io(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "it does not answer",
        )))
    }

    /// Whether trying again later may help.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, StoreError::Unavailable(_))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> StoreError {
        if lost(&error) {
            StoreError::Unavailable(error)
        } else if unfit(&error) {
            StoreError::invalid("request", "holds a character that cannot be stored (NUL)")
        } else {
            StoreError::Database(error)
        }
    }
}

/// Whether the caller's text is at fault: the database takes no NUL.
fn unfit(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|e| e.code());
    code.is_some_and(|c| matches!(&*c, "22021" | "22P05"))
}

/// Whether the database rather than the statement is at fault.
fn lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Tls(_) => {
            true
        }
        sqlx::Error::WorkerCrashed | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(e) => {
            // Connection trouble, resources, operator intervention (shutdown, statement and lock time-outs); and who we
            // are: a password or a database that is not there yet may be by the next attempt.
            e.code().is_some_and(|c| {
                ["08", "28", "53", "57"].iter().any(|class| c.starts_with(class))
                    || matches!(&*c, "55P03" | "55000" | "40001" | "40P01" | "25P03" | "25006" | "3D000")
            })
        }
        _ => false,
    }
}

/// What the database says, without our driver's frame around it.
fn plainly(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(e) => e.message().to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
