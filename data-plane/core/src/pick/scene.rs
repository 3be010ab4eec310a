//! How one candidate stands at this moment: status, overlay, breaker, and what the request tried.

use std::sync::{MutexGuard, RwLockReadGuard};
use std::time::Duration;

use super::{Pick, Tried};
use crate::backoff::Series;
use crate::health;
use crate::health::gate::{Door, GateKey, Generation, Held};
use crate::ids::Subject;
use crate::overlay;
use crate::spec::Credential;
use crate::table::Member;
use crate::view::{Out, Outs};
use crate::words::Cause;

/// How fit a candidate is, the fittest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// Nothing speaks against it.
    Free,
    /// Open to one request, which tries first.
    Trial,
    /// Somebody is trying it.
    Busy,
    /// Too many failures in a row.
    Unhealthy,
    /// Throttled for as long as we thought fit.
    Throttled,
    /// Throttled for as long as the provider said: always obeyed.
    Hinted,
    /// A dead key, an empty account, an unknown model, an operator's decision.
    Dead,
    /// This request has been there.
    Tried,
}

/// A fit, and until when, where that is known.
pub(super) type Standing = (Fit, Option<Duration>);

const FREE: Standing = (Fit::Free, None);

/// What a pick looks at, locked for as long as it takes.
pub(super) struct Scene<'a> {
    pub(super) pick: &'a Pick<'a>,
    overlays: Option<RwLockReadGuard<'a, overlay::State>>,
    pub(super) health: Option<MutexGuard<'a, health::State>>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(pick: &'a Pick<'a>) -> Self {
        let overlays = (!pick.overlays.is_empty()).then(|| pick.overlays.read());
        let calm = overlays.is_none() && pick.health.is_calm() && !pick.view.has_outs();
        let health = (!calm).then(|| pick.health.lock());
        Self { pick, overlays, health }
    }

    /// How a candidate stands; its keys count by the best of them.
    pub(super) fn standing(&self, member: &Member, tried: Option<&Tried>) -> Standing {
        let spec = &member.line.spec;
        if tried.is_some_and(|t| t.channels.contains(&spec.id)) {
            return (Fit::Tried, None);
        }
        if self.health.is_none() {
            return self.free_keys(member, tried);
        }
        let outs = self.pick.view.outs(spec.id);
        let around = self.around(member, outs, &mut None);
        if !member.line.wants_key() {
            return around;
        }
        let keys = member.line.keys.iter().map(|key| self.key(member, outs, key, tried, &mut None));
        let best = keys.reduce(milder).unwrap_or((Fit::Dead, None));
        harsher(around, best)
    }

    /// Where nothing is out anywhere, only what was tried counts.
    fn free_keys(&self, member: &Member, tried: Option<&Tried>) -> Standing {
        if !member.line.wants_key() {
            return FREE;
        }
        let Some(tried) = tried.filter(|t| !t.credentials.is_empty()) else {
            return if member.line.keys.is_empty() { (Fit::Dead, None) } else { FREE };
        };
        let untried = member.line.keys.iter().any(|key| !tried.credentials.contains(&key.id));
        if untried { FREE } else { (Fit::Tried, None) }
    }

    /// What concerns the channel and the model with any key. Trials found on the way are put into `held`.
    pub(super) fn around(
        &self,
        member: &Member,
        outs: Option<&Outs>,
        held: &mut Option<Vec<Held>>,
    ) -> Standing {
        let (id, model) = (member.line.spec.id, &member.model.name);
        let ability = || Subject::Ability { channel: id, model: model.clone(), credential: None };
        let own = outs.and_then(|o| o.own.as_ref());
        let named = outs.and_then(|o| o.ability(model, None));
        let mut standing = self.subject(own, || Subject::Channel(id), true, held);
        standing = harsher(standing, self.subject(named, ability, true, held));
        if let (Some(overlays), Some(endpoint)) = (&self.overlays, self.pick.endpoint)
            && let Some(until) = overlays.lacks(id, model, endpoint)
            && until > self.pick.now
        {
            standing = harsher(standing, (Fit::Dead, None));
        }
        standing
    }

    /// What concerns one key, alone and with the model.
    pub(super) fn key(
        &self,
        member: &Member,
        outs: Option<&Outs>,
        key: &Credential,
        tried: Option<&Tried>,
        held: &mut Option<Vec<Held>>,
    ) -> Standing {
        if tried.is_some_and(|t| t.credentials.contains(&key.id)) {
            return (Fit::Tried, None);
        }
        let (channel, model) = (member.line.spec.id, &member.model.name);
        let ability = || Subject::Ability { channel, model: model.clone(), credential: Some(key.id) };
        let own = outs.and_then(|o| o.credential(key.id));
        let named = outs.and_then(|o| o.ability(model, Some(key.id)));
        let standing = self.subject(own, || Subject::Credential(key.id), false, held);
        harsher(standing, self.subject(named, ability, false, held))
    }

    /// One subject: its status, its overlay, its breaker.
    fn subject(
        &self,
        out: Option<&Out>,
        subject: impl Fn() -> Subject,
        may_break: bool,
        held: &mut Option<Vec<Held>>,
    ) -> Standing {
        let mut standing = out.map_or(FREE, |out| self.out(out, &subject, held));
        if let Some(overlays) = &self.overlays
            && let Some(entry) = overlays.entry(&subject())
        {
            standing = harsher(standing, self.overlay(entry, &subject, held));
        }
        if let Some(health) = self.health.as_ref().filter(|h| may_break && !h.breakers.is_empty())
            && let Some(breaker) = health.breakers.get(&subject())
        {
            let door = breaker.door(self.pick.now);
            let found = through(door, || Held::Breaker(subject()), held);
            standing = harsher(standing, found.unwrap_or((Fit::Unhealthy, Some(breaker.until))));
        }
        standing
    }

    fn out(&self, out: &Out, subject: &impl Fn() -> Subject, held: &mut Option<Vec<Held>>) -> Standing {
        let standing = (by_cause(out.cause, out.hinted), out.until);
        let due = out.until.is_some_and(|until| until <= self.pick.now);
        let series = match out.cause {
            Cause::Throttled => None,
            Cause::Operator => return standing,
            Cause::Unhealthy => Some(Series::SOFT),
            Cause::Credential | Cause::Quota | Cause::ModelUnavailable => Some(Series::HARD),
        };
        // A throttle ends by itself; the rest is tried only while no control plane could probe it.
        if !due || (series.is_some() && !self.pick.alone) {
            return standing;
        }
        let key = || GateKey { subject: subject(), of: Generation::Status(out.revision) };
        self.gate(key, series, standing.0, held)
    }

    fn overlay(
        &self,
        entry: &overlay::Entry,
        subject: &impl Fn() -> Subject,
        held: &mut Option<Vec<Held>>,
    ) -> Standing {
        if entry.until > self.pick.now {
            return (by_cause(entry.cause, entry.hinted), Some(entry.until));
        }
        let key = || GateKey { subject: subject(), of: Generation::Overlay(entry.serial) };
        self.gate(key, None, Fit::Busy, held)
    }

    fn gate(
        &self,
        key: impl Fn() -> GateKey,
        series: Option<Series>,
        shut: Fit,
        held: &mut Option<Vec<Held>>,
    ) -> Standing {
        let paced = series.is_some();
        let door = self.health.as_ref().map_or(Door::One, |h| h.door(&key(), self.pick.now, paced));
        let busy = if paced { shut } else { Fit::Busy };
        through(door, || Held::Gate(key(), series), held).unwrap_or(match door {
            Door::Shut(until) => (shut, Some(until)),
            _ => (busy, None),
        })
    }
}

/// Free or a trial, if the door is open; the trial is noted.
fn through(door: Door, trial: impl FnOnce() -> Held, held: &mut Option<Vec<Held>>) -> Option<Standing> {
    match door {
        Door::Open => Some(FREE),
        Door::One => {
            if let Some(held) = held {
                held.push(trial());
            }
            Some((Fit::Trial, None))
        }
        Door::Busy | Door::Shut(_) => None,
    }
}

fn by_cause(cause: Cause, hinted: bool) -> Fit {
    match cause {
        Cause::Unhealthy => Fit::Unhealthy,
        Cause::Throttled if hinted => Fit::Hinted,
        Cause::Throttled => Fit::Throttled,
        Cause::ModelUnavailable | Cause::Quota | Cause::Credential | Cause::Operator => Fit::Dead,
    }
}

/// Both hold: the harsher one, and the later time where they are alike.
fn harsher(a: Standing, b: Standing) -> Standing {
    if a.0 == b.0 {
        (a.0, a.1.max(b.1))
    } else if a.0 > b.0 {
        a
    } else {
        b
    }
}

/// Either will do: the milder one, and the earlier time where they are alike.
fn milder(a: Standing, b: Standing) -> Standing {
    match a.0.cmp(&b.0) {
        std::cmp::Ordering::Less => a,
        std::cmp::Ordering::Greater => b,
        std::cmp::Ordering::Equal => (a.0, a.1.into_iter().chain(b.1).min()),
    }
}
