//! The registry as wire messages: persistent maps, so that a copy is cheap and a difference costs what changed.
//!
//! Invariants: the digest always equals the wrapping sum of [`digest::item`] over what is held; two items with the
//! same key and version are the same content. It validates nothing but identity: that is `convert`'s.

mod delta;
pub mod digest;
mod narrow;
#[cfg(test)]
mod tests;

pub use delta::Delta;
pub use narrow::Narrowed;

use std::sync::Arc;

use imbl::OrdMap;
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::registry::v1 as pb;

use crate::convert;
use crate::ids::{ChannelId, CredentialId, Subject};

/// Everything a view is made of.
#[derive(Clone, Debug, Default)]
pub struct Items {
    channels: OrdMap<ChannelId, Held<pb::Channel>>,
    credentials: OrdMap<CredentialId, Held<pb::Credential>>,
    statuses: OrdMap<Subject, Held<pb::Status>>,
    policies: OrdMap<Arc<str>, Held<pb::Policy>>,
    digest: u64,
}

/// One item.
#[derive(Clone, Debug)]
pub enum Item {
    /// A channel.
    Channel(Arc<pb::Channel>),
    /// A credential.
    Credential(Arc<pb::Credential>),
    /// A status.
    Status(Arc<pb::Status>),
    /// A policy.
    Policy(Arc<pb::Policy>),
}

/// Names one item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ItemKey {
    /// A channel.
    Channel(ChannelId),
    /// A credential.
    Credential(CredentialId),
    /// A status, by what it is about.
    Status(Subject),
    /// A policy, by its group; empty: the global one.
    Policy(Arc<str>),
}

/// A message that is equal to another of the same version.
#[derive(Clone, Debug)]
struct Held<T>(Arc<T>);

/// What carries a version.
trait Versioned {
    fn version(&self) -> i64;
}

impl Versioned for pb::Channel {
    fn version(&self) -> i64 {
        self.spec_revision
    }
}

impl Versioned for pb::Credential {
    fn version(&self) -> i64 {
        self.revision
    }
}

impl Versioned for pb::Status {
    fn version(&self) -> i64 {
        self.revision
    }
}

impl Versioned for pb::Policy {
    fn version(&self) -> i64 {
        self.revision
    }
}

impl<T: Versioned> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.version() == other.0.version()
    }
}

// === impl Items ===

impl Items {
    /// Adds or replaces one item. False where it names nothing (a status without a subject): then nothing changes.
    pub fn insert(&mut self, item: Item) -> bool {
        let Some(key) = item.key() else { return false };
        let added = digest::item(&key, item.version());
        let replaced = match (item, &key) {
            (Item::Channel(m), ItemKey::Channel(id)) => old(self.channels.insert(*id, Held(m))),
            (Item::Credential(m), ItemKey::Credential(id)) => old(self.credentials.insert(*id, Held(m))),
            (Item::Status(m), ItemKey::Status(subject)) => {
                old(self.statuses.insert(subject.clone(), Held(m)))
            }
            (Item::Policy(m), ItemKey::Policy(group)) => old(self.policies.insert(group.clone(), Held(m))),
            _ => None,
        };
        self.count(&key, replaced, Some(added));
        true
    }

    /// Takes one item out; removing what is not held changes nothing.
    pub fn remove(&mut self, key: &ItemKey) {
        let removed = match key {
            ItemKey::Channel(id) => old(self.channels.remove(id)),
            ItemKey::Credential(id) => old(self.credentials.remove(id)),
            ItemKey::Status(subject) => old(self.statuses.remove(subject)),
            ItemKey::Policy(group) => old(self.policies.remove(group)),
        };
        self.count(key, removed, None);
    }

    fn count(&mut self, key: &ItemKey, gone: Option<i64>, added: Option<u64>) {
        if let Some(version) = gone {
            self.digest = self.digest.wrapping_sub(digest::item(key, version));
        }
        self.digest = self.digest.wrapping_add(added.unwrap_or(0));
    }

    /// What would have to be done to `self` to make it `to`. Costs what changed where the two share structure.
    pub fn diff(&self, to: &Self) -> Delta {
        delta::diff(self, to)
    }

    /// With the changes made.
    #[must_use]
    pub fn apply(&self, delta: &Delta) -> Self {
        let mut next = self.clone();
        delta.removed.iter().for_each(|key| next.remove(key));
        for item in delta.items() {
            next.insert(item);
        }
        next
    }

    /// What a proxy that serves these groups may see: their channels, what those list, the statuses of either, the
    /// groups' policies and the global one. For one that is kept up to date, [`Narrowed`].
    #[must_use]
    pub fn for_groups<S: AsRef<str>>(&self, groups: &[S]) -> Self {
        Narrowed::new(self, groups).items().clone()
    }

    /// The wrapping sum over what is held.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.channels.len() + self.credentials.len() + self.statuses.len() + self.policies.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many channels there are.
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// One channel.
    pub fn channel(&self, id: ChannelId) -> Option<&Arc<pb::Channel>> {
        self.channels.get(&id).map(|h| &h.0)
    }

    /// One credential.
    pub fn credential(&self, id: CredentialId) -> Option<&Arc<pb::Credential>> {
        self.credentials.get(&id).map(|h| &h.0)
    }

    /// The status of one subject; none: active.
    pub fn status(&self, subject: &Subject) -> Option<&Arc<pb::Status>> {
        self.statuses.get(subject).map(|h| &h.0)
    }

    /// The policy of one group as it was written; empty: the global one.
    pub fn policy(&self, group: &str) -> Option<&Arc<pb::Policy>> {
        self.policies.get(group).map(|h| &h.0)
    }

    /// All channels, by id.
    pub fn channels(&self) -> impl DoubleEndedIterator<Item = (ChannelId, &Arc<pb::Channel>)> {
        self.channels.iter().map(|(id, h)| (*id, &h.0))
    }

    /// All credentials, by id.
    pub fn credentials(&self) -> impl DoubleEndedIterator<Item = (CredentialId, &Arc<pb::Credential>)> {
        self.credentials.iter().map(|(id, h)| (*id, &h.0))
    }

    /// All statuses, by subject.
    pub fn statuses(&self) -> impl DoubleEndedIterator<Item = (&Subject, &Arc<pb::Status>)> {
        self.statuses.iter().map(|(subject, h)| (subject, &h.0))
    }

    /// The statuses of one channel's abilities, by model and credential.
    pub fn ability_statuses(&self, channel: ChannelId) -> impl Iterator<Item = (&Subject, &Arc<pb::Status>)> {
        let first = |id| Subject::Ability { channel: id, model: Arc::from(""), credential: None };
        self.statuses
            .range(first(channel)..first(ChannelId(channel.0.saturating_add(1))))
            .map(|(subject, h)| (subject, &h.0))
    }

    /// All policies as they were written, by group; the global one comes first.
    pub fn policies(&self) -> impl DoubleEndedIterator<Item = (&Arc<str>, &Arc<pb::Policy>)> {
        self.policies.iter().map(|(group, h)| (group, &h.0))
    }

    /// Every item.
    pub fn iter(&self) -> impl Iterator<Item = Item> {
        let channels = self.channels.values().map(|h| Item::Channel(h.0.clone()));
        let credentials = self.credentials.values().map(|h| Item::Credential(h.0.clone()));
        let statuses = self.statuses.values().map(|h| Item::Status(h.0.clone()));
        let policies = self.policies.values().map(|h| Item::Policy(h.0.clone()));
        policies.chain(credentials).chain(channels).chain(statuses)
    }

    /// The version held of one item.
    pub fn version(&self, key: &ItemKey) -> Option<i64> {
        match key {
            ItemKey::Channel(id) => self.channels.get(id).map(|h| h.0.version()),
            ItemKey::Credential(id) => self.credentials.get(id).map(|h| h.0.version()),
            ItemKey::Status(subject) => self.statuses.get(subject).map(|h| h.0.version()),
            ItemKey::Policy(group) => self.policies.get(group).map(|h| h.0.version()),
        }
    }
}

impl FromIterator<Item> for Items {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Self {
        let mut all = Self::default();
        for item in items {
            all.insert(item);
        }
        all
    }
}

fn old<T: Versioned>(held: Option<Held<T>>) -> Option<i64> {
    held.map(|h| h.0.version())
}

// === impl Item ===

impl Item {
    /// Its name; `None` for a status about nothing.
    pub fn key(&self) -> Option<ItemKey> {
        Some(match self {
            Self::Channel(m) => ItemKey::Channel(ChannelId(m.channel_id)),
            Self::Credential(m) => ItemKey::Credential(CredentialId(m.credential_id)),
            Self::Status(m) => ItemKey::Status(convert::subject(m.subject.as_ref()?)?),
            Self::Policy(m) => ItemKey::Policy(Arc::from(m.group.as_str())),
        })
    }

    /// The revision at which this content became current.
    pub fn version(&self) -> i64 {
        match self {
            Self::Channel(m) => m.version(),
            Self::Credential(m) => m.version(),
            Self::Status(m) => m.version(),
            Self::Policy(m) => m.version(),
        }
    }
}

// === impl ItemKey ===

impl ItemKey {
    /// As it goes on the wire.
    pub fn to_ref(&self) -> dp::ItemRef {
        use dp::item_ref::Kind;
        let kind = match self {
            Self::Channel(id) => Kind::ChannelId(id.0),
            Self::Credential(id) => Kind::CredentialId(id.0),
            Self::Status(subject) => Kind::Status(convert::subject_ref(subject)),
            Self::Policy(group) => Kind::PolicyGroup(group.to_string()),
        };
        dp::ItemRef { kind: Some(kind) }
    }

    /// From the wire; `None` where nothing is named.
    pub fn from_ref(item: &dp::ItemRef) -> Option<Self> {
        use dp::item_ref::Kind;
        Some(match item.kind.as_ref()? {
            Kind::ChannelId(id) => Self::Channel(ChannelId(*id)),
            Kind::CredentialId(id) => Self::Credential(CredentialId(*id)),
            Kind::Status(subject) => Self::Status(convert::subject(subject)?),
            Kind::PolicyGroup(group) => Self::Policy(Arc::from(group.as_str())),
        })
    }
}
