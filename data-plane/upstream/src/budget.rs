//! Bounds all bodies held at once, over the whole process.
//!
//! One counter shared by whoever holds bytes: request bodies, plain answers, held streams. Nothing waits: what does
//! not fit is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that may be held. Clones share one count.
#[derive(Clone, Debug)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    used: AtomicUsize,
}

/// Some bytes of a budget; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: usize,
}

// === impl Budget ===

impl Budget {
    /// At most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { shared: Arc::new(Shared { limit, used: AtomicUsize::new(0) }) }
    }

    /// No bound, for tools and probes.
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Nothing yet, to grow.
    pub fn empty(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }

    /// `None` where that much is not left.
    pub fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let mut reservation = self.empty();
        reservation.grow(bytes).then_some(reservation)
    }

    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// The bound.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }
}

// === impl Reservation ===

impl Reservation {
    /// Takes `more` bytes; false (and unchanged) where they are not left.
    pub fn grow(&mut self, more: usize) -> bool {
        let shared = &self.budget.shared;
        let mut used = shared.used.load(Ordering::Relaxed);
        loop {
            let Some(next) = used.checked_add(more).filter(|next| *next <= shared.limit) else {
                return false;
            };
            match shared.used.compare_exchange_weak(used, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    self.bytes += more;
                    return true;
                }
                Err(now) => used = now,
            }
        }
    }

    /// Bytes taken.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.shared.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_dropped_comes_back() {
        let budget = Budget::new(10);
        let mut first = budget.reserve(6).unwrap();
        assert!(budget.reserve(5).is_none());
        assert!(first.grow(4));
        assert!(!first.grow(1));
        assert_eq!((first.bytes(), budget.used()), (10, 10));
        drop(first);
        assert_eq!(budget.used(), 0);
        assert!(!budget.empty().grow(usize::MAX));
    }
}
