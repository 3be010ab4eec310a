//! Statuses, as the picker reads them: only what is out, beside the channel it concerns, times in local terms.

use std::sync::Arc;
use std::time::Duration;

use spareline_proto::registry::v1 as pb;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Clock, View};
use crate::convert;
use crate::ids::{ChannelId, CredentialId, Revision, Subject};
use crate::spec::ChannelSpec;
use crate::words::Cause;

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
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl Outs {
    /// One credential.
    pub fn credential(&self, id: CredentialId) -> Option<&Out> {
        self.credentials.iter().find(|(c, _)| *c == id).map(|(_, out)| out)
    }

    /// One model, with one credential or with all.
    pub fn ability(&self, model: &str, credential: Option<CredentialId>) -> Option<&Out> {
        self.abilities.iter().find(|(m, c, _)| *c == credential && &**m == model).map(|(_, _, out)| out)
    }

    /// One subject.
    pub fn of(&self, subject: &Subject) -> Option<&Out> {
        match subject {
            Subject::Channel(_) => self.own.as_ref(),
            Subject::Credential(id) => self.credential(*id),
            Subject::Ability { model, credential, .. } => self.ability(model, *credential),
        }
    }

    fn is_empty(&self) -> bool {
        self.own.is_none() && self.credentials.is_empty() && self.abilities.is_empty()
    }
}

impl Out {
    /// Whether it is a throttle whose time has passed.
    pub fn is_over(&self, now: Duration) -> bool {
        self.cause == Cause::Throttled && self.until.is_some_and(|until| until <= now)
    }
}

impl View {
    /// Reads the statuses beneath one channel anew.
    pub(super) fn refresh_outs(&mut self, id: ChannelId, clock: Clock) {
        let outs = self.lines.get(&id).map(|line| self.outs_beneath(&line.spec, clock));
        match outs.filter(|outs| !outs.is_empty()) {
            Some(outs) => self.outs.insert(id, Arc::new(outs)),
            None => self.outs.remove(&id),
        };
    }

    fn outs_beneath(&self, spec: &ChannelSpec, clock: Clock) -> Outs {
        let out = |subject: &Subject| self.read(self.items.status(subject)?, clock);
        let abilities = self.items.ability_statuses(spec.id).filter_map(|(subject, status)| match subject {
            Subject::Ability { model, credential, .. } => {
                Some((model.clone(), *credential, self.read(status, clock)?))
            }
            _ => None,
        });
        Outs {
            own: out(&Subject::Channel(spec.id)),
            credentials: spec
                .credentials
                .iter()
                .filter_map(|id| Some((*id, out(&Subject::Credential(*id))?)))
                .collect(),
            abilities: abilities.collect(),
        }
    }

    /// One status; `None`: it takes nothing out.
    fn read(&self, status: &pb::Status, clock: Clock) -> Option<Out> {
        let spec = convert::status(status).ok()?;
        let cause = spec.cause?;
        let jitter = if cause == Cause::Throttled { self.jitter(status) } else { Duration::ZERO };
        let until = match (status.retry_at.as_ref(), clock.server_time.as_ref()) {
            // Added up before the process's own clock, which cannot say what was before its start, comes in.
            (Some(retry_at), Some(server)) => {
                let left = convert::nanos_between(server, retry_at);
                Some(later(clock.now, left.saturating_add_unsigned(jitter.as_nanos())))
            }
            _ if cause == Cause::Throttled => Some(clock.now + self.fleet.throttle_default + jitter),
            _ => None,
        };
        Some(Out { cause, until, hinted: spec.hinted, revision: spec.revision })
    }

    /// 0 to 10 % of a throttle's length: the same at every look, another on every proxy.
    fn jitter(&self, status: &pb::Status) -> Duration {
        let (Some(from), Some(to)) = (&status.disabled_at, &status.retry_at) else { return Duration::ZERO };
        let length = later(Duration::ZERO, convert::nanos_between(from, to)).min(Duration::from_secs(3600));
        let dice = xxh3_64_with_seed(&status.revision.to_le_bytes(), self.seed);
        length.mul_f64(0.1 * (dice >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

/// `from` and so many nanoseconds, which may be negative.
fn later(from: Duration, nanos: i128) -> Duration {
    let gap = Duration::from_nanos(u64::try_from(nanos.unsigned_abs()).unwrap_or(u64::MAX));
    if nanos < 0 { from.saturating_sub(gap) } else { from.saturating_add(gap) }
}
