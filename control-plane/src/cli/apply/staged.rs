//! `apply --rollout`: what differs becomes one rollout instead of many changes.

use std::io::Write;

use spareline_proto::admin::v1::{Change, CreateRolloutRequest, CreateRolloutResponse, Rollout, change};
use spareline_proto::registry::v1::Channel;

use super::{Run, signed};
use crate::cli::Failure;
use crate::cli::client::{Registry, refused};
use crate::cli::plan::{ChannelStep, Listed, Plan};

impl Run {
    /// Starts the rollout, or says whom it would reach.
    pub(super) async fn stage(
        mut self,
        plan: Plan,
        mut rollout: Rollout,
        prune: bool,
        dry_run: bool,
        registry: &Registry,
        out: &mut (dyn Write + Send),
    ) -> Result<(), Failure> {
        rollout.changes = self.changes(plan, prune, dry_run, registry).await?;
        if rollout.changes.is_empty() {
            writeln!(out, "nothing to roll out: the registry matches")?;
            return Ok(());
        }
        let stages = rollout.stages.clone();
        let request = CreateRolloutRequest {
            rollout: Some(rollout),
            request_id: uuid::Uuid::now_v7().to_string(),
            validate_only: dry_run,
        };
        let answer = self
            .client
            .rollouts
            .create_rollout(signed(request))
            .await
            .map_err(refused("start the rollout"))?;
        let CreateRolloutResponse { rollout, reach, .. } = answer.into_inner();
        for (i, (stage, reach)) in stages.iter().zip(&reach).enumerate() {
            let (n, all) = (reach.proxies, reach.eligible);
            writeln!(out, "stage {i}, {} %: {n} of {all} proxies connected now", stage.percent)?;
        }
        if dry_run {
            writeln!(out, "dry run: nothing was changed")?;
        } else {
            let rollout = rollout.unwrap_or_default();
            writeln!(out, "rollout {} started (etag {})", rollout.rollout_id, rollout.etag)?;
        }
        Ok(())
    }
    /// What differs, as changes. New credentials are stored on the way, without use, but for a dry run.
    async fn changes(
        &mut self,
        plan: Plan,
        prune: bool,
        dry_run: bool,
        registry: &Registry,
    ) -> Result<Vec<Change>, Failure> {
        let mut changes = Vec::new();
        for step in plan.channels {
            let ids = if dry_run {
                step.credentials.iter().filter_map(Listed::id).collect()
            } else {
                self.stored_beside_any(&step, registry).await?
            };
            changes.push(if step.current.is_some() {
                let update = step.update(ids);
                Change { kind: update.channel.map(change::Kind::Upsert), update_mask: update.update_mask }
            } else {
                let channel = Channel { credential_ids: ids, ..step.wanted };
                Change { kind: Some(change::Kind::Upsert(channel)), update_mask: None }
            });
        }
        for step in plan.policies {
            let update = step.request();
            let kind = update.policy.map(change::Kind::UpsertPolicy);
            changes.push(Change { kind, update_mask: update.update_mask });
        }
        if prune {
            if let Some(policy) = plan.extra_policies.first() {
                let why = format!(
                    "the policy of group {} cannot be removed by a rollout: apply without it",
                    policy.group
                );
                return Err(Failure::Usage(why));
            }
            let gone = plan.extra_channels.into_iter().map(|c| Change {
                kind: Some(change::Kind::DeleteChannel(c.channel_id.to_string())),
                update_mask: None,
            });
            changes.extend(gone);
        }
        Ok(changes)
    }

    /// The ids of a step's credentials, new ones stored first. Any channel will do to store them beside: they belong to nobody
    /// yet.
    async fn stored_beside_any(
        &mut self,
        step: &ChannelStep,
        registry: &Registry,
    ) -> Result<Vec<i64>, Failure> {
        let beside = step.current.as_ref().or_else(|| registry.channels.values().next());
        let new = step.credentials.iter().any(|l| matches!(l, Listed::New(_)));
        if new && beside.is_none() {
            let why = "the registry has no channel yet: make the first one without --rollout";
            return Err(Failure::Usage(why.to_owned()));
        }
        let beside = beside.map(|c| c.channel_id.to_string()).unwrap_or_default();
        let what = format!("store the credentials of channel `{}`", step.wanted.name);
        self.stored(step, &beside, &what).await
    }
}
