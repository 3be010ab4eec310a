//! Moves rollouts: one replica at a time, by lease, each write with the lease's token.
//!
//! It keeps nothing between rounds but its name: whoever gets the lease goes on from the rows. A holder that was stopped for a
//! while and comes back finds its token refused.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::cohort::share;
use super::step::{Action, step};
use crate::store::{Lease, RolloutRow, Store, StoreError};
use crate::world::Worlds;

/// How often rollouts are looked at.
const ROUND: Duration = Duration::from_secs(1);
/// How long a replica that fell silent keeps the others waiting.
const TERM: Duration = Duration::from_secs(5);
/// The lease's name.
const LEASE: &str = "rollouts";
/// Who the audit log names.
const ACTOR: &str = "rollout-controller";

/// Looks after rollouts until `stop`.
pub(crate) async fn control(store: Store, worlds: Worlds, replica: String, stop: CancellationToken) {
    // A name of this process: a restarted one is another holder.
    let holder = format!("{replica}/{}", uuid::Uuid::now_v7());
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(ROUND) => {}
        }
        let lasts = worlds.current().is_some_and(|world| !world.rollouts.is_empty());
        if !lasts {
            continue;
        }
        let result = tokio::select! {
            () = stop.cancelled() => return,
            result = Store::bounded(round(&store, &holder)) => result,
        };
        match result {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(event = "rollouts_waiting", error = %error, "rollouts cannot be looked after: trying again");
            }
            Err(_) => {}
        }
    }
}

/// One look at all that are spreading, if this replica has the lease.
///
/// # Errors
/// `Unavailable`: nothing was decided that was not written.
pub(crate) async fn round(store: &Store, holder: &str) -> Result<(), StoreError> {
    let Some(lease) = store.lease(LEASE, holder, TERM).await? else { return Ok(()) };
    for rollout in store.active_rollouts().await? {
        look(store, &lease, &rollout).await?;
    }
    Ok(())
}

/// Decides on one rollout and carries it out, if it is still as it was.
async fn look(store: &Store, lease: &Lease, rollout: &RolloutRow) -> Result<(), StoreError> {
    let (evidence, now) = store.rollout_evidence(rollout).await?;
    let (id, etag) = (rollout.rollout_id, rollout.etag());
    let action = step(&rollout.standing(), &evidence, now);
    let reaches = rollout.stages.get(rollout.current).map_or(0, |stage| share(stage.percent));
    let result = match action {
        Action::Hold(_) if evidence.connected == 0 && reaches > 0 => {
            carry_out(store, lease, id, Move::Widen).await
        }
        Action::Hold(_) => return Ok(()),
        Action::Pause(why) => carry_out(store, lease, id, Move::Pause { etag, why }).await,
        Action::Advance | Action::Finish => carry_out(store, lease, id, Move::Advance { etag }).await,
    };
    match result {
        Ok(()) => Ok(()),
        // Somebody else was quicker: the next round sees what they did.
        Err(StoreError::Conflict(_)) => Ok(()),
        Err(error @ StoreError::Precondition(_)) => {
            tracing::info!(event = "rollout_not_moved", rollout_id = id, reason = %error, "rollout {id} was not moved");
            Ok(())
        }
        // The registry no longer takes the change: a human has to look.
        Err(error @ (StoreError::Invalid(_) | StoreError::AlreadyExists(_) | StoreError::NotFound(_))) => {
            let why = format!("it cannot become the registry: {error}");
            match carry_out(store, lease, id, Move::Pause { etag: rollout.etag(), why }).await {
                Err(StoreError::Conflict(_) | StoreError::Precondition(_)) => Ok(()),
                other => other,
            }
        }
        Err(error) => Err(error),
    }
}

/// What is written.
enum Move {
    Widen,
    Advance { etag: String },
    Pause { etag: String, why: String },
}

async fn carry_out(store: &Store, lease: &Lease, id: i64, what: Move) -> Result<(), StoreError> {
    let held = lease.clone();
    let written = store
        .write::<_, StoreError>(ACTOR, move |tx| {
            Box::pin(async move {
                tx.hold(&held).await?;
                match what {
                    Move::Widen => tx.widen_rollout(id).await.map(|_| ()),
                    Move::Advance { etag } => {
                        tx.advance_rollout(id, &etag, "its gate is open").await.map(|_| ())
                    }
                    Move::Pause { etag, why } => {
                        if tx.rollout(id).await?.etag() != etag {
                            return Err(StoreError::Conflict(format!("rollout {id}")));
                        }
                        tx.pause_rollout(id, &why).await.map(|_| ())
                    }
                }
            })
        })
        .await?;
    if written.changed {
        let rollout = store.rollout(id).await?;
        tracing::info!(
            event = "rollout_changed",
            rollout_id = id,
            state = rollout.state.as_str_name(),
            stage = rollout.current,
            reason = %rollout.why,
            revision = written.revision,
            "rollout {id} is at stage {}", rollout.current
        );
    }
    Ok(())
}
