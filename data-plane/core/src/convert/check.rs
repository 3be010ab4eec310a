//! Collecting violations, and the checks that many fields share.

use std::fmt;
use std::time::Duration;

/// One mistake in one field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Its path, such as `models[2].weight`.
    pub field: String,
    /// What is wrong, and what would do. Never a secret.
    pub problem: String,
}

impl Violation {
    /// Of one field.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

/// Collects every violation.
#[derive(Debug, Default)]
pub(super) struct Check {
    pub(super) violations: Vec<Violation>,
}

impl Check {
    pub(super) fn add(&mut self, field: impl fmt::Display, problem: impl Into<String>) {
        self.violations.push(Violation::new(field.to_string(), problem));
    }

    pub(super) fn finish<T>(self, value: Option<T>) -> Result<T, Vec<Violation>> {
        match value {
            Some(value) if self.violations.is_empty() => Ok(value),
            _ => Err(self.violations),
        }
    }

    /// A duration in a range; unset is fine.
    pub(super) fn duration(
        &mut self,
        field: impl fmt::Display,
        wire: Option<&prost_types::Duration>,
        min: Duration,
        max: Duration,
    ) -> Option<Duration> {
        let wire = wire?;
        match super::duration(Some(wire)) {
            Some(d) if (min..=max).contains(&d) => Some(d),
            _ => {
                self.add(field, format!("must be between {min:?} and {max:?}"));
                None
            }
        }
    }

    /// A number in a range; unset is fine.
    pub(super) fn range(&mut self, field: impl fmt::Display, value: Option<u32>, min: u32, max: u32) {
        if value.is_some_and(|v| !(min..=max).contains(&v)) {
            self.add(field, format!("must be between {min} and {max}"));
        }
    }

    /// `[a-z0-9]` and what is in `also`, from a letter or digit on, at most `max` bytes.
    pub(super) fn word(&mut self, field: impl fmt::Display, word: &str, also: &str, max: usize) {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || also.contains(c);
        let starts = word.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !starts || word.len() > max || !word.chars().all(good) {
            self.add(
                field,
                format!("must be lower-case letters, digits and {also:?}, at most {max} characters, starting with a letter or digit"),
            );
        }
    }

    /// Printable, not empty, no surrounding space, at most `max` bytes.
    pub(super) fn text(&mut self, field: impl fmt::Display, text: &str, max: usize) {
        if text.is_empty() {
            self.add(field, "must not be empty");
        } else if text.len() > max {
            self.add(field, format!("must be at most {max} bytes"));
        } else if text.trim() != text || text.chars().any(char::is_control) {
            self.add(field, "must not have control characters or surrounding space");
        }
    }
}
