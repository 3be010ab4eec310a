//! Calls that come at once are answered together: a thousand proxies with the same dead key cost a few rounds of queries,
//! not a thousand. No task of its own: whoever holds the turn works for all who wait.

use std::sync::{Arc, Mutex, PoisonError};

use spareline_proto::dataplane::v1 as dp;
use tokio::sync::{Mutex as Turn, oneshot};

use super::verdicts::VerdictsResult;
use super::{Result, Store, StoreError};

/// Most verdicts answered in one round; a batch is never split.
const ROUND: usize = 2_000;

/// One call and where its answer goes.
pub(super) struct Waiting {
    pub(super) batch: Arc<dp::ReportVerdictsRequest>,
    answer: oneshot::Sender<Result<VerdictsResult>>,
}

/// Calls that wait, bounded by the calls under way.
#[derive(Default)]
pub(super) struct Combiner {
    waiting: Mutex<Vec<Waiting>>,
    turn: Turn<()>,
}

impl std::fmt::Debug for Combiner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Combiner")
    }
}

impl Combiner {
    fn push(&self, batch: Arc<dp::ReportVerdictsRequest>) -> oneshot::Receiver<Result<VerdictsResult>> {
        let (answer, receiver) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Waiting { batch, answer });
        receiver
    }

    /// The calls of one round, oldest first; those whose caller has left are dropped.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|w| !w.answer.is_closed());
        let mut room = ROUND;
        let mut count = 0;
        for w in waiting.iter() {
            if count > 0 && w.batch.verdicts.len() > room {
                break;
            }
            room = room.saturating_sub(w.batch.verdicts.len());
            count += 1;
        }
        waiting.drain(..count).collect()
    }
}

impl Store {
    /// Answers a batch of verdicts: reads first, and takes the head lock only for those that may change something. The same
    /// verdict id gets the same answer for ever. Invalid ids and subjects are answered, never an error for the batch.
    ///
    /// # Errors
    /// `Unavailable`: nothing was counted, send it again.
    pub async fn apply_verdicts(&self, batch: &dp::ReportVerdictsRequest) -> Result<VerdictsResult> {
        let batch = Arc::new(batch.clone());
        loop {
            let mut answer = self.combiner.push(batch.clone());
            let abandoned = loop {
                tokio::select! {
                    biased;
                    answered = &mut answer => match answered {
                        Ok(result) => return result,
                        Err(_) => break true, // the one whose turn it was left in the middle
                    },
                    _turn = self.combiner.turn.lock() => {
                        let calls = self.combiner.take();
                        let batches: Vec<_> = calls.iter().map(|c| c.batch.clone()).collect();
                        match self.apply_together(&batches).await {
                            Ok(results) => {
                                for (call, result) in calls.into_iter().zip(results) {
                                    let _ = call.answer.send(Ok(result));
                                }
                            }
                            Err(error) => {
                                for call in calls {
                                    let _ = call.answer.send(Err(error.again()));
                                }
                            }
                        }
                    }
                }
            };
            debug_assert!(abandoned);
        }
    }
}

impl StoreError {
    /// The same error for one more caller.
    fn again(&self) -> StoreError {
        match self {
            StoreError::Unavailable(sqlx::Error::PoolTimedOut) => {
                StoreError::Unavailable(sqlx::Error::PoolTimedOut)
            }
            StoreError::Unavailable(e) => StoreError::Unavailable(sqlx::Error::Protocol(e.to_string())),
            StoreError::Database(e) => StoreError::Database(sqlx::Error::Protocol(e.to_string())),
            other => StoreError::Corrupt(other.to_string()),
        }
    }
}
