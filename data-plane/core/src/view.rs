//! The registry as one proxy serves from it: wire items, and everything compiled from them. Immutable; an update makes
//! a new one that shares what did not change.
//!
//! Invariants: the items held are exactly those that compiled, so the digest speaks about what is really served; an
//! item that does not compile is rejected by itself and its older version stays; an update is applied whole.

use std::sync::Arc;
use std::time::Duration;

use imbl::{HashMap, OrdMap};

use crate::classify::Rules;
use crate::ids::{ChannelId, CredentialId, Revision, Subject};
use crate::items::{Delta, ItemKey, Items};
use crate::policy::{FleetPolicy, RequestPolicy};
use crate::table::{Line, Table};
use crate::words::Cause;

/// The registry in force.
#[derive(Clone, Debug)]
pub struct View {
    items: Items,
    epoch: Arc<str>,
    revision: Revision,
    lines: OrdMap<ChannelId, Arc<Line>>,
    names: HashMap<Arc<str>, ChannelId>,
    listed_by: HashMap<CredentialId, Arc<[ChannelId]>>,
    table: Table,
    outs: HashMap<ChannelId, Arc<Outs>>,
    policies: OrdMap<Arc<str>, Arc<RequestPolicy>>,
    fleet: FleetPolicy,
    rules: Arc<Rules>,
    seed: u64,
}

/// How to read the server's times: when the local monotonic clock said `now`, the server's said `server_time`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// The server's clock.
    pub server_time: prost_types::Timestamp,
    /// Since the process started.
    pub now: Duration,
}

/// What is out beneath one channel, by status.
#[derive(Clone, Debug, Default)]
pub struct Outs {
    /// The channel itself.
    pub own: Option<Out>,
    /// Its credentials.
    pub credentials: Vec<(CredentialId, Out)>,
    /// Its models: with one credential, or with all.
    pub abilities: Vec<(Arc<str>, Option<CredentialId>, Out)>,
}

/// One status that takes its subject out.
#[derive(Clone, Debug)]
pub struct Out {
    /// Why.
    pub cause: Cause,
    /// Throttled: back from then on (0 to 10 % later than the server said). Otherwise when the prober tries next.
    /// By the local monotonic clock.
    pub until: Option<Duration>,
    /// `until` came from the provider.
    pub hinted: bool,
    /// The status's revision.
    pub revision: Revision,
}

/// An item that did not compile; its older version stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Which.
    pub key: ItemKey,
    /// The version that was rejected.
    pub version: i64,
    /// The version that stays, if any.
    pub kept: Option<i64>,
    /// Every mistake, for humans.
    pub message: String,
}

impl View {
    /// Nothing, at no position. `seed` spreads the jitter of throttles over proxies.
    pub fn empty(seed: u64) -> Self {
        Self {
            items: Items::default(),
            epoch: Arc::from(""),
            revision: Revision(0),
            lines: OrdMap::new(),
            names: HashMap::new(),
            listed_by: HashMap::new(),
            table: Table::default(),
            outs: HashMap::new(),
            policies: OrdMap::new(),
            fleet: FleetPolicy::default(),
            rules: Arc::new(Rules::builtin()),
            seed,
        }
    }

    /// With an update made. What does not compile is left as it was and answered.
    pub fn apply(&self, _delta: &Delta, _revision: Revision, _clock: Clock) -> (Self, Vec<Rejection>) {
        todo!()
    }

    /// With everything replaced; what did not change is shared, and what does not compile keeps its older version.
    pub fn replace(&self, _items: &Items, _epoch: &str, _revision: Revision, _clock: Clock) -> (Self, Vec<Rejection>) {
        todo!()
    }

    /// What it was made of.
    pub fn items(&self) -> &Items {
        &self.items
    }

    /// Which history `revision` belongs to.
    pub fn epoch(&self) -> &Arc<str> {
        &self.epoch
    }

    /// How far it got.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Who may serve what.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// One channel.
    pub fn line(&self, id: ChannelId) -> Option<&Arc<Line>> {
        self.lines.get(&id)
    }

    /// One channel, by its name.
    pub fn line_by_name(&self, name: &str) -> Option<&Arc<Line>> {
        self.lines.get(self.names.get(name)?)
    }

    /// All channels, by id.
    pub fn lines(&self) -> impl Iterator<Item = &Arc<Line>> {
        self.lines.values()
    }

    /// What is out beneath a channel by status; `None`: nothing.
    pub fn outs(&self, id: ChannelId) -> Option<&Outs> {
        self.outs.get(&id).map(|o| &**o)
    }

    /// How requests of a group are handled.
    pub fn policy(&self, _group: &str) -> &Arc<RequestPolicy> {
        todo!()
    }

    /// What the fleet believes.
    pub fn fleet(&self) -> &FleetPolicy {
        &self.fleet
    }

    /// The classifier's rules, the operator's first.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Whether a subject is part of it: a verdict about one that is not makes no overlay.
    pub fn knows(&self, _subject: &Subject) -> bool {
        todo!()
    }

    /// The status in force of a subject, if it is out now (a throttle whose time has passed is not).
    pub fn out(&self, _subject: &Subject, _now: Duration) -> Option<&Out> {
        todo!()
    }

    /// The fence of a subject: a verdict or an overlay from an older revision is stale.
    pub fn fence(&self, subject: &Subject) -> Revision {
        self.items.status(subject).map_or(Revision(0), |s| Revision(s.fence_revision))
    }

    /// Whether a model of a group can be served by someone now, by the statuses alone.
    pub fn model_usable(&self, _group: &str, _model: &str, _now: Duration) -> bool {
        todo!()
    }
}
