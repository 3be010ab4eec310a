//! What has to happen so that the registry matches a file: computed whole before anything is changed.

use std::collections::{BTreeMap, BTreeSet};

use spareline_proto::admin::v1::{
    AddCredentialRequest, CreateChannelRequest, UpdateChannelRequest, UpdatePolicyRequest,
};
use spareline_proto::registry::v1::{Channel, Policy};
use tonic::{Code, Status};

use super::client::{Client, Registry, refused};
use super::diff::{Diff, diff};
use super::file::{FileChannel, Problems, RegistryFile};
use super::secrets::Held;
use super::{Failure, violations};

/// A credential that a channel is to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// Stored: its id.
    Known(i64),
    /// To be stored: its name in the file.
    New(String),
}

impl Listed {
    /// The id of one that is stored.
    pub(super) fn id(&self) -> Option<i64> {
        if let Self::Known(id) = self { Some(*id) } else { None }
    }
}

/// One channel that differs.
#[derive(Debug)]
pub(super) struct ChannelStep {
    /// As it is; `None`: it does not exist.
    pub(super) current: Option<Channel>,
    /// As it is to be; `credential_ids` are not filled in.
    pub(super) wanted: Channel,
    /// Most preferred first.
    pub(super) credentials: Vec<Listed>,
    /// Names in the file, in the same order.
    pub(super) names: Vec<String>,
    /// What differs, credentials apart.
    pub(super) diff: Diff,
    /// Whether the list of credentials differs.
    pub(super) relists: bool,
}

/// One policy that differs.
#[derive(Debug)]
pub(super) struct PolicyStep {
    pub(super) current: Option<Policy>,
    pub(super) wanted: Policy,
    pub(super) diff: Diff,
}

/// Everything that has to happen.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) channels: Vec<ChannelStep>,
    pub(super) policies: Vec<PolicyStep>,
    /// In the registry, not in the file.
    pub(super) extra_channels: Vec<Channel>,
    /// In the registry, not in the file; the global one never.
    pub(super) extra_policies: Vec<Policy>,
    /// Channels and policies that match.
    pub(super) unchanged: usize,
}

/// Compares file and registry; asks the control plane which secrets it knows and whether it would take the changes.
///
/// # Errors
/// What the control plane refuses for good; what it finds wrong with the file goes to `problems`.
pub(super) async fn plan(
    client: &mut Client,
    file: &RegistryFile,
    held: &BTreeMap<String, Held>,
    registry: &Registry,
    problems: &mut Problems,
) -> Result<Plan, Failure> {
    let mut plan = Plan::default();
    for wanted in file.channels.iter().flatten() {
        let current = registry.channels.get(&wanted.channel.name);
        match current {
            None => plan.channels.push(create(client, wanted, held, problems).await?),
            Some(current) => match change(client, wanted, current, held, problems).await? {
                Some(step) => plan.channels.push(step),
                None => plan.unchanged += 1,
            },
        }
    }
    if let Some(wanted) = &file.channels {
        let named: BTreeSet<&str> = wanted.iter().map(|c| c.channel.name.as_str()).collect();
        let extra = registry.channels.values().filter(|c| !named.contains(c.name.as_str()));
        plan.extra_channels = extra.cloned().collect();
    }
    for wanted in file.policies.iter().flatten() {
        let current = registry.policies.get(&wanted.policy.group);
        let diff = diff(current.unwrap_or(&Policy::default()), &wanted.policy)?;
        // The group names a policy; it is not one of its changes. An empty one still has to be made.
        let diff = Diff {
            changes: diff.changes.into_iter().filter(|c| c.path != "group").collect(),
            mask: diff.mask.into_iter().filter(|f| f != "group").collect(),
        };
        if diff.mask.is_empty() {
            plan.unchanged += 1;
            continue;
        }
        let step = PolicyStep { current: current.cloned(), wanted: wanted.policy.clone(), diff };
        let request = UpdatePolicyRequest { validate_only: true, ..step.request() };
        if let Err(status) = client.policies.update_policy(request).await {
            objection(
                status,
                &wanted.path,
                "policy.",
                &format!("check policy `{}`", wanted.policy.group),
                problems,
            )?;
        }
        plan.policies.push(step);
    }
    if let Some(wanted) = &file.policies {
        let named: BTreeSet<&str> = wanted.iter().map(|p| p.policy.group.as_str()).collect();
        let extra =
            registry.policies.values().filter(|p| !p.group.is_empty() && !named.contains(p.group.as_str()));
        plan.extra_policies = extra.cloned().collect();
    }
    Ok(plan)
}

async fn create(
    client: &mut Client,
    wanted: &FileChannel,
    held: &BTreeMap<String, Held>,
    problems: &mut Problems,
) -> Result<ChannelStep, Failure> {
    let mut secrets = Vec::new();
    let mut stored = Vec::new();
    for name in &wanted.credentials {
        match held.get(name) {
            Some(Held::Secret(secret)) => secrets.push(secret.expose().to_owned()),
            Some(Held::Stored(id)) => stored.push(*id),
            None => {}
        }
    }
    let request = CreateChannelRequest {
        channel: Some(Channel { credential_ids: stored, ..wanted.channel.clone() }),
        secrets,
        validate_only: true,
        ..CreateChannelRequest::default()
    };
    let mut equal = Vec::new();
    match client.channels.create_channel(request).await {
        Ok(answer) => equal = answer.into_inner().equal_credential_ids,
        Err(status) => {
            let what = format!("check channel `{}`", wanted.channel.name);
            objection(status, &wanted.path, "channel.", &what, problems)?;
        }
    }
    let mut equal = equal.into_iter();
    let listed = |name: &String| match held.get(name) {
        Some(Held::Stored(id)) => Listed::Known(*id),
        _ => equal.next().filter(|id| *id > 0).map_or_else(|| Listed::New(name.clone()), Listed::Known),
    };
    let credentials = wanted.credentials.iter().map(listed).collect();
    Ok(ChannelStep {
        current: None,
        wanted: wanted.channel.clone(),
        credentials,
        names: wanted.credentials.clone(),
        diff: Diff::default(),
        relists: true,
    })
}

async fn change(
    client: &mut Client,
    wanted: &FileChannel,
    current: &Channel,
    held: &BTreeMap<String, Held>,
    problems: &mut Problems,
) -> Result<Option<ChannelStep>, Failure> {
    let mut credentials = Vec::new();
    // A credential belongs to one account. Channels that share one and move elsewhere cannot move at the same instant, so
    // what moves gets credentials of its own there, and the old ones go when nobody lists them any more.
    let moves = account(current) != account(&wanted.channel);
    for (i, name) in wanted.credentials.iter().enumerate() {
        let secret = match held.get(name) {
            Some(Held::Secret(_)) if moves => {
                credentials.push(Listed::New(name.clone()));
                continue;
            }
            Some(Held::Stored(id)) => {
                credentials.push(Listed::Known(*id));
                continue;
            }
            Some(Held::Secret(secret)) => secret.expose().to_owned(),
            None => continue,
        };
        let request = AddCredentialRequest {
            channel: current.channel_id.to_string(),
            secret,
            validate_only: true,
            ..AddCredentialRequest::default()
        };
        match client.channels.add_credential(request).await {
            Ok(answer) => match answer.into_inner().equal_credential_id {
                id @ 1.. => credentials.push(Listed::Known(id)),
                _ => credentials.push(Listed::New(name.clone())),
            },
            Err(status) => {
                let path = format!("{}.credentials[{i}]", wanted.path);
                objection(status, &path, "secret", &format!("check credential `{name}`"), problems)?;
            }
        }
    }
    let known: Vec<Listed> = current.credential_ids.iter().copied().map(Listed::Known).collect();
    let step = ChannelStep {
        relists: credentials != known,
        diff: diff(current, &wanted.channel)?,
        current: Some(current.clone()),
        wanted: wanted.channel.clone(),
        credentials,
        names: wanted.credentials.clone(),
    };
    if !step.relists && step.diff.mask.is_empty() {
        return Ok(None);
    }
    // New credentials have no ids yet; all the rest can be checked beforehand.
    let ids = step.credentials.iter().filter_map(Listed::id).collect();
    let request = UpdateChannelRequest { validate_only: true, ..step.update(ids) };
    if let Err(status) = client.channels.update_channel(request).await {
        let what = format!("check channel `{}`", wanted.channel.name);
        objection(status, &wanted.path, "channel.", &what, problems)?;
    }
    Ok(Some(step))
}

/// Provider, host and port: as the control plane tells accounts apart.
pub(super) fn account(channel: &Channel) -> (String, String) {
    let url = url::Url::parse(&channel.base_url).ok();
    let host = url.and_then(|u| Some(format!("{}:{}", u.host_str()?, u.port_or_known_default()?)));
    (channel.provider.clone(), host.unwrap_or_default())
}

/// What the control plane finds wrong with the file is the file's problem; all else ends the run.
fn objection(
    status: Status,
    path: &str,
    prefix: &str,
    what: &str,
    problems: &mut Problems,
) -> Result<(), Failure> {
    let found = violations(&status);
    match status.code() {
        Code::InvalidArgument if !found.is_empty() => {
            for (field, problem) in found {
                let field = field.strip_prefix(prefix).unwrap_or(&field);
                let at = if field.is_empty() { path.to_owned() } else { format!("{path}.{field}") };
                problems.at_path(&at, problem);
            }
            Ok(())
        }
        Code::InvalidArgument | Code::FailedPrecondition | Code::AlreadyExists => {
            problems.at_path(path, status.message());
            Ok(())
        }
        _ => Err(refused(what)(status)),
    }
}

impl ChannelStep {
    /// The change as one call.
    pub(super) fn update(&self, credential_ids: Vec<i64>) -> UpdateChannelRequest {
        let mut paths: Vec<String> = self.diff.mask.iter().cloned().collect();
        if self.relists {
            paths.push("credential_ids".to_owned());
        }
        let current = self.current.clone().unwrap_or_default();
        UpdateChannelRequest {
            channel: Some(Channel {
                channel_id: current.channel_id,
                etag: current.etag,
                credential_ids,
                ..self.wanted.clone()
            }),
            update_mask: Some(prost_types::FieldMask { paths }),
            validate_only: false,
        }
    }

    /// Stored credentials that the channel gives up.
    pub(super) fn dropped(&self) -> Vec<i64> {
        let keeps: BTreeSet<i64> = self.credentials.iter().filter_map(Listed::id).collect();
        let listed = self.current.iter().flat_map(|c| c.credential_ids.iter().copied());
        listed.filter(|id| !keeps.contains(id)).collect()
    }
}

impl PolicyStep {
    /// The change as one call.
    pub(super) fn request(&self) -> UpdatePolicyRequest {
        let etag = self.current.as_ref().map(|p| p.etag.clone()).unwrap_or_default();
        UpdatePolicyRequest {
            policy: Some(Policy { etag, ..self.wanted.clone() }),
            update_mask: Some(prost_types::FieldMask { paths: self.diff.mask.iter().cloned().collect() }),
            validate_only: false,
        }
    }
}
