//! From the file to items, with ids and versions that stay the same for what stays the same.

use std::{collections::BTreeMap, sync::Arc};

use spareline_core::{
    ChannelId, Secret,
    file::Problem,
    items::{Item, Items},
};
use spareline_proto::registry::v1 as pb;
use xxhash_rust::xxh3::xxh3_64;

use super::{EPOCH, problem, read::Found};

/// What was made last.
#[derive(Debug)]
pub(super) struct Registry {
    epoch: String,
    revision: i64,
    current: bool,
    held: Items,
    next: Option<Items>,
    credentials: BTreeMap<String, Held>,
}

/// A credential: another secret under the same name is another one.
#[derive(Clone, Debug)]
struct Held {
    secret: Secret,
    id: i64,
    generation: u32,
    revision: i64,
}

impl Registry {
    /// Nothing yet. Its versions say nothing about those of another process.
    pub(super) fn new() -> Self {
        Self {
            epoch: format!("{EPOCH}{:016x}", rand::random::<u64>()),
            revision: 0,
            current: false,
            held: Items::default(),
            next: None,
            credentials: BTreeMap::new(),
        }
    }

    pub(super) fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Of what was made last.
    pub(super) fn revision(&self) -> i64 {
        self.revision
    }

    /// Whether what the file says is in force.
    pub(super) fn is_current(&self) -> bool {
        self.current
    }

    /// The registry of a file, as far as these groups see it.
    pub(super) fn make(&mut self, found: Found, groups: &[Arc<str>]) -> Result<Items, Vec<Problem>> {
        let Found { file, secrets } = found;
        self.revision += 1;
        let mut items = Items::default();
        let mut names = BTreeMap::new();
        for (name, secret) in secrets {
            names.insert(name.clone(), self.credential(name, secret));
        }
        for held in names.values() {
            items.insert(Item::Credential(Arc::new(pb::Credential {
                credential_id: held.id,
                secret: held.secret.expose().to_owned(),
                fingerprint: String::new(),
                revision: held.revision,
            })));
        }
        let mut problems = Vec::new();
        for entry in file.channels.into_iter().flatten() {
            let mut channel = entry.channel;
            channel.channel_id = id(&channel.name);
            channel.credential_ids =
                entry.credentials.iter().filter_map(|name| names.get(name)).map(|h| h.id).collect();
            channel.spec_revision = self.revision;
            let key = ChannelId(channel.channel_id);
            if items.channel(key).is_some() {
                problems.push(problem(format!("{}: its name cannot be told from another's", entry.path)));
            }
            if let Some(before) = self.held.channel(key) {
                let same = pb::Channel { spec_revision: before.spec_revision, ..channel.clone() };
                if same == **before {
                    channel = same;
                }
            }
            items.insert(Item::Channel(Arc::new(channel)));
        }
        for entry in file.policies.into_iter().flatten() {
            let mut policy = pb::Policy { revision: self.revision, ..entry.policy };
            if let Some(before) = self.held.policy(&policy.group) {
                let same = pb::Policy { revision: before.revision, ..policy.clone() };
                if same == **before {
                    policy = same;
                }
            }
            items.insert(Item::Policy(Arc::new(policy)));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let narrowed = items.for_groups(groups);
        self.next = Some(items);
        Ok(narrowed)
    }

    fn credential(&mut self, name: String, secret: Secret) -> Held {
        let before = self.credentials.get(&name);
        if let Some(before) = before.filter(|held| held.secret == secret) {
            return before.clone();
        }
        let generation = before.map_or(0, |held| held.generation + 1);
        let id = id(&format!("{name}\0{generation}"));
        let held = Held { secret, id, generation, revision: self.revision };
        self.credentials.insert(name, held.clone());
        held
    }

    /// What was made is in force.
    pub(super) fn taken(&mut self) {
        self.current = true;
        if let Some(items) = self.next.take() {
            self.held = items;
        }
    }

    /// It is not, what was before is.
    pub(super) fn refused(&mut self) {
        self.current = false;
        self.next = None;
    }
}

/// Positive, the same wherever the name is the same, and short enough for readers of JSON.
fn id(name: &str) -> i64 {
    (xxh3_64(name.as_bytes()) >> 11).max(1).cast_signed()
}
