//! The registry as one proxy serves from it: wire items, and everything compiled from them. Immutable; an update makes
//! a new one that shares what did not change.
//!
//! Invariants: the items held are exactly those that compiled, so the digest speaks about what is really served; an
//! item that does not compile is rejected by itself and its older version stays; an update is applied whole.

mod apply;
mod outs;
#[cfg(test)]
mod tests;

pub use outs::{Out, Outs};

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use imbl::{OrdMap, OrdSet};
use spareline_proto::dataplane::v1 as dp;

use crate::classify::Rules;
use crate::hash::QuickMap;
use crate::ids::{ChannelId, CredentialId, Revision, Subject};
use crate::items::{ItemKey, Items};
use crate::policy::{FleetPolicy, RequestPolicy};
use crate::table::{Line, Table};

/// The registry in force.
#[derive(Clone, Debug)]
pub struct View {
    items: Items,
    epoch: Arc<str>,
    revision: Revision,
    lines: OrdMap<ChannelId, Arc<Line>>,
    names: QuickMap<Arc<str>, ChannelId>,
    /// Which channels list a credential.
    listed: OrdSet<(CredentialId, ChannelId)>,
    table: Table,
    outs: QuickMap<ChannelId, Arc<Outs>>,
    policies: OrdMap<Arc<str>, Arc<RequestPolicy>>,
    fleet: FleetPolicy,
    rules: Arc<Rules>,
    seed: u64,
}

/// How to read the server's times: when the local monotonic clock said `now`, the server's said `server_time`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// The server's clock; `None`: it did not say, and what has a time is out for its usual length from `now`.
    pub server_time: Option<prost_types::Timestamp>,
    /// Since the process started.
    pub now: Duration,
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

impl Rejection {
    /// As it goes on the wire.
    pub fn to_wire(&self) -> dp::Rejection {
        dp::Rejection {
            item: Some(self.key.to_ref()),
            version: self.version,
            message: self.message.clone(),
            kept_version: self.kept.unwrap_or(0),
        }
    }
}

impl View {
    /// Nothing, at no position. `seed` spreads the jitter of throttles over proxies.
    pub fn empty(seed: u64) -> Self {
        Self {
            items: Items::default(),
            epoch: Arc::from(""),
            revision: Revision(0),
            lines: OrdMap::new(),
            names: QuickMap::default(),
            listed: OrdSet::new(),
            table: Table::default(),
            outs: QuickMap::default(),
            policies: OrdMap::unit(Arc::from(""), Arc::new(RequestPolicy::resolve(None, None))),
            fleet: FleetPolicy::default(),
            rules: Arc::new(Rules::builtin()),
            seed,
        }
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

    /// The channels that list a credential.
    pub fn listing(&self, credential: CredentialId) -> impl Iterator<Item = ChannelId> {
        let range = (credential, ChannelId(i64::MIN))..=(credential, ChannelId(i64::MAX));
        self.listed.range(range).map(|(_, channel)| *channel)
    }

    /// What is out beneath a channel by status; `None`: nothing.
    pub fn outs(&self, id: ChannelId) -> Option<&Outs> {
        self.outs.get(&id).map(|o| &**o)
    }

    /// Whether anything is out by status.
    pub(crate) fn has_outs(&self) -> bool {
        !self.outs.is_empty()
    }

    /// How requests of a group are handled.
    pub fn policy(&self, group: &str) -> &Arc<RequestPolicy> {
        static BUILT_IN: LazyLock<Arc<RequestPolicy>> =
            LazyLock::new(|| Arc::new(RequestPolicy::resolve(None, None)));
        self.policies.get(group).or_else(|| self.policies.get("")).unwrap_or(&BUILT_IN)
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
    pub fn knows(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Channel(id) => self.lines.contains_key(id),
            Subject::Credential(id) => self.listing(*id).next().is_some(),
            Subject::Ability { channel, model, credential } => self.lines.get(channel).is_some_and(|line| {
                line.spec.model(model).is_some()
                    && credential.is_none_or(|c| line.spec.credentials.contains(&c))
            }),
        }
    }

    /// The status in force of a subject, if it is out now (a throttle whose time has passed is not).
    pub fn out(&self, subject: &Subject, now: Duration) -> Option<&Out> {
        let channel = match subject {
            Subject::Channel(id) | Subject::Ability { channel: id, .. } => *id,
            Subject::Credential(id) => self.listing(*id).next()?,
        };
        self.outs(channel)?.of(subject).filter(|out| !out.is_over(now))
    }

    /// The fence of a subject: a verdict or an overlay from an older revision is stale.
    pub fn fence(&self, subject: &Subject) -> Revision {
        self.items.status(subject).map_or(Revision(0), |s| Revision(s.fence_revision))
    }

    /// Whether a model of a group can be served by someone now, by the statuses alone.
    pub fn model_usable(&self, group: &str, model: &str, now: Duration) -> bool {
        let candidates = self.table.lookup(group, model, None);
        candidates.is_some_and(|c| c.iter().any(|m| m.share > 0 && self.member_usable(&m.line, model, now)))
    }

    fn member_usable(&self, line: &Line, model: &str, now: Duration) -> bool {
        let Some(outs) = self.outs(line.spec.id) else { return !line.wants_key() || !line.keys.is_empty() };
        let out = |out: Option<&Out>| out.is_some_and(|o| !o.is_over(now));
        if out(outs.own.as_ref()) || out(outs.ability(model, None)) {
            return false;
        }
        let usable = |id| !out(outs.credential(id)) && !out(outs.ability(model, Some(id)));
        !line.wants_key() || line.keys.iter().any(|k| usable(k.id))
    }
}
