//! What this proxy found out by itself and does not use for now, on top of the view's statuses.
//!
//! An overlay is made the moment a verdict is reached, so the very next pick sees it. It ends at the first of: its
//! time (hard causes 60 s doubling to 15 min, jittered; throttles by their hint), a status of the subject that is out
//! or whose fence is above the overlay's revision, disposition STALE or UNKNOWN_SUBJECT, a success on the subject, the
//! subject leaving the view. After its time one request tries first. One report per overlay. Soft failures are not
//! here: they are counted in [`health`](crate::health).

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use rand::{Rng, RngExt as _};
use spareline_proto::dataplane::v1::Disposition;

use crate::health::Mark;
use crate::ids::{ChannelId, Revision, Subject};
use crate::view::View;
use crate::words::{Cause, Endpoint};

/// Hints below this stay local.
const LOCAL_HINT: Duration = Duration::from_secs(10);
/// The first hard overlay, and the longest.
const HARD_FIRST: Duration = Duration::from_secs(60);
const HARD_LONGEST: Duration = Duration::from_secs(15 * 60);
/// How long an endpoint counts as missing.
const ENDPOINT_MISSING: Duration = Duration::from_secs(10 * 60);
/// How long an overlay that ran out is remembered, so that the next one is longer.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// A verdict that takes something out here and now.
#[derive(Clone, Debug)]
pub struct Found {
    /// What.
    pub subject: Subject,
    /// Why; never `unhealthy` or `operator`.
    pub cause: Cause,
    /// How long the upstream asked us to wait, clamped.
    pub hint: Option<Duration>,
    /// The revision of the view the attempt was picked from.
    pub revision: Revision,
    /// The id of the verdict, should it be reported.
    pub verdict_id: Arc<str>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Out until then, by the local monotonic clock; `None`: no overlay was made.
    pub until: Option<Duration>,
    /// Whether the control plane is to be told: not for hints under 10 s, and once per overlay.
    pub report: bool,
}

/// One overlay, for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// What.
    pub subject: Subject,
    /// Why.
    pub cause: Cause,
    /// Until when, by the local monotonic clock.
    pub until: Duration,
    /// Whether the provider said so.
    pub hinted: bool,
}

/// All overlays of this process. Shared; locks are held for moments.
#[derive(Debug, Default)]
pub struct Overlays {
    /// How many entries there are, so that picks need no lock while there is none.
    len: AtomicUsize,
    state: RwLock<State>,
}

/// What is behind the lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    entries: HashMap<Subject, Entry>,
    endpoints: HashMap<(ChannelId, Arc<str>, Endpoint), Duration>,
    serial: u64,
}

/// One overlay; past `until` it waits for the one request that tries first.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) cause: Cause,
    pub(crate) until: Duration,
    pub(crate) hinted: bool,
    /// Another for every overlay: its gate's name.
    pub(crate) serial: u64,
    revision: Revision,
    repetition: u32,
    verdict_id: Arc<str>,
}

impl Overlays {
    /// Takes a subject out here and now.
    pub fn add(&self, found: &Found, view: &View, now: Duration, rng: &mut impl Rng) -> Added {
        let reported = found.hint.is_none_or(|hint| hint >= LOCAL_HINT);
        if !view.knows(&found.subject) {
            return Added { until: None, report: reported };
        }
        let mut state = self.write();
        let before = state.entries.get(&found.subject).cloned();
        let in_force = before.as_ref().filter(|e| e.until > now);
        if let Some(entry) = in_force.filter(|e| e.cause > found.cause) {
            return Added { until: Some(entry.until), report: false };
        }
        let repetition = match (&before, in_force) {
            (Some(entry), None) => entry.repetition.saturating_add(1),
            (Some(entry), Some(_)) => entry.repetition,
            (None, _) => 0,
        };
        let length = match (found.cause, found.hint) {
            (Cause::Throttled, hint) => {
                let length = hint.unwrap_or_else(|| view.fleet().throttle(repetition));
                length.mul_f64(rng.random_range(1.0..=1.1))
            }
            _ => {
                let length = HARD_FIRST.saturating_mul(1 << repetition.min(8)).min(HARD_LONGEST);
                length.mul_f64(rng.random_range(0.9..=1.1))
            }
        };
        let until = now + length;
        if let Some(entry) = in_force.filter(|e| e.cause == found.cause) {
            // A later deadline extends, an earlier one never shortens; an extension under 10 % is no news.
            let left = entry.until.saturating_sub(now);
            if found.cause != Cause::Throttled || length <= left.mul_f64(1.1) {
                return Added { until: Some(entry.until), report: false };
            }
        }
        state.serial += 1;
        let entry = Entry {
            cause: found.cause,
            until,
            hinted: found.hint.is_some(),
            serial: state.serial,
            revision: found.revision,
            repetition,
            verdict_id: found.verdict_id.clone(),
        };
        state.entries.insert(found.subject.clone(), entry);
        self.count(&state);
        Added { until: Some(until), report: reported }
    }

    /// Remembers for 10 minutes that a channel lacks an endpoint for a model.
    pub fn endpoint_missing(&self, channel: ChannelId, model: &Arc<str>, endpoint: Endpoint, now: Duration) {
        let mut state = self.write();
        state.endpoints.retain(|_, until| *until > now);
        state.endpoints.insert((channel, model.clone(), endpoint), now + ENDPOINT_MISSING);
        self.count(&state);
    }

    /// The control plane's answer to a report.
    pub fn answered(&self, verdict_id: &str, disposition: Disposition) {
        if !matches!(disposition, Disposition::Stale | Disposition::UnknownSubject) {
            return;
        }
        let mut state = self.write();
        state.entries.retain(|_, entry| *entry.verdict_id != *verdict_id);
        self.count(&state);
    }

    /// An attempt on this channel, model and credential succeeded: ends what said otherwise. Answers the ids of the
    /// verdicts whose overlays ended, to be withdrawn where they were not sent yet.
    pub fn succeeded(&self, mark: &Mark, endpoint: Option<Endpoint>) -> Vec<Arc<str>> {
        if self.is_empty() {
            return Vec::new();
        }
        let (channel, model) = (mark.channel, &mark.model);
        let ability = |credential| Subject::Ability { channel, model: model.clone(), credential };
        let mut subjects = vec![Subject::Channel(channel), ability(None)];
        if let Some(id) = mark.credential {
            subjects.extend([Subject::Credential(id), ability(Some(id))]);
        }
        let mut state = self.write();
        let gone = subjects.iter().filter_map(|subject| state.entries.remove(subject));
        let withdrawn = gone.map(|entry| entry.verdict_id).collect();
        if let Some(endpoint) = endpoint {
            state.endpoints.remove(&(channel, model.clone(), endpoint));
        }
        self.count(&state);
        withdrawn
    }

    /// A new view is in force: ends what it has overtaken.
    pub fn reconcile(&self, view: &View, now: Duration) {
        if self.is_empty() {
            return;
        }
        let mut state = self.write();
        state.entries.retain(|subject, entry| {
            view.knows(subject)
                && entry.until + MEMORY > now
                && view.out(subject, now).is_none()
                && !fenced(subject, entry.revision, view)
        });
        state.endpoints.retain(|(channel, _, _), until| *until > now && view.line(*channel).is_some());
        self.count(&state);
    }

    /// Those in force, for `/debug/registry` and metrics.
    pub fn list(&self, now: Duration) -> Vec<Shown> {
        let state = self.read();
        let in_force = state.entries.iter().filter(|(_, entry)| entry.until > now);
        let mut shown: Vec<_> = in_force
            .map(|(subject, entry)| Shown {
                subject: subject.clone(),
                cause: entry.cause,
                until: entry.until,
                hinted: entry.hinted,
            })
            .collect();
        shown.sort_by(|a, b| a.subject.cmp(&b.subject));
        shown
    }

    /// Whether there is nothing to look at.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, state: &State) {
        self.len.store(state.entries.len() + state.endpoints.len(), Ordering::Release);
    }
}

impl State {
    pub(crate) fn entry(&self, subject: &Subject) -> Option<&Entry> {
        self.entries.get(subject)
    }

    pub(crate) fn lacks(&self, channel: ChannelId, model: &Arc<str>, endpoint: Endpoint) -> Option<Duration> {
        if self.endpoints.is_empty() {
            return None;
        }
        self.endpoints.get(&(channel, model.clone(), endpoint)).copied()
    }
}

/// Whether somebody enabled the subject, or the channel around it, after the overlay's attempt was picked.
pub(crate) fn fenced(subject: &Subject, revision: Revision, view: &View) -> bool {
    let fence = |subject: &Subject| view.fence(subject) > revision;
    fence(subject)
        || match subject {
            Subject::Channel(_) => false,
            Subject::Ability { channel, .. } => fence(&Subject::Channel(*channel)),
            Subject::Credential(id) => view.listing(*id).any(|channel| fence(&Subject::Channel(channel))),
        }
}
