//! How far a body goes (RFC 9112, 6.3), and how much of it is still to come.

use bytes::BytesMut;
use http_body::SizeHint;

use super::chunks::{Chunks, Next};

/// What is left of a body.
#[derive(Debug)]
pub(super) enum Extent {
    Length(u64),
    Chunks(Chunks),
    UntilClose,
}

impl Extent {
    pub(super) fn chunks() -> Self {
        Self::Chunks(Chunks::default())
    }

    /// Takes what it can from the front of `from`. After [`Next::End`] what is left lies behind the body.
    pub(super) fn next(&mut self, from: &mut BytesMut) -> Next {
        match self {
            Self::Chunks(chunks) => chunks.next(from),
            Self::Length(0) => Next::End,
            _ if from.is_empty() => Next::More,
            Self::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(from.len());
                *left -= here as u64;
                Next::Data(from.split_to(here).freeze())
            }
            Self::UntilClose => Next::Data(from.split().freeze()),
        }
    }

    /// Whether no data follows, as far as is known; takes the end from `from` where it has come with the data.
    pub(super) fn ends_here(&mut self, from: &mut BytesMut) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunks(chunks) => chunks.ends_here(from),
            Self::UntilClose => false,
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::Chunks(_) | Self::UntilClose => SizeHint::default(),
        }
    }
}
