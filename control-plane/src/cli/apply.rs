//! `apply`: makes the registry match a file, through the same API as everybody else.
//!
//! The file is checked whole first, by us and by the control plane (`validate_only`): a file with a mistake changes nothing.
//! Then the differences are shown, then made, one channel at a time, each in one piece. Stopped half-way, run it again.

mod shares;
mod staged;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use spareline_proto::admin::v1::{
    CreateChannelRequest, DeleteChannelRequest, DeletePolicyRequest, RotateCredentialRequest,
    UpdateChannelRequest,
};
use spareline_proto::registry::v1::Channel;
use tonic::Request;

use super::Failure;
use super::client::{Client, Registry, refused};
use super::diff::{self, Diff};
use super::file::{Problem, Problems, RegistryFile, RolloutFile};
use super::plan::{ChannelStep, Listed, Plan, account, plan};
use super::secrets::{self, Held};

/// What to apply, and how.
pub struct Apply<'a> {
    /// The file; `None`: the rollout's file holds the changes.
    pub file: Option<PathBuf>,
    /// How to stage the changes; `None`: make them at once.
    pub rollout: Option<PathBuf>,
    /// The control plane's admin API.
    pub admin: String,
    /// Show, change nothing.
    pub dry_run: bool,
    /// Whether to remove what the file does not name.
    pub prune: Prune,
    /// Where `secret_env` is looked up.
    pub environment: &'a (dyn Fn(&str) -> Option<String> + Sync),
}

/// What is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Nothing.
    Nothing,
    /// What the file does not name, but never all there is: an empty list is more likely a mistake.
    Some,
    /// What the file does not name.
    All,
}

/// Applies a file; what differs is written to `out`.
///
/// # Errors
/// See [`Failure`]; after a [`Failure::Refused`] some changes may have been made, each whole.
pub async fn apply(what: Apply<'_>, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let (rollout, inside) = match &what.rollout {
        Some(path) => {
            let (read, problems) = opened(path, RolloutFile::read)?;
            (Some(read.rollout), read.registry.map(|registry| (path, registry, problems)))
        }
        None => (None, None),
    };
    let (path, file, mut problems) = match (&what.file, inside) {
        (Some(path), None) => {
            let (file, problems) = opened(path, RegistryFile::read)?;
            (path, file, problems)
        }
        (None, Some(inside)) => inside,
        (Some(_), Some((path, ..))) => {
            let why = format!("{} holds changes itself: leave out the other file", path.display());
            return Err(Failure::Usage(why));
        }
        (None, None) => {
            return Err(Failure::Usage(
                "which changes? name a file, or put them into the rollout's".to_owned(),
            ));
        }
    };
    let name = path.display().to_string();
    let wrong = |problems: Vec<Problem>| mistakes(&name, &problems);
    let held = secrets::read(&file, what.environment, &mut problems);
    if !problems.list.is_empty() {
        return Err(wrong(problems.list));
    }
    let mut client = Client::connect(&what.admin).await?;
    let mut registry = client.registry().await?;
    client.fingerprints(&mut registry).await?;
    let plan = plan(&mut client, &file, &held, &registry, &mut problems).await?;
    if !problems.list.is_empty() {
        problems.list.sort();
        return Err(wrong(problems.list));
    }
    let prune = what.prune != Prune::Nothing;
    show(&plan, &registry, prune, out)?;
    if what.prune == Prune::Some {
        spare_the_last(&file, &plan)?;
    }
    if what.dry_run {
        shares::show(&plan, &registry, prune, out)?;
    }
    let run = Run { client, held, made: BTreeMap::new() };
    if let Some(rollout) = rollout {
        return run.stage(plan, rollout, prune, what.dry_run, &registry, out).await;
    }
    if what.dry_run {
        writeln!(out, "dry run: nothing was changed")?;
        return Ok(());
    }
    run.carry_out(plan, prune).await
}

/// Refuses to remove all there is.
fn spare_the_last(file: &RegistryFile, plan: &Plan) -> Result<(), Failure> {
    let all = [
        ("channel", file.channels.as_ref().is_some_and(Vec::is_empty), plan.extra_channels.len()),
        ("policy", file.policies.as_ref().is_some_and(Vec::is_empty), plan.extra_policies.len()),
    ];
    for (what, empty, extra) in all {
        if empty && extra > 0 {
            return Err(Failure::Usage(format!(
                "the file names no {what}, so that --prune would remove all there are ({extra}): nothing was changed; \
                 --prune-all does it"
            )));
        }
    }
    Ok(())
}

/// Reads a file.
fn opened<T>(
    path: &Path,
    read: impl Fn(&str, &Path) -> Result<(T, Problems), Vec<Problem>>,
) -> Result<(T, Problems), Failure> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|why| Failure::File {
        name: name.clone(),
        problems: vec![format!("cannot be read: {why}")],
    })?;
    read(&text, path.parent().unwrap_or(Path::new("."))).map_err(|problems| mistakes(&name, &problems))
}

fn mistakes(name: &str, problems: &[Problem]) -> Failure {
    Failure::File { name: name.to_owned(), problems: problems.iter().map(ToString::to_string).collect() }
}

/// Prints what differs.
fn show(plan: &Plan, registry: &Registry, prune: bool, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let (mut created, mut changed, mut deleted) = (0, 0, 0);
    for step in &plan.channels {
        let credentials = |c: &Channel| listed_ids(&c.credential_ids, registry);
        let wanted = listed_names(step, registry);
        if let Some(current) = &step.current {
            changed += 1;
            writeln!(out, "~ channel {}", step.wanted.name)?;
            changes(&step.diff, out)?;
            if step.relists {
                writeln!(out, "    credentials: {} -> {wanted}", credentials(current))?;
            }
        } else {
            created += 1;
            writeln!(out, "+ channel {}", step.wanted.name)?;
            let fields = diff::block(&Channel { name: String::new(), ..step.wanted.clone() }, 4)?;
            write!(out, "{fields}")?;
            if !step.names.is_empty() {
                writeln!(out, "    credentials: {wanted}")?;
            }
        }
    }
    for step in &plan.policies {
        let sign = if step.current.is_some() { '~' } else { '+' };
        *(if step.current.is_some() { &mut changed } else { &mut created }) += 1;
        writeln!(out, "{sign} policy {}", group(&step.wanted.group))?;
        changes(&step.diff, out)?;
    }
    let extra = plan.extra_channels.iter().map(|c| format!("channel {}", c.name));
    let extra = extra.chain(plan.extra_policies.iter().map(|p| format!("policy {}", group(&p.group))));
    for item in extra {
        if prune {
            deleted += 1;
            writeln!(out, "- {item}")?;
        } else {
            writeln!(out, "  {item} is not in the file and stays (--prune removes it)")?;
        }
    }
    let unchanged = plan.unchanged;
    writeln!(out, "{created} to create, {changed} to change, {deleted} to delete, {unchanged} unchanged")?;
    Ok(())
}

fn changes(diff: &Diff, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    for change in &diff.changes {
        let text = |side: &Option<String>| side.clone().unwrap_or_else(|| "(unset)".to_owned());
        writeln!(out, "    {}: {} -> {}", change.path, text(&change.old), text(&change.new))?;
    }
    Ok(())
}

fn group(name: &str) -> String {
    if name.is_empty() { "for all groups".to_owned() } else { format!("of group {name}") }
}

fn listed_ids(ids: &[i64], registry: &Registry) -> String {
    let names: Vec<String> = ids.iter().map(|id| shown_id(*id, registry)).collect();
    format!("[{}]", names.join(", "))
}

fn listed_names(step: &ChannelStep, registry: &Registry) -> String {
    let shown = |(listed, name): (&Listed, &String)| match listed {
        Listed::Known(id) => format!("{name} ({})", shown_id(*id, registry)),
        Listed::New(_) => format!("{name} (new)"),
    };
    let names: Vec<String> = step.credentials.iter().zip(&step.names).map(shown).collect();
    format!("[{}]", names.join(", "))
}

fn shown_id(id: i64, registry: &Registry) -> String {
    registry.fingerprints.get(&id).map_or_else(|| format!("#{id}"), |print| format!("#{id} {print}"))
}

/// Makes the changes.
struct Run {
    client: Client,
    held: BTreeMap<String, Held>,
    /// Credentials stored in this run, by name, provider, host and port: one may serve several channels of the same.
    made: BTreeMap<(String, String, String), i64>,
}

impl Run {
    async fn carry_out(mut self, plan: Plan, prune: bool) -> Result<(), Failure> {
        // A credential that no channel lists is retired by the control plane: who gives one up comes after who takes it over.
        let (later, first): (Vec<_>, Vec<_>) =
            plan.channels.into_iter().partition(|s| !s.dropped().is_empty());
        for step in first.into_iter().chain(later) {
            if step.current.is_some() { self.change(&step).await? } else { self.create(&step).await? }
        }
        for step in plan.policies {
            let what = format!("change the policy {}", group(&step.wanted.group));
            self.client.policies.update_policy(signed(step.request())).await.map_err(refused(&what))?;
        }
        if !prune {
            return Ok(());
        }
        for Channel { channel_id, name, etag, .. } in plan.extra_channels {
            let request = DeleteChannelRequest { channel: channel_id.to_string(), etag, allow_missing: true };
            let what = format!("delete channel `{name}`");
            self.client.channels.delete_channel(signed(request)).await.map_err(refused(&what))?;
        }
        for policy in plan.extra_policies {
            let what = format!("delete the policy {}", group(&policy.group));
            let request = DeletePolicyRequest { group: policy.group };
            self.client.policies.delete_policy(signed(request)).await.map_err(refused(&what))?;
        }
        Ok(())
    }

    async fn create(&mut self, step: &ChannelStep) -> Result<(), Failure> {
        let mut known = Vec::new();
        let mut new = Vec::new();
        for listed in &step.credentials {
            match self.known(step, listed) {
                Some(id) => known.push(id),
                None => new.extend(if let Listed::New(name) = listed { Some(name.clone()) } else { None }),
            }
        }
        let request = CreateChannelRequest {
            channel: Some(Channel { credential_ids: known.clone(), ..step.wanted.clone() }),
            secrets: new.iter().filter_map(|name| self.secret(name)).collect(),
            request_id: uuid::Uuid::now_v7().to_string(),
            validate_only: false,
        };
        let what = format!("create channel `{}`", step.wanted.name);
        let answer = self.client.channels.create_channel(signed(request)).await.map_err(refused(&what))?;
        let created = answer.into_inner().channel.unwrap_or_default();
        for (name, id) in new.iter().zip(created.credential_ids.iter().skip(known.len())) {
            self.made.insert(key(step, name), *id);
        }
        let ids: Vec<i64> = step.credentials.iter().filter_map(|listed| self.known(step, listed)).collect();
        if ids != created.credential_ids {
            let request = UpdateChannelRequest {
                channel: Some(Channel { credential_ids: ids, ..created }),
                update_mask: Some(prost_types::FieldMask { paths: vec!["credential_ids".to_owned()] }),
                validate_only: false,
            };
            self.client.channels.update_channel(signed(request)).await.map_err(refused(&what))?;
        }
        Ok(())
    }

    async fn change(&mut self, step: &ChannelStep) -> Result<(), Failure> {
        let what = format!("change channel `{}`", step.wanted.name);
        let beside = step.current.as_ref().map(|c| c.channel_id.to_string()).unwrap_or_default();
        let ids = self.stored(step, &beside, &what).await?;
        self.client.channels.update_channel(signed(step.update(ids))).await.map_err(refused(&what))?;
        Ok(())
    }

    /// The ids of a step's credentials; new ones are stored without use, beside a channel that exists.
    async fn stored(&mut self, step: &ChannelStep, beside: &str, what: &str) -> Result<Vec<i64>, Failure> {
        let mut ids = Vec::new();
        for listed in &step.credentials {
            if let Some(id) = self.known(step, listed) {
                ids.push(id);
                continue;
            }
            let Listed::New(name) = listed else { continue };
            // Stored without use; the change puts it into use together with everything else.
            let request = RotateCredentialRequest {
                channel: beside.to_owned(),
                secret: self.secret(name).unwrap_or_default(),
                request_id: uuid::Uuid::now_v7().to_string(),
                detached: true,
                ..RotateCredentialRequest::default()
            };
            let answer =
                self.client.channels.rotate_credential(signed(request)).await.map_err(refused(what))?;
            let id = answer.into_inner().credential.map(|c| c.credential_id).unwrap_or_default();
            self.made.insert(key(step, name), id);
            ids.push(id);
        }
        Ok(ids)
    }

    /// The id of a credential that exists by now.
    fn known(&self, step: &ChannelStep, listed: &Listed) -> Option<i64> {
        match listed {
            Listed::Known(id) => Some(*id),
            Listed::New(name) => self.made.get(&key(step, name)).copied(),
        }
    }

    fn secret(&self, name: &str) -> Option<String> {
        match self.held.get(name) {
            Some(Held::Secret(secret)) => Some(secret.expose().to_owned()),
            _ => None,
        }
    }
}

fn key(step: &ChannelStep, name: &str) -> (String, String, String) {
    let (provider, host) = account(&step.wanted);
    (name.to_owned(), provider, host)
}

/// Says in the audit log where a change came from.
fn signed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-spareline-actor", tonic::metadata::MetadataValue::from_static("apply"));
    request
}
