//! From (group, model, endpoint) to the channels that may serve it, in layers, ready to draw from.
//!
//! Persistent: a change of one channel rebuilds the lists that name it and shares the rest. Statuses are not here: a
//! list says what is configured, [`View`](crate::view::View) says what is out.

mod build;

pub(crate) use build::Changes;

use std::sync::Arc;

use crate::hash::QuickMap;
use crate::ids::CredentialId;
use crate::spec::{ChannelSpec, Credential, ModelSpec};
use crate::words::Endpoint;

/// A channel with the secrets it needs.
#[derive(Clone, Debug)]
pub struct Line {
    /// The channel.
    pub spec: Arc<ChannelSpec>,
    /// Its credentials by rank; those that are not held are left out.
    pub keys: Vec<Arc<Credential>>,
}

/// Everything that is configured.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Sorted by name. There are few, and finding one so costs a tenth of what it costs in a persistent map.
    groups: Vec<(Arc<str>, Models)>,
}

type Models = QuickMap<Arc<str>, Arc<Entry>>;

/// One (group, model).
#[derive(Clone, Debug)]
pub struct Entry {
    all: Arc<Candidates>,
    by_endpoint: [Option<Arc<Candidates>>; Endpoint::ALL.len()],
}

/// The channels that may serve one (group, model, endpoint).
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// The highest priority first; none is empty.
    pub layers: Vec<Layer>,
}

/// The channels of one priority.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Theirs.
    pub priority: i32,
    /// By channel id.
    pub members: Vec<Member>,
    /// The sum of the shares.
    pub total: u64,
}

/// One channel that may serve one model.
#[derive(Clone, Debug)]
pub struct Member {
    /// The channel.
    pub line: Arc<Line>,
    /// The model's entry there.
    pub model: Arc<ModelSpec>,
    /// Its share of the layer: the weight; one where all weights of the layer are zero; zero: drained.
    pub share: u32,
    /// The sum of the shares up to and with this one.
    pub upto: u64,
}

impl Line {
    /// Whether its requests carry a credential.
    pub fn wants_key(&self) -> bool {
        !self.spec.credentials.is_empty()
    }

    /// One of its credentials.
    pub fn key(&self, id: CredentialId) -> Option<&Arc<Credential>> {
        self.keys.iter().find(|k| k.id == id)
    }
}

impl Table {
    /// One (group, model); `None`: nobody in the group serves it.
    pub fn entry(&self, group: &str, model: &str) -> Option<&Arc<Entry>> {
        self.group(group)?.get(model)
    }

    fn group(&self, name: &str) -> Option<&Models> {
        let at = self.place(name).ok()?;
        self.groups.get(at).map(|(_, models)| models)
    }

    /// Where a group is, or belongs.
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.groups.binary_search_by(|(known, _)| (**known).cmp(name))
    }

    /// The candidates; without an endpoint those of any. Costs the same for ten channels and ten thousand.
    pub fn lookup(&self, group: &str, model: &str, endpoint: Option<Endpoint>) -> Option<&Arc<Candidates>> {
        self.entry(group, model)?.candidates(endpoint)
    }

    /// The models of a group, sorted, whatever their status.
    pub fn models(&self, group: &str) -> Vec<Arc<str>> {
        let mut models: Vec<_> = self.group(group).into_iter().flat_map(|m| m.keys().cloned()).collect();
        models.sort_unstable();
        models
    }
}

impl Entry {
    /// The candidates for one endpoint, or for any.
    pub fn candidates(&self, endpoint: Option<Endpoint>) -> Option<&Arc<Candidates>> {
        match endpoint {
            None => Some(&self.all),
            Some(e) => self.by_endpoint[e as usize].as_ref(),
        }
    }
}

impl Candidates {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.layers.iter().map(|l| l.members.len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// All of them, the highest layer first.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.layers.iter().flat_map(|l| &l.members)
    }
}
