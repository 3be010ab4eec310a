//! What is remembered of an attempt: by the loop when it ends, by the guard when the caller leaves in the middle.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use spareline_core::{Class, classify::Detail, pick::Picked, view::View};
use spareline_upstream::Failed;
use tokio::time::Instant;

use crate::{
    plan::Plan,
    record::{AttemptRecord, Record},
    state::Shared,
};

/// A caller that left this long after an attempt began, without one byte, says something about the channel.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// Runs while an attempt does; dropped in the middle, it says that the caller left.
pub(super) struct Guard<'a> {
    shared: &'a Shared,
    view: &'a View,
    plan: &'a Plan,
    record: &'a mut Record,
    picked: &'a mut Picked,
    heard: &'a AtomicBool,
    began: Instant,
    armed: bool,
}

impl<'a> Guard<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        view: &'a View,
        plan: &'a Plan,
        record: &'a mut Record,
        picked: &'a mut Picked,
        heard: &'a AtomicBool,
        began: Instant,
    ) -> Self {
        Self { shared, view, plan, record, picked, heard, began, armed: true }
    }

    /// What is being tried.
    pub(super) fn picked(&self) -> &Picked {
        self.picked
    }

    /// The attempt ended by itself; how long it took.
    pub(super) fn done(mut self) -> Duration {
        self.armed = false;
        self.began.elapsed()
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let took = self.began.elapsed();
        let heard = self.heard.load(Ordering::Relaxed);
        let silent = took >= SILENT_AFTER && !heard && !self.shared.is_cut();
        remember(self.record, self.picked, took, "cancelled", 0, if silent { "silent" } else { "" });
        if silent {
            let hash = super::react::body_hash(self.plan);
            let crossing = self.picked.ticket.silent(hash, self.view.fleet(), self.shared.now());
            super::react::crossed(self.shared, crossing, self.picked);
        }
    }
}

pub(super) fn remember(
    record: &mut Record,
    picked: &Picked,
    took: Duration,
    outcome: &'static str,
    status: u16,
    word: &'static str,
) {
    record.attempt(AttemptRecord {
        channel: picked.channel.name.clone(),
        rank: picked.credential.as_ref().and_then(|c| picked.channel.shown_rank(c.id)),
        outcome,
        status,
        word,
        last_resort: picked.last_resort,
        took,
    });
}

pub(super) fn remember_failure(record: &mut Record, picked: &Picked, took: Duration, failed: &Failed) {
    let (outcome, status, word) = describe(failed);
    remember(record, picked, took, outcome, status, word);
    let verdict = &failed.verdict;
    tracing::debug!(
        event = "attempt_failed",
        request_id = %record.request_id,
        channel = %picked.channel.name,
        credential = picked.credential.as_ref().map(|c| c.id.0),
        model = %picked.model.name,
        outcome,
        status,
        detail = word,
        rule = %verdict.rule,
        provider_code = %verdict.provider_code,
        excerpt = %verdict.excerpt,
        ms = took.as_secs_f64() * 1e3,
        "attempt failed"
    );
}

/// Outcome, status and word of a failed attempt, as in attempt lists.
pub(super) fn describe(failed: &Failed) -> (&'static str, u16, &'static str) {
    let verdict = &failed.verdict;
    let outcome = match verdict.class {
        Class::None => "internal",
        class => class.as_str(),
    };
    let word = match (failed.limit, verdict.detail) {
        (Some(limit), _) => limit.as_str(),
        (None, Detail::Word(word)) => word,
        (None, Detail::Status(_)) => "",
    };
    (outcome, verdict.status, word)
}
