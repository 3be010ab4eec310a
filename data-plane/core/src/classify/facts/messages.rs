//! The messages of an error, by where they stood.

use super::{MESSAGE, scalar};
use crate::classify::json::{Cursor, Value};

/// Messages by where they stood: the innermost is the error's own.
#[derive(Default)]
pub(super) struct Messages(Vec<(Rank, String)>);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Error,
    Message,
    ErrorText,
    Detail,
    Title,
}

impl Messages {
    pub(super) fn push(&mut self, rank: Rank, text: String) {
        // A body that repeats itself is not worth more.
        if self.0.len() < 8 {
            self.0.push((rank, text));
        }
    }

    pub(super) fn sorted(mut self) -> impl Iterator<Item = String> {
        self.0.sort_by_key(|(rank, _)| *rank);
        // "Not Found" above a detail is only the status again.
        if self.0.first().is_some_and(|(rank, _)| *rank != Rank::Title) {
            self.0.retain(|(rank, _)| *rank != Rank::Title);
        }
        self.0.into_iter().map(|(_, text)| text)
    }
}

/// `insufficient_quota`
pub(super) fn is_code(text: &str) -> bool {
    text.len() <= 64
        && text.contains('_')
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

pub(super) fn text(cursor: &mut Cursor<'_>, found: &mut Messages, rank: Rank) {
    if let Value::Str(raw) = scalar(cursor) {
        found.push(rank, raw.start(MESSAGE).text().into_owned());
    }
}
