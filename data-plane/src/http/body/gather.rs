//! Puts the pieces of a body together.
//!
//! Invariant: what is held is never more than the body and one mebibyte, or twice the body where it is smaller than that;
//! a buffer that grows by doubling, and is copied at the end, would hold two to three times what was reserved for it.

use bytes::{Bytes, BytesMut};

/// The largest segment.
const SEGMENT: usize = 1 << 20;

/// The pieces so far.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// The only piece so far, as it came.
    first: Bytes,
    /// Segments that are full.
    full: Vec<Bytes>,
    /// The segment being filled.
    last: BytesMut,
    len: usize,
}

impl Gather {
    /// In bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a piece, behind which at least `expected` bytes more are announced.
    pub(super) fn push(&mut self, piece: Bytes, expected: usize) {
        if self.len == 0 {
            self.len = piece.len();
            self.first = piece;
            return;
        }
        let first = std::mem::take(&mut self.first);
        if !first.is_empty() {
            self.len = 0;
            self.copy(&first, piece.len().saturating_add(expected));
        }
        self.copy(&piece, expected);
    }

    /// Adds bytes by copying them.
    pub(super) fn copy(&mut self, mut piece: &[u8], expected: usize) {
        while !piece.is_empty() {
            let room = self.last.capacity() - self.last.len();
            if room == 0 {
                if !self.last.is_empty() {
                    self.full.push(std::mem::take(&mut self.last).freeze());
                }
                let wanted = piece.len().saturating_add(expected).max(self.len);
                self.last = BytesMut::with_capacity(wanted.min(SEGMENT));
                continue;
            }
            let (now, later) = piece.split_at(room.min(piece.len()));
            self.last.extend_from_slice(now);
            self.len += now.len();
            piece = later;
        }
    }

    /// All of it.
    pub(super) fn whole(self) -> Bytes {
        if !self.first.is_empty() {
            return self.first;
        }
        if self.full.is_empty() {
            return self.last.freeze();
        }
        let mut whole = BytesMut::with_capacity(self.len);
        for segment in self.full {
            // Given back as it is copied.
            whole.extend_from_slice(&segment);
        }
        whole.extend_from_slice(&self.last);
        whole.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(gather: &Gather) -> usize {
        gather.first.len() + gather.full.iter().map(Bytes::len).sum::<usize>() + gather.last.capacity()
    }

    #[test]
    fn little_more_is_held_than_came() {
        for (piece, expected) in
            [(1, 0), (7, 0), (16 << 10, 0), (400 << 10, 0), (16 << 10, 32 << 20), (3 << 20, 0)]
        {
            let (mut gather, mut came) = (Gather::default(), Vec::new());
            while came.len() < 200_000 || (piece > 7 && came.len() < 9 << 20) {
                let next: Vec<u8> = (0..piece).map(|n| ((came.len() + n) % 251) as u8).collect();
                came.extend_from_slice(&next);
                gather.push(next.into(), expected);
                let most = came.len() + came.len().max(expected).min(SEGMENT).max(piece);
                assert!(held(&gather) <= most, "{piece}: {} for {}", held(&gather), came.len());
            }
            assert_eq!(gather.len(), came.len());
            assert!(gather.whole() == came, "{piece}");
        }
        assert!(Gather::default().whole().is_empty());
    }
}
