//! `RolloutService`: staged changes, their progress, and the way back.
//!
//! What a request says by itself is checked here; whether the registry takes it, and who may do what meanwhile, is the store's.

mod checks;
mod draft;
mod message;

use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, stream};
use spareline_proto::admin::v1::rollout_service_server::{RolloutService, RolloutServiceServer};
use spareline_proto::admin::v1::*;
use spareline_proto::registry::v1 as pb;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{Answer, actor, channel_key, check_comment, page, request_id, violations_of_channel};
use crate::refuse::{Refusal, Violations, invalid_field, of_store};
use crate::rollout::step::{Action, step};
use crate::store::{RolloutRow, Store, Tx, Work, Written};

/// How often a watched rollout is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct Rollouts {
    store: Store,
    stop: CancellationToken,
}

impl Rollouts {
    /// Over one store. Streams end at `stop`.
    pub(crate) fn new(store: Store, stop: CancellationToken) -> Self {
        Self { store, stop }
    }

    /// To be mounted.
    pub(crate) fn into_server(self) -> RolloutServiceServer<Self> {
        RolloutServiceServer::new(self)
    }

    /// As callers see it, with its progress.
    async fn shown(&self, row: &RolloutRow) -> Result<Rollout, Status> {
        if !row.lasts() {
            return Ok(message::rollout(row));
        }
        let (evidence, now) = self.store.rollout_evidence(row).await.map_err(of_store)?;
        let waiting_for = match step(&row.standing(), &evidence, now) {
            Action::Hold(waiting) => waiting,
            Action::Pause(why) => vec![format!("being paused: {why}")],
            Action::Advance | Action::Finish => vec!["the controller: every condition is met".to_owned()],
        };
        Ok(Rollout { counts: Some(message::counts(&evidence)), waiting_for, ..message::rollout(row) })
    }

    /// Changes one rollout and answers with it.
    async fn change(
        &self,
        actor: &str,
        work: impl for<'t> FnOnce(&'t mut Tx) -> Work<'t, RolloutRow, Refusal> + Send,
    ) -> Result<Option<Rollout>, Status> {
        let written: Written<RolloutRow> = self.store.write(actor, work).await.map_err(Status::from)?;
        self.shown(&written.value).await.map(Some)
    }
}

type Watching = Pin<Box<dyn Stream<Item = Result<WatchRolloutResponse, Status>> + Send>>;

#[tonic::async_trait]
impl RolloutService for Rollouts {
    async fn create_rollout(&self, request: Request<CreateRolloutRequest>) -> Answer<CreateRolloutResponse> {
        let actor = actor(request.metadata());
        self.create(&actor, request.into_inner()).await.map(Response::new)
    }

    async fn get_rollout(&self, request: Request<GetRolloutRequest>) -> Answer<GetRolloutResponse> {
        let id = checks::id(&request.into_inner().rollout_id)?;
        let row = self.store.rollout(id).await.map_err(of_store)?;
        Ok(Response::new(GetRolloutResponse { rollout: Some(self.shown(&row).await?) }))
    }

    async fn list_rollouts(&self, request: Request<ListRolloutsRequest>) -> Answer<ListRolloutsResponse> {
        let request = request.into_inner();
        let size = page::size(request.page_size, page::SPECS)?;
        let state = checks::state(&request.filter)?;
        let mut violations = Violations::default();
        let question = request.filter.as_bytes();
        let after = page::open(&request.page_token, "rollouts", question, &mut violations);
        violations.done()?;
        let found = self.store.rollouts(state, size, after).await.map_err(of_store)?;
        let mut rollouts = Vec::with_capacity(found.items.len());
        for row in &found.items {
            rollouts.push(self.shown(row).await?);
        }
        let next_page_token = page::seal(&found.next_page_token, "rollouts", question);
        Ok(Response::new(ListRolloutsResponse { rollouts, next_page_token }))
    }

    type WatchRolloutStream = Watching;

    async fn watch_rollout(&self, request: Request<WatchRolloutRequest>) -> Answer<Watching> {
        let id = checks::id(&request.into_inner().rollout_id)?;
        self.store.rollout(id).await.map_err(of_store)?;
        let watched = Watched { rollouts: self.clone(), id, last: None, over: false };
        Ok(Response::new(Box::pin(stream::unfold(watched, Watched::next))))
    }

    async fn advance_rollout(
        &self,
        request: Request<AdvanceRolloutRequest>,
    ) -> Answer<AdvanceRolloutResponse> {
        let actor = actor(request.metadata());
        let AdvanceRolloutRequest { rollout_id, etag, comment } = request.into_inner();
        let id = checks::id(&rollout_id)?;
        let mut violations = Violations::default();
        if etag.is_empty() {
            violations.add("etag", "is required: the rollout's, so that it moves on once");
        }
        check_comment(&comment, &mut violations);
        violations.done()?;
        let rollout = self
            .change(&actor, |tx| Box::pin(async move { Ok(tx.advance_rollout(id, &etag, &comment).await?) }))
            .await?;
        Ok(Response::new(AdvanceRolloutResponse { rollout }))
    }

    async fn pause_rollout(&self, request: Request<PauseRolloutRequest>) -> Answer<PauseRolloutResponse> {
        let actor = actor(request.metadata());
        let PauseRolloutRequest { rollout_id, comment } = request.into_inner();
        let id = checks::commented(&rollout_id, &comment)?;
        let why = if comment.is_empty() { format!("paused by {actor}") } else { comment };
        let rollout =
            self.change(&actor, |tx| Box::pin(async move { Ok(tx.pause_rollout(id, &why).await?) })).await?;
        Ok(Response::new(PauseRolloutResponse { rollout }))
    }

    async fn resume_rollout(&self, request: Request<ResumeRolloutRequest>) -> Answer<ResumeRolloutResponse> {
        let actor = actor(request.metadata());
        let ResumeRolloutRequest { rollout_id, comment } = request.into_inner();
        let id = checks::commented(&rollout_id, &comment)?;
        let rollout = self
            .change(&actor, |tx| Box::pin(async move { Ok(tx.resume_rollout(id, &comment).await?) }))
            .await?;
        Ok(Response::new(ResumeRolloutResponse { rollout }))
    }

    async fn abort_rollout(&self, request: Request<AbortRolloutRequest>) -> Answer<AbortRolloutResponse> {
        let actor = actor(request.metadata());
        let AbortRolloutRequest { rollout_id, comment } = request.into_inner();
        let id = checks::commented(&rollout_id, &comment)?;
        let rollout = self
            .change(&actor, |tx| Box::pin(async move { Ok(tx.abort_rollout(id, &comment).await?) }))
            .await?;
        Ok(Response::new(AbortRolloutResponse { rollout }))
    }

    async fn rollback_channel(
        &self,
        request: Request<RollbackChannelRequest>,
    ) -> Answer<RollbackChannelResponse> {
        let actor = actor(request.metadata());
        let RollbackChannelRequest { channel, spec_revision, comment, etag, validate_only } =
            request.into_inner();
        let mut violations = Violations::default();
        let key = channel_key("channel", &channel, &mut violations);
        if spec_revision <= 0 {
            violations.add("spec_revision", "is required: the revision of an earlier spec");
        }
        check_comment(&comment, &mut violations);
        violations.done()?;
        let written: Result<Written<pb::Channel>, Refusal> = self
            .store
            .write(&actor, |tx| {
                Box::pin(async move {
                    if validate_only {
                        tx.dry_run();
                    }
                    let mut next = tx.earlier_spec(&key, spec_revision).await?;
                    // A rule may have become stricter since.
                    let mut violations = Violations::default();
                    violations.extend("channel", violations_of_channel(&next));
                    violations.done()?;
                    next.etag = etag;
                    Ok(tx.roll_back_channel(next, spec_revision, &comment).await?)
                })
            })
            .await;
        let written = written.map_err(Status::from)?;
        Ok(Response::new(RollbackChannelResponse { channel: Some(written.value) }))
    }

    async fn list_channel_specs(
        &self,
        request: Request<ListChannelSpecsRequest>,
    ) -> Answer<ListChannelSpecsResponse> {
        let request = request.into_inner();
        let mut violations = Violations::default();
        let key = channel_key("channel", &request.channel, &mut violations);
        let question = request.channel.as_bytes();
        let after = page::open(&request.page_token, "specs", question, &mut violations);
        violations.done()?;
        let size = page::size(request.page_size, page::SPECS)?;
        let found = self.store.channel_specs(&key, size, after).await.map_err(of_store)?;
        let next_page_token = page::seal(&found.next_page_token, "specs", question);
        let specs = found.items.into_iter().map(message::spec).collect();
        Ok(Response::new(ListChannelSpecsResponse { specs, next_page_token }))
    }
}

/// A rollout that somebody follows.
struct Watched {
    rollouts: Rollouts,
    id: i64,
    last: Option<Rollout>,
    over: bool,
}

impl Watched {
    /// The next state that differs from the last one told.
    async fn next(mut self) -> Option<(Result<WatchRolloutResponse, Status>, Self)> {
        if self.over {
            return None;
        }
        loop {
            let found = async {
                let row = self.rollouts.store.rollout(self.id).await.map_err(of_store)?;
                Ok((row.lasts(), self.rollouts.shown(&row).await?))
            };
            match found.await {
                Ok((lasts, rollout)) => {
                    self.over = !lasts;
                    if self.last.as_ref() != Some(&rollout) {
                        self.last = Some(rollout.clone());
                        return Some((Ok(WatchRolloutResponse { rollout: Some(rollout) }), self));
                    }
                    if self.over {
                        return None;
                    }
                }
                Err(status) => {
                    self.over = true;
                    return Some((Err(status), self));
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.rollouts.stop.cancelled() => {
                    self.over = true;
                    return Some((Err(Status::unavailable("shutting down")), self));
                }
            }
        }
    }
}
