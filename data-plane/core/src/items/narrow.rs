//! What one set of groups may see of the registry, kept up to date at the cost of what changes.

use std::sync::Arc;

use imbl::OrdMap;
use spareline_proto::registry::v1 as pb;

use super::{Delta, Item, ItemKey, Items};
use crate::convert;
use crate::ids::{ChannelId, CredentialId, Subject};
use crate::spec::DEFAULT_GROUP;

/// The whole registry, and the part of it for some groups.
#[derive(Clone, Debug)]
pub struct Narrowed {
    groups: Arc<[Box<str>]>,
    whole: Items,
    part: Items,
    /// How many channels of the part list a credential.
    listed: OrdMap<CredentialId, u32>,
}

impl Narrowed {
    /// Narrows. No groups at all: nothing is left but the global policy.
    pub fn new<S: AsRef<str>>(whole: &Items, groups: &[S]) -> Self {
        let mut groups: Vec<Box<str>> = groups.iter().map(|g| g.as_ref().into()).collect();
        groups.sort_unstable();
        groups.dedup();
        let empty = Self {
            groups: groups.into(),
            whole: Items::default(),
            part: Items::default(),
            listed: OrdMap::new(),
        };
        empty.follow(whole)
    }

    /// The part.
    pub fn items(&self) -> &Items {
        &self.part
    }

    /// The same groups' part of a later registry.
    #[must_use]
    pub fn follow(&self, whole: &Items) -> Self {
        let mut next = Self { whole: whole.clone(), ..self.clone() };
        let delta = self.whole.diff(whole);
        next.channels(&delta);
        for credential in &delta.credentials {
            if next.listed.contains_key(&CredentialId(credential.credential_id)) {
                next.part.insert(Item::Credential(credential.clone()));
            }
        }
        for status in &delta.statuses {
            let subject = status.subject.as_ref().and_then(convert::subject);
            if subject.is_some_and(|s| next.concerns(&s)) {
                next.part.insert(Item::Status(status.clone()));
            }
        }
        for policy in &delta.policies {
            if policy.group.is_empty() || next.has_group(&policy.group) {
                next.part.insert(Item::Policy(policy.clone()));
            }
        }
        delta.removed.iter().for_each(|key| next.part.remove(key));
        next
    }

    fn channels(&mut self, delta: &Delta) {
        for channel in &delta.channels {
            let id = ChannelId(channel.channel_id);
            let before = self.part.channel(id).cloned();
            let visible = self.sees(channel);
            if visible {
                self.part.insert(Item::Channel(channel.clone()));
                channel.credential_ids.iter().for_each(|c| self.list(CredentialId(*c)));
                if before.is_none() {
                    self.take_statuses(id);
                }
            }
            if let Some(before) = before {
                self.leave(id, &before, visible);
            }
        }
        for key in &delta.removed {
            if let ItemKey::Channel(id) = key
                && let Some(before) = self.part.channel(*id).cloned()
            {
                self.leave(*id, &before, false);
            }
        }
    }

    /// Undoes what an older content of a channel brought in.
    fn leave(&mut self, id: ChannelId, before: &pb::Channel, still_visible: bool) {
        before.credential_ids.iter().for_each(|c| self.unlist(CredentialId(*c)));
        if !still_visible {
            self.part.remove(&ItemKey::Channel(id));
            self.part.remove(&ItemKey::Status(Subject::Channel(id)));
            let gone: Vec<_> = self.part.ability_statuses(id).map(|(s, _)| s.clone()).collect();
            gone.into_iter().for_each(|subject| self.part.remove(&ItemKey::Status(subject)));
        }
    }

    fn take_statuses(&mut self, id: ChannelId) {
        if let Some(status) = self.whole.status(&Subject::Channel(id)) {
            self.part.insert(Item::Status(status.clone()));
        }
        for (_, status) in self.whole.ability_statuses(id) {
            self.part.insert(Item::Status(status.clone()));
        }
    }

    fn list(&mut self, id: CredentialId) {
        let count = self.listed.get(&id).copied().unwrap_or(0);
        self.listed.insert(id, count + 1);
        if count == 0 {
            if let Some(credential) = self.whole.credential(id) {
                self.part.insert(Item::Credential(credential.clone()));
            }
            if let Some(status) = self.whole.status(&Subject::Credential(id)) {
                self.part.insert(Item::Status(status.clone()));
            }
        }
    }

    fn unlist(&mut self, id: CredentialId) {
        match self.listed.get(&id).copied() {
            Some(count) if count > 1 => {
                self.listed.insert(id, count - 1);
            }
            _ => {
                self.listed.remove(&id);
                self.part.remove(&ItemKey::Credential(id));
                self.part.remove(&ItemKey::Status(Subject::Credential(id)));
            }
        }
    }

    fn concerns(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Channel(id) | Subject::Ability { channel: id, .. } => self.part.channel(*id).is_some(),
            Subject::Credential(id) => self.listed.contains_key(id),
        }
    }

    fn sees(&self, channel: &pb::Channel) -> bool {
        match channel.groups.as_slice() {
            [] => self.has_group(DEFAULT_GROUP),
            groups => groups.iter().any(|g| self.has_group(g)),
        }
    }

    fn has_group(&self, group: &str) -> bool {
        self.groups.binary_search_by(|g| (**g).cmp(group)).is_ok()
    }
}
