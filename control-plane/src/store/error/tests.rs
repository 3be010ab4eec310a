use std::borrow::Cow;

use super::*;

/// An answer of the database with this code.
#[derive(Debug)]
struct Answer(&'static str);

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "framed at line 334")
    }
}

impl std::error::Error for Answer {}

impl sqlx::error::DatabaseError for Answer {
    fn message(&self) -> &str {
        "plain words"
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.0.into())
    }

    fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> sqlx::error::ErrorKind {
        sqlx::error::ErrorKind::Other
    }
}

#[test]
fn part3_what_time_or_an_operator_at_the_database_may_heal_is_unavailable() {
    let of = |code| StoreError::from(sqlx::Error::Database(Box::new(Answer(code))));
    // A wrong password, no such role, no such database, starting up, too many connections.
    for code in ["28P01", "28000", "3D000", "57P03", "53300"] {
        assert!(of(code).is_unavailable(), "{code}");
    }
    assert!(!of("42P01").is_unavailable(), "a missing table is a fault");
    assert_eq!(of("28P01").to_string(), "the database is unavailable: plain words");
}
