//! What changed between two registries.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::registry::v1 as pb;

use super::{Held, Item, ItemKey, Items, Versioned};

/// Items added or replaced, whole, and items gone.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// Channels added or replaced.
    pub channels: Vec<Arc<pb::Channel>>,
    /// Credentials added.
    pub credentials: Vec<Arc<pb::Credential>>,
    /// Statuses added or replaced.
    pub statuses: Vec<Arc<pb::Status>>,
    /// Policies added or replaced.
    pub policies: Vec<Arc<pb::Policy>>,
    /// Items gone.
    pub removed: Vec<ItemKey>,
}

impl Delta {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items it names.
    pub fn len(&self) -> usize {
        self.channels.len()
            + self.credentials.len()
            + self.statuses.len()
            + self.policies.len()
            + self.removed.len()
    }

    /// Everything added or replaced, in the order policies, credentials, channels, statuses.
    pub fn items(&self) -> impl Iterator<Item = Item> {
        let policies = self.policies.iter().cloned().map(Item::Policy);
        let credentials = self.credentials.iter().cloned().map(Item::Credential);
        let channels = self.channels.iter().cloned().map(Item::Channel);
        let statuses = self.statuses.iter().cloned().map(Item::Status);
        policies.chain(credentials).chain(channels).chain(statuses)
    }

    /// Adds one item.
    pub fn push(&mut self, item: Item) {
        match item {
            Item::Channel(m) => self.channels.push(m),
            Item::Credential(m) => self.credentials.push(m),
            Item::Status(m) => self.statuses.push(m),
            Item::Policy(m) => self.policies.push(m),
        }
    }

    /// These messages added or replaced; nothing gone.
    pub fn of(
        channels: Vec<pb::Channel>,
        credentials: Vec<pb::Credential>,
        statuses: Vec<pb::Status>,
        policies: Vec<pb::Policy>,
    ) -> Self {
        Self {
            channels: channels.into_iter().map(Arc::new).collect(),
            credentials: credentials.into_iter().map(Arc::new).collect(),
            statuses: statuses.into_iter().map(Arc::new).collect(),
            policies: policies.into_iter().map(Arc::new).collect(),
            removed: Vec::new(),
        }
    }

    /// The same with what these name gone; names of nothing are left out.
    #[must_use]
    pub fn without(self, removed: &[dp::ItemRef]) -> Self {
        Self { removed: removed.iter().filter_map(ItemKey::from_ref).collect(), ..self }
    }

    /// From the wire.
    pub fn from_update(update: dp::Update) -> Self {
        Self::of(update.channels, update.credentials, update.statuses, update.policies)
            .without(&update.removed)
    }

    /// As it goes on the wire; frame, position, flag and time are for the session to fill in.
    pub fn to_update(&self) -> dp::Update {
        dp::Update {
            channels: self.channels.iter().map(|m| (**m).clone()).collect(),
            credentials: self.credentials.iter().map(|m| (**m).clone()).collect(),
            statuses: self.statuses.iter().map(|m| (**m).clone()).collect(),
            policies: self.policies.iter().map(|m| (**m).clone()).collect(),
            removed: self.removed.iter().map(ItemKey::to_ref).collect(),
            ..Default::default()
        }
    }
}

pub(super) fn diff(from: &Items, to: &Items) -> Delta {
    let mut delta = Delta::default();
    let removed = &mut delta.removed;
    delta.channels = changes(&from.channels, &to.channels, |id| removed.push(ItemKey::Channel(*id)));
    delta.credentials =
        changes(&from.credentials, &to.credentials, |id| removed.push(ItemKey::Credential(*id)));
    delta.statuses =
        changes(&from.statuses, &to.statuses, |subject| removed.push(ItemKey::Status(subject.clone())));
    delta.policies =
        changes(&from.policies, &to.policies, |group| removed.push(ItemKey::Policy(group.clone())));
    delta
}

fn changes<K, T>(
    from: &OrdMap<K, Held<T>>,
    to: &OrdMap<K, Held<T>>,
    mut removed: impl FnMut(&K),
) -> Vec<Arc<T>>
where
    K: Ord + Clone,
    T: Versioned,
{
    let mut changed = Vec::new();
    for item in from.diff(to) {
        match item {
            DiffItem::Add(_, new) | DiffItem::Update { new: (_, new), .. } => changed.push(new.0.clone()),
            DiffItem::Remove(key, _) => removed(key),
        }
    }
    changed
}
