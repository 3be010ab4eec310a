//! The prober: asks the providers of what is out by machine, and of what a verdict only claims, whether it serves.
//!
//! Any replica probes; a row lease says which does. A probe is a real request of the channel's kind, built and judged by
//! the same code as traffic, so it can be wrong only where traffic is. Its result is written by compare-and-set on
//! (lease, revision): a human's word in between survives it, and a prober that dies leaves a lease that runs out.
//! Healthy channels are never probed, and nothing here decides what a result does to a status: that is
//! [`crate::decide::probed`].

mod ask;
mod egress;
mod forms;
mod judge;
mod now;
mod plan;
mod schedule;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spareline_core::classify::Rules;
use spareline_core::secret::Secret;
use spareline_core::{Cause, ChannelId, CredentialId, Subject, convert};
use spareline_proto::admin::v1 as admin;
use spareline_proto::registry::v1 as pb;
use spareline_upstream::{Clients, ClientsConfig};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::admin::{Probing, Verified};
use crate::decide::ProbeOutcome;
use crate::refuse;
use crate::store::{Store, StoreError};
use crate::world::{World, Worlds};

/// One probe, over all its forms.
pub(crate) const PROBE_LIMIT: Duration = Duration::from_secs(20);
/// How often throttles that have ended are tidied away.
const TIDY: Duration = Duration::from_secs(10);
/// Probes at once.
pub(crate) const AT_ONCE: usize = 32;

/// The prober of this replica.
#[derive(Debug)]
pub(crate) struct Prober {
    store: Store,
    worlds: Worlds,
    clients: Clients,
    wake: Notify,
    limit: Duration,
    rules: Mutex<Option<(i64, Rules)>>,
    tidied: Mutex<Option<Instant>>,
}

impl Prober {
    /// Probes what `store` says is due, as `worlds` describes it.
    pub(crate) fn new(store: Store, worlds: Worlds) -> Arc<Self> {
        Self::with_limit(store, worlds, PROBE_LIMIT)
    }

    /// As [`new`](Self::new), with another limit for one probe.
    pub(crate) fn with_limit(store: Store, worlds: Worlds, limit: Duration) -> Arc<Self> {
        spareline_upstream::install_tls();
        let clients = Clients::new(ClientsConfig::default());
        Arc::new(Self {
            store,
            worlds,
            clients,
            wake: Notify::new(),
            limit,
            rules: Mutex::default(),
            tidied: Mutex::default(),
        })
    }

    /// Something is due now: a verdict to confirm, a threshold crossed.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Probes what falls due, until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        schedule::run(&self, stop).await;
    }

    /// Probes everything out by machine, or what is out of these channels, and answers when all of it is settled.
    ///
    /// With `dry_run` nothing is changed. What another replica is probing at the moment is waited for.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub(crate) async fn probe_channels(
        &self,
        channels: &[ChannelId],
        dry_run: bool,
    ) -> Result<admin::ProbeNowResponse, StoreError> {
        now::probe_now(self, channels, dry_run).await
    }

    /// Asks the provider about a key before it is stored: `Bad` for one that it rejects.
    ///
    /// `channel` is where it would be listed; nothing is written.
    pub(crate) async fn ask_about_key(&self, channel: &pb::Channel, secret: &Secret) -> ProbeOutcome {
        let Ok(spec) = convert::channel(channel) else {
            return ProbeOutcome::Inconclusive { reason: "the channel is not usable".into() };
        };
        let rules = self.worlds.current().map_or_else(Rules::builtin, |world| self.rules(&world));
        let subject = Subject::Credential(CredentialId(0));
        let question = judge::Question { subject: &subject, cause: Cause::Credential, with_key: true };
        let lines = plan::of_channel(Arc::new(spec), Some(secret.clone()));
        ask::ask(self, &question, &lines, &rules, &[]).await
    }

    /// Whether throttles that have ended are to be looked for again.
    fn tidy_is_due(&self) -> bool {
        let mut tidied = self.tidied.lock().unwrap_or_else(PoisonError::into_inner);
        let due = tidied.is_none_or(|at| at.elapsed() >= TIDY);
        if due {
            *tidied = Some(Instant::now());
        }
        due
    }

    /// The classifier's rules in force.
    fn rules(&self, world: &World) -> Rules {
        let Some(policy) = world.items.policy("") else { return Rules::builtin() };
        let mut cached = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, rules)) = cached.as_ref().filter(|(revision, _)| *revision == policy.revision) {
            return rules.clone();
        }
        // The admin API has checked them; what this build cannot use falls back to its own.
        let rules = Rules::with_operator(&policy.rules).unwrap_or_else(|_| Rules::builtin());
        *cached = Some((policy.revision, rules.clone()));
        rules
    }
}

#[tonic::async_trait]
impl Probing for Prober {
    async fn probe_now(&self, request: admin::ProbeNowRequest) -> Result<admin::ProbeNowResponse, Status> {
        let world = schedule::world(self).await.map_err(refuse::of_store)?;
        let mut channels = Vec::new();
        for name in &request.channels {
            // A name never begins with a digit.
            let by_id = name.parse().ok().map(ChannelId).filter(|id| world.items.channel(*id).is_some());
            let by_name = || world.items.channels().find(|(_, c)| c.name == *name).map(|(id, _)| id);
            let id = by_id.or_else(by_name).ok_or_else(|| {
                refuse::refused(Code::NotFound, "not_found", format!("channel {name} not found"))
            })?;
            channels.push(id);
        }
        let answer = self.probe_channels(&channels, request.dry_run).await;
        answer.map_err(refuse::of_store)
    }

    async fn verify(&self, channel: pb::Channel, secret: Secret) -> Verified {
        match self.ask_about_key(&channel, &secret).await {
            ProbeOutcome::Good | ProbeOutcome::Throttled { .. } => Verified::Good,
            ProbeOutcome::Bad { reason, .. } => Verified::Rejected(reason),
            ProbeOutcome::Inconclusive { reason } => Verified::Unknown(reason),
        }
    }
}
