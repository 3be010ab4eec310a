//! The registry file: credentials by name, channels that list them, policies. `apply` makes a registry match it, a
//! proxy without a control plane serves from it. A rollout file says how its changes are to be staged.
//!
//! It holds no secret, only where each one is found: reading those is the caller's. Everything that is wrong is reported
//! at once, with its line.

#[cfg(test)]
mod tests;
mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use spareline_proto::admin::v1::Rollout;
use spareline_proto::registry::v1::{Channel, Policy};

use crate::convert;
use crate::reflect;
use yaml::{Extra, Located, Node};
pub use yaml::{Problem, Problems};

/// Fields of a channel that a file does not set.
pub const CHANNEL_HIDDEN: &[&str] = &["channel_id", "credential_ids", "spec_revision", "etag"];
/// Fields of a policy that a file does not set.
pub const POLICY_HIDDEN: &[&str] = &["revision", "etag"];

/// Fields of a rollout that a file does not set: the changes are what differs.
const ROLLOUT_HIDDEN: &[&str] = &[
    "rollout_id",
    "changes",
    "current_stage",
    "state",
    "why",
    "stage_start_time",
    "counts",
    "etag",
    "author",
    "create_time",
    "end_time",
    "waiting_for",
];
/// What a file says of the registry.
const REGISTRY: &[&str] = &["channels", "credentials", "policies"];

/// How a file's changes are to be staged.
#[derive(Debug, Default)]
pub struct RolloutFile {
    /// Description, comment and stages.
    pub rollout: Rollout,
    /// The same file says of the registry; `None`: nothing.
    pub registry: Option<RegistryFile>,
}

/// What a file says.
#[derive(Debug, Default)]
pub struct RegistryFile {
    /// By the name that channels list.
    pub credentials: BTreeMap<String, Source>,
    /// `None`: the file says nothing about channels; empty: `[]`.
    pub channels: Option<Vec<FileChannel>>,
    /// `None`: the file says nothing about policies.
    pub policies: Option<Vec<FilePolicy>>,
}

/// Where a credential's secret is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In an environment variable.
    Env(String),
    /// In a file.
    File(PathBuf),
    /// With the control plane already: its id.
    Stored(i64),
}

/// One channel of the file.
#[derive(Debug)]
pub struct FileChannel {
    /// Without ids.
    pub channel: Channel,
    /// By name, most preferred first.
    pub credentials: Vec<String>,
    /// Where it stands: `channels[3]`.
    pub path: String,
}

/// One policy of the file.
#[derive(Debug)]
pub struct FilePolicy {
    /// As written.
    pub policy: Policy,
    /// Where it stands.
    pub path: String,
}

impl RegistryFile {
    /// Reads the text of a file that stands in `folder`; relative secret files are found from there.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the lines.
    pub fn read(text: &str, folder: &Path) -> Result<(Self, Problems), Vec<Problem>> {
        let root = yaml::parse(text).map_err(|problem| vec![problem])?;
        Self::of(&root, folder, &[])
    }

    /// Reads a document, but for keys that somebody else reads.
    fn of(root: &Located, folder: &Path, others: &[&str]) -> Result<(Self, Problems), Vec<Problem>> {
        let mut problems = Problems::default();
        let mut file = Self::default();
        match &root.value {
            Node::Map(entries) => {
                for (key, value) in entries {
                    match key.value.as_str() {
                        "credentials" => file.credentials = credentials(value, folder, &mut problems),
                        "channels" => file.channels = items(value, "channels", &mut problems, channel),
                        "policies" => file.policies = items(value, "policies", &mut problems, policy),
                        other if others.contains(&other) => {}
                        other => problems.at(
                            key,
                            other,
                            "unknown field; known are channels, credentials, policies",
                        ),
                    }
                }
            }
            Node::Null => {}
            other => {
                problems.at(root, "", format!("a registry file must be a mapping, not {}", other.kind()))
            }
        }
        file.check(&mut problems);
        if problems.list.is_empty() {
            return Ok((file, problems));
        }
        problems.list.sort();
        problems.list.dedup();
        Err(problems.list)
    }

    fn check(&self, problems: &mut Problems) {
        let mut names = BTreeMap::new();
        for FileChannel { channel, credentials, path } in self.channels.iter().flatten() {
            if let Some(first) = names.insert(channel.name.as_str(), path)
                && !channel.name.is_empty()
            {
                problems.at_path(
                    &format!("{path}.name"),
                    format!("`{}` is the name of {first} too", channel.name),
                );
            }
            for (i, name) in credentials.iter().enumerate() {
                let path = format!("{path}.credentials[{i}]");
                if !self.credentials.contains_key(name) {
                    problems.at_path(&path, format!("no credential `{name}` stands under `credentials:`"));
                }
                if credentials.iter().take(i).any(|earlier| earlier == name) {
                    problems.at_path(&path, format!("`{name}` is listed twice"));
                }
            }
            let violations = convert::channel(channel).err().unwrap_or_default();
            for violation in violations.into_iter().chain(convert::mistaken(&channel.base_url)) {
                problems.at_path(&format!("{path}.{}", violation.field), violation.problem);
            }
        }
        let mut groups = BTreeMap::new();
        for FilePolicy { policy, path } in self.policies.iter().flatten() {
            if let Some(first) = groups.insert(policy.group.as_str(), path) {
                problems.at_path(path, format!("group `{}` has a policy at {first} too", policy.group));
            }
            for violation in convert::policy(policy).err().unwrap_or_default() {
                problems.at_path(&format!("{path}.{}", violation.field), violation.problem);
            }
        }
    }
}

impl RolloutFile {
    /// Reads the text of a rollout file: `description`, `comment`, `stages`, and what a registry file holds.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the lines.
    pub fn read(text: &str, folder: &Path) -> Result<(Self, Problems), Vec<Problem>> {
        let root = yaml::parse(text).map_err(|problem| vec![problem])?;
        let mut problems = Problems::default();
        let mut file = Self::default();
        let extra = Extra { hidden: ROLLOUT_HIDDEN, own: REGISTRY };
        if let Ok(described) = reflect::descriptor::<Rollout>() {
            let tree = yaml::message(&root, &described, "", extra, &mut problems);
            file.rollout = reflect::from_tree(&tree).unwrap_or_default();
        }
        if file.rollout.stages.is_empty() && problems.list.is_empty() {
            problems.at(
                &root,
                "stages",
                "is required: how the changes spread, such as [{percent: 10}, {percent: 100}]",
            );
        }
        let mine = ["description", "comment", "stages"];
        let registry = RegistryFile::of(&root, folder, &mine);
        if REGISTRY.iter().any(|key| entry(&root, key).is_some()) {
            let (registry, more) = match registry {
                Ok(read) => read,
                Err(more) => {
                    problems.list.extend(
                        more.into_iter().filter(|p| REGISTRY.iter().any(|key| p.path.starts_with(key))),
                    );
                    (RegistryFile::default(), Problems::default())
                }
            };
            file.registry = Some(registry);
            problems.take_places(more);
        }
        if problems.list.is_empty() {
            return Ok((file, problems));
        }
        problems.list.sort();
        problems.list.dedup();
        Err(problems.list)
    }
}

fn items<T>(
    node: &Located,
    name: &str,
    problems: &mut Problems,
    read: impl Fn(&Located, String, &mut Problems) -> Option<T>,
) -> Option<Vec<T>> {
    match &node.value {
        Node::List(items) => {
            let items = items.iter().enumerate().map(|(i, item)| (format!("{name}[{i}]"), item));
            Some(items.filter_map(|(path, item)| read(item, path, problems)).collect())
        }
        // A list whose items were all commented out is more likely than one that is meant to be empty.
        Node::Null => None,
        other => {
            problems.at(node, name, format!("must be a list, not {}", other.kind()));
            None
        }
    }
}

fn channel(node: &Located, path: String, problems: &mut Problems) -> Option<FileChannel> {
    let extra = Extra { hidden: CHANNEL_HIDDEN, own: &["credentials"] };
    let tree = yaml::message(node, &reflect::descriptor::<Channel>().ok()?, &path, extra, problems);
    let mut names = Vec::new();
    if let Some((_, value)) = entry(node, "credentials") {
        let path = format!("{path}.credentials");
        problems.place(&path, value);
        match &value.value {
            Node::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    let path = format!("{path}[{i}]");
                    problems.place(&path, item);
                    match &item.value {
                        Node::Text(name) => names.push(name.clone()),
                        _ => problems.at(item, &path, "must be the name of an entry of `credentials:`"),
                    }
                }
            }
            Node::Null => {}
            _ => problems.at(value, &path, "must be a list of names of `credentials:`"),
        }
    }
    Some(FileChannel { channel: reflect::from_tree(&tree).ok()?, credentials: names, path })
}

fn policy(node: &Located, path: String, problems: &mut Problems) -> Option<FilePolicy> {
    let extra = Extra { hidden: POLICY_HIDDEN, own: &[] };
    let tree = yaml::message(node, &reflect::descriptor::<Policy>().ok()?, &path, extra, problems);
    Some(FilePolicy { policy: reflect::from_tree(&tree).ok()?, path })
}

fn credentials(node: &Located, folder: &Path, problems: &mut Problems) -> BTreeMap<String, Source> {
    let mut out = BTreeMap::new();
    let entries = match &node.value {
        Node::Map(entries) => entries.as_slice(),
        Node::Null => &[],
        other => {
            problems.at(node, "credentials", format!("must be a mapping from names, not {}", other.kind()));
            &[]
        }
    };
    for (name, value) in entries {
        let path = format!("credentials.{}", name.value);
        problems.place(&path, value);
        match source(value, folder, &path, problems) {
            Some(source) => drop(out.insert(name.value.clone(), source)),
            // Known all the same, so that channels that list it are not reported too.
            None => drop(out.insert(name.value.clone(), Source::Stored(0))),
        }
    }
    out
}

fn source(node: &Located, folder: &Path, path: &str, problems: &mut Problems) -> Option<Source> {
    const HOW: &str = "must be one of {secret_env: VARIABLE}, {secret_file: PATH}, {credential_id: NUMBER}";
    let Node::Map(entries) = &node.value else {
        problems.at(node, path, HOW);
        return None;
    };
    let mut found = Vec::new();
    let before = problems.list.len();
    for (key, value) in entries {
        let path = format!("{path}.{}", key.value);
        match (key.value.as_str(), &value.value) {
            ("secret_env", Node::Text(name)) if !name.is_empty() => found.push(Source::Env(name.clone())),
            ("secret_file", Node::Text(file)) if !file.is_empty() => {
                found.push(Source::File(folder.join(file)))
            }
            ("credential_id", Node::Int(id)) if *id > 0 => {
                found.push(Source::Stored(i64::try_from(*id).ok()?))
            }
            // For humans, as `export` writes it.
            ("fingerprint", Node::Text(_)) => {}
            ("secret", _) => {
                problems.at(key, &path, "secrets do not belong in this file: use secret_env or secret_file")
            }
            ("secret_env" | "secret_file" | "credential_id", _) => problems.at(value, &path, HOW),
            _ => problems.at(
                key,
                &path,
                "unknown field; known are credential_id, fingerprint, secret_env, secret_file",
            ),
        }
    }
    if found.len() > 1 || (found.is_empty() && problems.list.len() == before) {
        problems.at(node, path, HOW);
    }
    found.into_iter().next()
}

fn entry<'a>(node: &'a Located, name: &str) -> Option<(&'a str, &'a Located)> {
    let Node::Map(entries) = &node.value else { return None };
    entries.iter().find(|(key, _)| key.value == name).map(|(key, value)| (key.value.as_str(), value))
}
