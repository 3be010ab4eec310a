//! When to probe: at start, whenever a row falls due, when woken, and at the latest after the policy's `probe_interval`, or
//! after a few seconds where that is longer.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spareline_core::{Cause, ChannelId, Revision, Subject};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::judge::Question;
use super::{AT_ONCE, Prober, ask, plan};
use crate::decide::{Lease, ProbeOutcome};
use crate::store::{Claim, ProbeResult, Store, StoreError};
use crate::world::{World, announce};

/// The longest nap: another replica may have died with a lease that is due again.
const NAP: Duration = Duration::from_secs(4);
/// The shortest: rows that fall due one after the other are claimed together.
const BREATH: Duration = Duration::from_millis(20);
/// The pause while the database is away.
const RETRY: Duration = Duration::from_secs(1);
/// How long a round waits for the world to show what the database has.
const CATCH_UP: Duration = Duration::from_secs(2);

/// The pause while every probe there may be is under way: one that ends ends it.
const CROWDED: Duration = Duration::from_millis(500);
/// Probes at once of what was asked for, besides those of what falls due.
const ASKED_AT_ONCE: usize = 96;

/// Room for probes. What was asked for has its own: upstreams that hang hold theirs for 20 s, and a proxy waits.
struct Slots {
    asked: Arc<Semaphore>,
    due: Arc<Semaphore>,
}

impl Slots {
    fn new() -> Self {
        Self { asked: Arc::new(Semaphore::new(ASKED_AT_ONCE)), due: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    fn are_full(&self) -> bool {
        self.asked.available_permits() == 0 && self.due.available_permits() == 0
    }
}

/// Until `stop`; probes under way are dropped then, and their leases run out.
pub(super) async fn run(prober: &Arc<Prober>, stop: CancellationToken) {
    let slots = Slots::new();
    let mut running = JoinSet::new();
    loop {
        let nap = match Store::bounded(round(prober, &slots, &mut running)).await {
            Ok(nap) => nap,
            Err(error) => {
                tracing::debug!(event = "probe_round_failed", error = %error);
                RETRY
            }
        };
        let full = slots.are_full();
        tokio::select! {
            () = stop.cancelled() => return,
            () = prober.wake.notified(), if !full => {}
            () = tokio::time::sleep(nap), if !full => {}
            Some(_) = running.join_next() => while running.try_join_next().is_some() {},
        }
    }
}

/// Starts what is due and fits; answers how long to nap.
async fn round(
    prober: &Arc<Prober>,
    slots: &Slots,
    running: &mut JoinSet<()>,
) -> Result<Duration, StoreError> {
    let free = |slots: &Semaphore| u32::try_from(slots.available_permits()).unwrap_or(u32::MAX);
    let asked = (&slots.asked, Claim::Asked(free(&slots.asked)));
    let due = (&slots.due, Claim::Due(free(&slots.due)));
    for (slots, claim) in [asked, due] {
        if slots.available_permits() == 0 {
            continue;
        }
        let claimed = prober.store.claim_probes(&claim, false).await?;
        if claimed.is_empty() {
            continue;
        }
        let world = world(prober).await?;
        for lease in claimed {
            let Ok(slot) = slots.clone().try_acquire_owned() else { break };
            running.spawn(one(prober.clone(), world.clone(), lease, slot));
        }
    }
    if prober.tidy_is_due() {
        prober.store.tidy().await?;
    }
    forget_lines(prober);
    let due = prober.store.next_probe_in().await?;
    let interval = prober.worlds.current().map_or(NAP, |world| world.rules.probe_interval);
    Ok(nap(due, interval, slots.due.available_permits() == 0))
}

/// How long to nap: until the next row falls due, if there is one, but no longer than the policy allows.
fn nap(due: Option<Duration>, interval: Duration, crowded: bool) -> Duration {
    let least = if crowded { CROWDED } else { BREATH };
    due.unwrap_or(NAP).min(interval).clamp(least, NAP)
}

async fn one(prober: Arc<Prober>, world: Arc<World>, lease: Lease, slot: OwnedSemaphorePermit) {
    let outcome = probe(&prober, &world, &lease).await;
    if let Err(error) = Store::bounded(finish(&prober, &lease, &outcome)).await {
        tracing::warn!(
            event = "probe_not_written",
            subject = %announce::describe(&lease.subject),
            error = %error,
            "a probe's result was lost: it will be repeated"
        );
    }
    drop(slot);
}

/// A world at least as new as the rows just claimed.
pub(super) async fn world(prober: &Prober) -> Result<Arc<World>, StoreError> {
    let head = prober.store.head().await?;
    if let Some(world) = prober.worlds.at_least(Revision(head.revision), CATCH_UP).await {
        return Ok(world);
    }
    match prober.worlds.current() {
        Some(world) => Ok(world),
        None => Err(StoreError::Precondition("the registry is not loaded yet".into())),
    }
}

/// Asks about one claimed row.
pub(super) async fn probe(prober: &Prober, world: &World, lease: &Lease) -> ProbeOutcome {
    let claimed = lease.status.pending.as_ref().map(|pending| pending.cause);
    let cause = claimed.or(lease.status.cause).unwrap_or(Cause::Unhealthy);
    let question = Question { subject: &lease.subject, cause, with_key: true };
    let lines = plan::lines(&world.items, &lease.subject, &SystemTime::now().into());
    if lines.is_empty() {
        let reason = match lease.subject {
            Subject::Ability { .. } => "no usable key to ask with",
            _ => "no channel to ask through",
        };
        return ProbeOutcome::Inconclusive { reason: reason.into() };
    }
    ask::ask(prober, &question, &lines, &prober.rules(world), &ask::others(world)).await
}

/// Writes a result and says so.
pub(super) async fn finish(
    prober: &Prober,
    lease: &Lease,
    outcome: &ProbeOutcome,
) -> Result<ProbeResult, StoreError> {
    let result = prober.store.finish_probe(lease, outcome).await?;
    let (word, reason) = match outcome {
        ProbeOutcome::Good => ("good", ""),
        ProbeOutcome::Bad { reason, .. } => ("bad", reason.as_str()),
        ProbeOutcome::Throttled { reason, .. } => ("throttled", reason.as_str()),
        ProbeOutcome::Inconclusive { reason } => ("inconclusive", reason.as_str()),
    };
    let written = match &result {
        ProbeResult::Lost => "lost",
        ProbeResult::Unchanged(_) => "unchanged",
        ProbeResult::Changed(_) => "changed",
    };
    tracing::info!(
        event = "probe_finished",
        subject = %announce::describe(&lease.subject),
        outcome = word,
        written,
        reason,
        "probed {}: {word}", announce::describe(&lease.subject)
    );
    Ok(result)
}

/// Drops connections of channels that are no more.
fn forget_lines(prober: &Prober) {
    if let Some(world) = prober.worlds.current() {
        prober.clients.retain(|id: ChannelId| world.items.channel(id).is_some());
    }
}
