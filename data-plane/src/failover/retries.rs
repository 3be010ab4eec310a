//! The retry budget of a group, where its policy has one: a first switch is free, further ones are bounded by a rate
//! and by a share of what succeeds, so that retries cannot drown an upstream that is already in trouble.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use spareline_core::policy::RetryBudget;

/// What is looked back on.
const WINDOW: u64 = 10;

/// Counts per group. A group that never succeeds or retries costs nothing.
#[derive(Debug, Default)]
pub struct RetryBudgets {
    groups: Mutex<HashMap<Arc<str>, Window>>,
}

#[derive(Debug, Default)]
struct Window {
    /// The last second counted.
    second: u64,
    successes: [u32; WINDOW as usize],
    retries: [u32; WINDOW as usize],
}

impl RetryBudgets {
    /// A request was answered.
    pub fn succeeded(&self, group: &Arc<str>, now: Duration) {
        self.with(group, now, |w, slot| w.successes[slot] = w.successes[slot].saturating_add(1));
    }

    /// Whether one more retry may be made; counts it if so.
    pub fn allow(&self, group: &Arc<str>, budget: Option<RetryBudget>, now: Duration) -> bool {
        let Some(budget) = budget else { return true };
        self.with(group, now, |w, slot| {
            let spent: u64 = w.retries.iter().map(|n| u64::from(*n)).sum();
            let won: u64 = w.successes.iter().map(|n| u64::from(*n)).sum();
            let share = won * u64::from(budget.percent) / 100;
            let allowed = (u64::from(budget.min_per_second) * WINDOW).max(share);
            let may = spent < allowed;
            if may {
                w.retries[slot] += 1;
            }
            may
        })
    }

    fn with<T>(&self, group: &Arc<str>, now: Duration, f: impl FnOnce(&mut Window, usize) -> T) -> T {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if !groups.contains_key(group) {
            groups.insert(group.clone(), Window::default());
        }
        let mut fresh = Window::default();
        let window = groups.get_mut(group).unwrap_or(&mut fresh);
        let second = now.as_secs();
        let gone = second.saturating_sub(window.second).min(WINDOW);
        for n in 0..gone {
            let slot = ((second - n) % WINDOW) as usize;
            window.successes[slot] = 0;
            window.retries[slot] = 0;
        }
        window.second = second;
        f(window, (second % WINDOW) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_bounded_by_rate_and_by_share_and_come_back_with_time() {
        let budgets = RetryBudgets::default();
        let group: Arc<str> = "default".into();
        let budget = Some(RetryBudget { min_per_second: 1, percent: 20 });
        let at = Duration::from_secs;
        let spend = |now| (0..1000).filter(|_| budgets.allow(&group, budget, now)).count();
        assert_eq!(spend(at(100)), 10);
        for _ in 0..100 {
            budgets.succeeded(&group, at(101));
        }
        assert_eq!(spend(at(101)), 10, "20 % of 100, less the 10 spent");
        assert_eq!(spend(at(112)), 10, "all forgotten");
        assert!(budgets.allow(&group, None, at(112)), "without a budget everything goes");
    }
}
