//! Making the next view from an update or a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Clock, Rejection, View};
use crate::classify::Rules;
use crate::convert::{self, Violation};
use crate::ids::{ChannelId, CredentialId, Revision, Subject};
use crate::items::{Delta, Item, ItemKey, Items};
use crate::policy::{FleetPolicy, RequestPolicy};
use crate::secret::Secret;
use crate::spec::{ChannelSpec, Credential};
use crate::table::{Changes, Line};

/// What an update touches.
#[derive(Default)]
struct Touched {
    /// Channels whose line is to be made anew, with a new spec where there is one.
    lines: BTreeMap<ChannelId, Option<Arc<ChannelSpec>>>,
    /// Channels whose statuses are to be read anew.
    outs: BTreeSet<ChannelId>,
    credentials: BTreeSet<CredentialId>,
    policies: bool,
    rejections: Vec<Rejection>,
}

impl View {
    /// With an update made. What does not compile is left as it was and answered.
    pub fn apply(&self, delta: &Delta, revision: Revision, clock: Clock) -> (Self, Vec<Rejection>) {
        let mut next = Self { revision, ..self.clone() };
        let mut touched = Touched::default();
        for item in delta.items() {
            next.take(item, &mut touched);
        }
        for key in &delta.removed {
            next.drop_item(key, &mut touched);
        }
        next.compile(touched, clock)
    }

    /// With everything replaced; what did not change is shared, and what does not compile keeps its older version.
    pub fn replace(
        &self,
        items: &Items,
        epoch: &str,
        revision: Revision,
        clock: Clock,
    ) -> (Self, Vec<Rejection>) {
        let delta = if *self.epoch == *epoch {
            self.items.diff(items)
        } else {
            // Versions of another history say nothing about content.
            let mut all = Delta::default();
            items.iter().for_each(|item| all.push(item));
            all.removed = self.items.diff(items).removed;
            all
        };
        let (mut next, rejections) = self.apply(&delta, revision, clock);
        next.epoch = Arc::from(epoch);
        (next, rejections)
    }

    /// Takes one item in, if it compiles.
    fn take(&mut self, item: Item, touched: &mut Touched) {
        let (Some(key), version) = (item.key(), item.version()) else { return };
        match self.check(&item, touched) {
            Ok(()) => {
                self.items.insert(item);
            }
            Err(violations) => {
                let text: Vec<_> = violations.iter().map(Violation::to_string).collect();
                let kept = self.items.version(&key);
                touched.rejections.push(Rejection { key, version, kept, message: text.join("; ") });
            }
        }
    }

    fn check(&self, item: &Item, touched: &mut Touched) -> Result<(), Vec<Violation>> {
        match item {
            Item::Policy(policy) => {
                convert::policy(policy)?;
                touched.policies = true;
            }
            Item::Channel(wire) => {
                let spec = convert::channel(wire)?;
                positive("channel_id", wire.channel_id)?;
                touched.lines.insert(spec.id, Some(Arc::new(spec)));
            }
            Item::Credential(wire) => {
                positive("credential_id", wire.credential_id)?;
                touched.credentials.insert(CredentialId(wire.credential_id));
            }
            Item::Status(wire) => self.touch_outs(&convert::status(wire)?.subject, touched),
        }
        Ok(())
    }

    fn drop_item(&mut self, key: &ItemKey, touched: &mut Touched) {
        match key {
            ItemKey::Policy(_) => touched.policies = true,
            ItemKey::Channel(id) => {
                touched.lines.insert(*id, None);
            }
            ItemKey::Credential(id) => {
                touched.credentials.insert(*id);
            }
            ItemKey::Status(subject) => self.touch_outs(subject, touched),
        }
        self.items.remove(key);
    }

    fn touch_outs(&self, subject: &Subject, touched: &mut Touched) {
        match subject {
            Subject::Channel(id) | Subject::Ability { channel: id, .. } => {
                touched.outs.insert(*id);
            }
            Subject::Credential(id) => touched.outs.extend(self.listing(*id)),
        }
    }

    fn compile(mut self, mut touched: Touched, clock: Clock) -> (Self, Vec<Rejection>) {
        for credential in &touched.credentials {
            for id in self.listing(*credential) {
                touched.lines.entry(id).or_insert_with(|| self.lines.get(&id).map(|l| l.spec.clone()));
            }
        }
        if touched.policies {
            self.compile_policies();
        }
        let mut changes = Changes::default();
        for (id, spec) in touched.lines {
            let before = self.lines.get(&id).cloned();
            let after = spec.map(|spec| Arc::new(self.line_of(spec)));
            changes.channel(id, before.as_ref(), after.as_ref());
            self.put_line(id, before.as_deref(), after);
            touched.outs.insert(id);
        }
        self.table.change(changes);
        for id in touched.outs {
            self.refresh_outs(id, clock);
        }
        (self, touched.rejections)
    }

    fn line_of(&self, spec: Arc<ChannelSpec>) -> Line {
        let key = |id: &CredentialId| {
            let wire = self.items.credential(*id)?;
            Some(Arc::new(Credential {
                id: *id,
                secret: Secret::new(wire.secret.as_str()),
                fingerprint: Arc::from(wire.fingerprint.as_str()),
            }))
        };
        let keys = spec.credentials.iter().filter_map(key).collect();
        Line { spec, keys }
    }

    fn put_line(&mut self, id: ChannelId, before: Option<&Line>, after: Option<Arc<Line>>) {
        if let Some(before) = before {
            for credential in &before.spec.credentials {
                self.listed.remove(&(*credential, id));
            }
            if self.names.get(&before.spec.name) == Some(&id) {
                self.names.remove(&before.spec.name);
            }
        }
        match after {
            None => {
                self.lines.remove(&id);
            }
            Some(line) => {
                for credential in &line.spec.credentials {
                    self.listed.insert((*credential, id));
                }
                self.names.insert(line.spec.name.clone(), id);
                self.lines.insert(id, line);
            }
        }
    }

    fn compile_policies(&mut self) {
        let global = self.items.policy("").cloned();
        let global = global.as_deref();
        self.fleet = FleetPolicy::resolve(global);
        let rules = global.map(|g| g.rules.as_slice()).unwrap_or_default();
        self.rules = Arc::new(Rules::with_operator(rules).unwrap_or_else(|_| Rules::builtin()));
        let own = self.items.policies().filter(|(group, _)| !group.is_empty());
        let own = own.map(|(group, p)| (group.clone(), Arc::new(RequestPolicy::resolve(global, Some(p)))));
        let mut policies: imbl::OrdMap<_, _> = own.collect();
        policies.insert(Arc::from(""), Arc::new(RequestPolicy::resolve(global, None)));
        self.policies = policies;
    }
}

fn positive(field: &str, id: i64) -> Result<(), Vec<Violation>> {
    if id > 0 {
        return Ok(());
    }
    Err(vec![Violation::new(field, "must be positive")])
}
