//! `ReportService`: what proxies say of subjects.
//!
//! Both calls check the form here and leave the decision to the store, which reads first and takes the head lock only
//! for what may change something. What needs a probe wakes the prober. A lost database is UNAVAILABLE: nothing was
//! counted, and the proxy sends the same batch again, here or at another replica.

mod screen;
mod tallies;
#[cfg(test)]
mod tests;
mod verdicts;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use spareline_core::convert;
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::dataplane::v1::report_service_server::{ReportService as Service, ReportServiceServer};
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::{Request, Response, Status};

use crate::prober::Prober;
use crate::refuse::of_store;
use crate::store::Store;
use crate::world::{Worlds, announce};

/// Largest request taken, in bytes: 500 verdicts with everything at its longest fit.
const MAX_REQUEST: usize = 2 * 1024 * 1024;

/// Reports judged by the database at once; fewer than the connections it keeps for them. The rest wait in memory.
const AT_ONCE: usize = 6;
/// How long a report waits for its turn.
const TURN: Duration = Duration::from_secs(10);

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct ReportService {
    store: Store,
    worlds: Worlds,
    prober: Arc<Prober>,
    turns: Arc<Semaphore>,
}

impl ReportService {
    /// Writes to `store`, looks at `worlds` first where it can, wakes `prober`.
    pub(crate) fn new(store: Store, worlds: Worlds, prober: Arc<Prober>) -> Self {
        Self { store, worlds, prober, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// A turn at the database. In a storm it is not to be had at once; then `known` is asked first, before waiting and
    /// after it, whether the world in memory holds the answer already.
    async fn turn<T>(&self, known: impl Fn() -> Option<T>) -> Result<Turn<'_, T>, Status> {
        if let Ok(permit) = self.turns.try_acquire() {
            return Ok(Turn::Ours(permit));
        }
        if let Some(answer) = known() {
            return Ok(Turn::Known(answer));
        }
        match tokio::time::timeout(TURN, self.turns.acquire()).await {
            Ok(Ok(permit)) => Ok(known().map_or(Turn::Ours(permit), Turn::Known)),
            _ => Err(Status::unavailable("too many reports are waiting: try again")),
        }
    }

    /// To be mounted.
    pub(crate) fn into_server(self) -> ReportServiceServer<Self> {
        ReportServiceServer::new(self).max_decoding_message_size(MAX_REQUEST)
    }
}

/// What [`ReportService::turn`] found.
enum Turn<'a, T> {
    /// Nothing is known: ask the database.
    Ours(SemaphorePermit<'a>),
    /// The answer.
    Known(T),
}

#[tonic::async_trait]
impl Service for ReportService {
    async fn report_verdicts(
        &self,
        request: Request<dp::ReportVerdictsRequest>,
    ) -> Result<Response<dp::ReportVerdictsResponse>, Status> {
        let batch = verdicts::check(request.into_inner())?;
        if batch.verdicts.is_empty() {
            return Ok(Response::new(dp::ReportVerdictsResponse::default()));
        }
        let known = || {
            self.worlds.current().and_then(|world| screen::already(&world, &batch, &SystemTime::now().into()))
        };
        let _turn = match self.turn(known).await? {
            Turn::Known(results) => return Ok(Response::new(dp::ReportVerdictsResponse { results })),
            Turn::Ours(permit) => permit,
        };
        let answer = self.store.apply_verdicts(&batch).await.map_err(of_store)?;
        if answer.probe_now {
            self.prober.wake();
        }
        say(&batch, &answer.results);
        Ok(Response::new(dp::ReportVerdictsResponse { results: answer.results }))
    }

    async fn report_health(
        &self,
        request: Request<dp::ReportHealthRequest>,
    ) -> Result<Response<dp::ReportHealthResponse>, Status> {
        let batch = tallies::check(request.into_inner())?;
        let Turn::Ours(_turn) = self.turn(|| None::<()>).await? else {
            return Err(Status::internal("no turn"));
        };
        let answer = self.store.report_health(&batch).await.map_err(of_store)?;
        if answer.probe_now {
            tracing::info!(
                event = "probe_asked",
                proxy_id = %batch.proxy_id,
                "failures in a row at {}: probing before anybody is blamed", batch.proxy_id
            );
            self.prober.wake();
        }
        Ok(Response::new(dp::ReportHealthResponse {}))
    }
}

/// What is not believed is said aloud; the rest of the dispositions at debug.
fn say(batch: &dp::ReportVerdictsRequest, results: &[dp::VerdictResult]) {
    let mut suppressed = Vec::new();
    for (verdict, result) in batch.verdicts.iter().zip(results) {
        let subject = verdict.subject.as_ref().and_then(convert::subject);
        let subject = subject.map_or_else(String::new, |s| announce::describe(&s));
        tracing::debug!(
            event = "verdict_answered",
            proxy_id = %batch.proxy_id,
            verdict_id = %verdict.verdict_id,
            subject = %subject,
            cause = convert::cause(verdict.cause).map_or("", |c| c.as_str()),
            disposition = result.disposition().as_str_name(),
        );
        if result.disposition() == dp::Disposition::Suppressed {
            suppressed.push(subject);
        }
    }
    if !suppressed.is_empty() {
        tracing::warn!(
            event = "verdicts_suppressed",
            proxy_id = %batch.proxy_id,
            subjects = %suppressed.join(","),
            count = suppressed.len(),
            "too much is being disabled at once to be believed: {} verdict(s) of {} wait for a probe",
            suppressed.len(), batch.proxy_id
        );
    }
}
