//! The sending side: one batch after the other, the same ids until they are answered.

use std::{collections::HashSet, sync::Arc, time::Duration};

use spareline_core::{backoff::FullJitter, convert::subject_ref, health::Tally};
use spareline_proto::dataplane::v1::{
    Disposition, HealthTally, ReportHealthRequest, ReportVerdictsRequest,
    report_service_client::ReportServiceClient,
};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Code, transport::Channel};

use super::Report;
use crate::{metrics::WordLabel, state::Shared};

/// As many verdicts as one call takes.
const BATCH: usize = 500;
/// Between two reports of health.
const HEALTH_EVERY: Duration = Duration::from_secs(10);
/// One call.
const CALL: Duration = Duration::from_secs(10);

/// What to do after a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The same again, later.
    Retry,
    /// It will never be taken.
    Drop,
}

struct Sender {
    shared: Arc<Shared>,
    client: ReportServiceClient<Channel>,
    pause: FullJitter,
    next_try: Instant,
    next_health: Instant,
    /// A batch of tallies that was not answered yet.
    unanswered: Option<ReportHealthRequest>,
    failing: bool,
}

/// Sends until told to stop; then what is left once more.
pub async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let endpoint = crate::watch::endpoint(&shared.config.control_plane);
    let mut sender = Sender {
        client: ReportServiceClient::new(endpoint.connect_lazy()),
        pause: FullJitter::reconnect(),
        next_try: Instant::now(),
        next_health: Instant::now() + spread(HEALTH_EVERY),
        unanswered: None,
        failing: false,
        shared,
    };
    while !stop.is_cancelled() {
        let timer = if sender.failing { sender.next_try } else { sender.next_health };
        tokio::select! {
            () = stop.cancelled() => break,
            () = sender.shared.spool.woken(), if !sender.failing => {}
            () = sleep_until(timer) => {}
        }
        sender.round().await;
    }
    sender.round().await;
}

/// About that long, so that a fleet does not speak as one.
fn spread(about: Duration) -> Duration {
    about.mul_f64(rand::random_range(0.9..=1.1))
}

impl Sender {
    async fn round(&mut self) {
        self.failing = false;
        while !self.shared.spool.is_empty() {
            if !self.verdicts().await {
                return;
            }
        }
        if self.shared.spool.health_wanted() || Instant::now() >= self.next_health {
            self.next_health = Instant::now() + spread(HEALTH_EVERY);
            self.health().await;
        }
    }

    /// Whether to go on.
    async fn verdicts(&mut self) -> bool {
        let batch = self.shared.spool.batch(BATCH);
        let Some(first) = batch.first() else { return false };
        let now = self.shared.now();
        let request = ReportVerdictsRequest {
            proxy_id: self.shared.config.proxy_id.clone(),
            epoch: first.epoch.to_string(),
            verdicts: batch.iter().map(|r| r.to_wire(now)).collect(),
        };
        let sent = Instant::now();
        match timeout(CALL, self.client.report_verdicts(request)).await {
            Ok(Ok(response)) => {
                self.pause.reset();
                self.answered(&batch, &response.into_inner().results, sent.elapsed());
                true
            }
            Ok(Err(status)) => {
                self.failed(status.code(), status.message()) == After::Drop && self.drop(&batch)
            }
            Err(_) => self.failed(Code::DeadlineExceeded, "no answer in time") == After::Drop,
        }
    }

    fn drop(&self, batch: &[Report]) -> bool {
        self.shared.spool.done(batch);
        true
    }

    fn answered(
        &self,
        batch: &[Report],
        results: &[spareline_proto::dataplane::v1::VerdictResult],
        took: Duration,
    ) {
        let ids: HashSet<&str> = batch.iter().map(|r| &*r.verdict_id).collect();
        for result in results.iter().filter(|r| ids.contains(&*r.verdict_id)) {
            let disposition = result.disposition();
            self.shared.overlays.answered(&result.verdict_id, disposition);
            let kind = word(disposition);
            self.shared.metrics.dispositions.get_or_create(&WordLabel { kind }).inc();
            tracing::info!(
                event = "verdict_answered",
                verdict_id = %result.verdict_id,
                disposition = kind,
                status_revision = result.status_revision,
                ms = took.as_secs_f64() * 1e3,
                "verdict answered: {kind}"
            );
        }
        self.shared.spool.done(batch);
    }

    async fn health(&mut self) {
        let request = match self.unanswered.take() {
            Some(request) => request,
            None => {
                let tallies = self.shared.health.drain();
                if tallies.is_empty() {
                    return;
                }
                ReportHealthRequest {
                    proxy_id: self.shared.config.proxy_id.clone(),
                    batch_id: uuid::Uuid::now_v7().to_string(),
                    tallies: tallies.iter().map(tally).collect(),
                    epoch: self.shared.view().epoch().to_string(),
                }
            }
        };
        let outcome = match timeout(CALL, self.client.report_health(request.clone())).await {
            Ok(Ok(_)) => {
                self.pause.reset();
                return;
            }
            Ok(Err(status)) => self.failed(status.code(), status.message()),
            Err(_) => self.failed(Code::DeadlineExceeded, "no answer in time"),
        };
        if outcome == After::Retry {
            self.unanswered = Some(request);
            self.shared.spool.tell_health();
        }
    }

    fn failed(&mut self, code: Code, message: &str) -> After {
        let after = match code {
            Code::InvalidArgument | Code::OutOfRange | Code::PermissionDenied => After::Drop,
            _ => After::Retry,
        };
        let pause = self.pause.next(&mut rand::rng());
        if after == After::Drop {
            tracing::error!(event = "report_refused", code = ?code, message, "the control plane refuses a report");
        } else {
            tracing::debug!(
                event = "report_failed",
                code = ?code,
                message,
                again_in_ms = pause.as_secs_f64() * 1e3,
                waiting = self.shared.spool.len(),
                "cannot report, trying again"
            );
            self.failing = true;
            self.next_try = Instant::now() + pause;
        }
        after
    }
}

fn tally(tally: &Tally) -> HealthTally {
    HealthTally {
        subject: Some(subject_ref(&tally.subject)),
        successes: tally.successes,
        failures: tally.failures,
        trailing_failures: tally.trailing_failures,
        observed_revision: tally.revision.0,
        spec_revision: tally.spec_revision.0,
    }
}

fn word(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Unspecified => "unspecified",
        Disposition::Applied => "applied",
        Disposition::Already => "already",
        Disposition::Stale => "stale",
        Disposition::Pending => "pending",
        Disposition::Suppressed => "suppressed",
        Disposition::UnknownSubject => "unknown_subject",
        Disposition::Rollout => "rollout",
        Disposition::Local => "local",
    }
}
