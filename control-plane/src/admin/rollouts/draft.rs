//! `CreateRollout`: resolves each change against the registry, and says what it does and for whom.

use prost_reflect::ReflectMessage as _;
use prost_types::FieldMask;
use spareline_proto::admin::v1::*;
use spareline_proto::registry::v1 as pb;
use tonic::Status;

use super::super::{channels, mask, policies, violations_of_policy, violations_of_written};
use super::{Refusal, Rollouts, Violations, checks, invalid_field, message, of_store, request_id};
use crate::reflect::{self, Named, NotDescribed};
use crate::rollout::cohort;
use crate::store::{ChannelKey, NewChange, Request, RolloutRow, StoreError, Tx, Written};

/// Most proxies that are named.
const NAMED: usize = 20;

impl Rollouts {
    pub(super) async fn create(
        &self,
        actor: &str,
        request: CreateRolloutRequest,
    ) -> Result<CreateRolloutResponse, Status> {
        let body = prost::Message::encode_to_vec(&CreateRolloutRequest {
            request_id: String::new(),
            ..request.clone()
        });
        let CreateRolloutRequest { rollout, request_id: id, validate_only } = request;
        let mut violations = Violations::default();
        let id = request_id(&id, &mut violations);
        let Some(draft) = rollout else { return Err(invalid_field("rollout", "is required")) };
        checks::draft(&draft, &mut violations);
        violations.done()?;
        if validate_only {
            let written: Result<Written<(RolloutRow, Vec<ChangeEffect>)>, Refusal> = self
                .store
                .write(actor, |tx| {
                    Box::pin(async move {
                        tx.dry_run();
                        store(tx, draft).await
                    })
                })
                .await;
            let (row, effects) = written.map_err(Status::from)?.value;
            return self.dry(&row, effects).await;
        }
        let request = id.map(|id| Request { id, method: "CreateRollout", body: &body });
        let written: Result<Written<CreateRolloutResponse>, Refusal> = self
            .store
            .write_once(actor, request, |tx| {
                Box::pin(async move {
                    let (row, effects) = store(tx, draft).await?;
                    let rollout = Some(message::rollout(&row));
                    Ok(CreateRolloutResponse { rollout, effects, reach: Vec::new() })
                })
            })
            .await;
        let written = written.map_err(Status::from)?;
        let mut answer = written.value;
        if written.changed
            && let Some(id) = answer.rollout.as_ref().and_then(|r| r.rollout_id.parse().ok())
        {
            let row = self.store.rollout(id).await.map_err(of_store)?;
            answer.rollout = Some(self.shown(&row).await?);
            answer.reach = self.reach(&row, true).await?;
        }
        Ok(answer)
    }

    /// What would be stored; the ids that it would have got do not exist.
    async fn dry(
        &self,
        row: &RolloutRow,
        effects: Vec<ChangeEffect>,
    ) -> Result<CreateRolloutResponse, Status> {
        let mut rollout = message::rollout(row);
        (rollout.rollout_id, rollout.etag) = (String::new(), String::new());
        for change in &mut rollout.changes {
            match &mut change.kind {
                Some(change::Kind::Upsert(channel)) => {
                    if effects.iter().any(|e| e.channel == channel.name && e.action == "create") {
                        channel.channel_id = 0;
                    }
                    (channel.spec_revision, channel.etag) = (0, String::new());
                }
                Some(change::Kind::UpsertPolicy(policy)) => {
                    (policy.revision, policy.etag) = (0, String::new());
                }
                _ => {}
            }
        }
        let reach = self.reach(row, false).await?;
        Ok(CreateRolloutResponse { rollout: Some(rollout), effects, reach })
    }

    /// Whom each stage reaches, of the proxies connected now. Without an id there is no hash: the numbers are expected ones.
    async fn reach(&self, row: &RolloutRow, exact: bool) -> Result<Vec<StageReach>, Status> {
        let eligible = self.store.eligible(row).await.map_err(of_store)?;
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        let mut within = std::collections::BTreeSet::new();
        let mut most = 0;
        let reach = row.stages.iter().zip(eligible).map(|(stage, ids)| {
            let points = cohort::at_least_one(row.rollout_id, stage.percent, ids.iter().map(String::as_str));
            let reached = ids.iter().filter(|id| cohort::point(row.rollout_id, id) < points);
            within.extend(reached.cloned());
            let share = usize::try_from(stage.percent.max(0)).unwrap_or(0) * ids.len();
            let expected = if share == 0 { 0 } else { (share / 100).max(1) };
            most = expected.max(most);
            StageReach {
                eligible: number(ids.len()),
                proxies: number(if exact { within.len() } else { most }),
                eligible_proxy_ids: ids.into_iter().take(NAMED).collect(),
            }
        });
        Ok(reach.collect())
    }
}

async fn store(tx: &mut Tx, draft: Rollout) -> Result<(RolloutRow, Vec<ChangeEffect>), Refusal> {
    let mut violations = Violations::default();
    let (mut changes, mut effects) = (Vec::new(), Vec::new());
    let mut named = std::collections::BTreeSet::new();
    for (i, change) in draft.changes.into_iter().enumerate() {
        let field = format!("rollout.changes[{i}]");
        let Some((change, effect)) = resolve(tx, &field, change, &mut violations).await? else { continue };
        if !named.insert((effect.channel.clone(), effect.policy_group.clone())) {
            violations.add(field, "is about what another change is about");
        }
        changes.push(change);
        effects.push(effect);
    }
    violations.done()?;
    let row = tx.create_rollout(&draft.description, &draft.comment, &draft.stages, changes).await?;
    Ok((row, effects))
}

/// A change as it is to be stored, and what it does; `None` where it is wrong.
type Resolved = Option<(NewChange, ChangeEffect)>;

/// One change, whole.
async fn resolve(
    tx: &mut Tx,
    field: &str,
    change: Change,
    violations: &mut Violations,
) -> Result<Resolved, Refusal> {
    let mask = change.update_mask.filter(|m| !m.paths.is_empty());
    match change.kind {
        None => Ok(None),
        Some(change::Kind::DeleteChannel(name)) => {
            let current = tx.channel(&name.as_str().into()).await?;
            let effect = effect(&current.name, "delete", Vec::new());
            Ok(Some((NewChange::Delete(Box::new(current)), effect)))
        }
        Some(change::Kind::Upsert(wanted)) => channel(tx, field, wanted, mask.as_ref(), violations).await,
        Some(change::Kind::UpsertPolicy(wanted)) => {
            policy(tx, field, wanted, mask.as_ref(), violations).await
        }
    }
}

async fn channel(
    tx: &mut Tx,
    field: &str,
    wanted: pb::Channel,
    mask: Option<&FieldMask>,
    violations: &mut Violations,
) -> Result<Resolved, Refusal> {
    let key = match wanted.channel_id {
        id @ 1.. => ChannelKey::Id(id),
        _ => ChannelKey::Name(wanted.name.clone()),
    };
    let current = match tx.channel(&key).await {
        Ok(current) => Some(current),
        Err(StoreError::NotFound(_)) if wanted.channel_id <= 0 => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(current) = &current
        && !wanted.etag.is_empty()
        && wanted.etag != current.etag
    {
        return Err(StoreError::Conflict(format!("channel {:?}", current.name)).into());
    }
    let mut found = Violations::default();
    let next = match (&current, mask) {
        (Some(current), Some(mask)) => {
            mask::apply(current, &wanted, Some(mask), channels::FIXED, &mut found)?
        }
        (None, Some(_)) => {
            let problem = format!("there is no channel {:?}: to make it, leave out update_mask", wanted.name);
            violations.add(format!("{field}.upsert.name"), problem);
            return Ok(None);
        }
        (Some(current), None) => {
            // Whoever writes a spec by hand means the keys it has.
            let keep = wanted.credential_ids.is_empty();
            let ids = if keep { current.credential_ids.clone() } else { wanted.credential_ids.clone() };
            let name = if wanted.name.is_empty() { current.name.clone() } else { wanted.name.clone() };
            pb::Channel { name, credential_ids: ids, channel_id: current.channel_id, ..wanted }
        }
        (None, None) => wanted,
    };
    if violations.take(field, found) {
        return Ok(None);
    }
    let next = channels::filled_in(next);
    violations.extend(&format!("{field}.upsert"), violations_of_written(&next, current.as_ref()));
    let fields = differences(current.as_ref(), &next, channels::FIXED)?;
    let effect = effect(&next.name, if current.is_some() { "update" } else { "create" }, fields);
    Ok(Some((NewChange::Upsert { current: current.map(Box::new), next: Box::new(next) }, effect)))
}

async fn policy(
    tx: &mut Tx,
    field: &str,
    wanted: pb::Policy,
    mask: Option<&FieldMask>,
    violations: &mut Violations,
) -> Result<Resolved, Refusal> {
    let current = tx.policy(&wanted.group).await?;
    if !wanted.etag.is_empty() && current.as_ref().is_none_or(|c| c.etag != wanted.etag) {
        return Err(StoreError::Conflict(format!("the policy of group {:?}", wanted.group)).into());
    }
    let mut found = Violations::default();
    let mut next = match mask {
        Some(mask) => {
            let current = current.clone().unwrap_or_default();
            mask::apply(&current, &wanted, Some(mask), policies::FIXED, &mut found)?
        }
        None => wanted.clone(),
    };
    if violations.take(field, found) {
        return Ok(None);
    }
    next.group.clone_from(&wanted.group);
    violations.extend(&format!("{field}.upsert_policy"), violations_of_policy(&next));
    let fields = differences(current.as_ref(), &next, policies::FIXED)?;
    let action = if current.is_some() { "update" } else { "create" };
    let effect = ChangeEffect { policy_group: Some(next.group.clone()), ..effect("", action, fields) };
    Ok(Some((NewChange::Policy(Box::new(next)), effect)))
}

fn effect(channel: &str, action: &str, fields: Vec<String>) -> ChangeEffect {
    ChangeEffect { channel: channel.to_owned(), policy_group: None, action: action.to_owned(), fields }
}

/// The names of the fields that differ.
fn differences<M: Named>(current: Option<&M>, next: &M, fixed: &[&str]) -> Result<Vec<String>, NotDescribed> {
    let before = current.map(reflect::to_tree).transpose()?;
    let after = reflect::to_tree(next)?;
    let differs = |field: &prost_reflect::FieldDescriptor| match &before {
        None => after.has_field(field),
        Some(before) => {
            before.has_field(field) != after.has_field(field)
                || before.get_field(field) != after.get_field(field)
        }
    };
    let described = after.descriptor();
    let fields = described.fields().filter(|f| !fixed.contains(&f.name()) && differs(f));
    Ok(fields.map(|f| f.name().to_owned()).collect())
}
