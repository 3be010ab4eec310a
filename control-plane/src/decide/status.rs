//! One subject's serving state, as the database keeps it.

use spareline_core::Cause;
use spareline_proto::registry::v1 as pb;
use time::OffsetDateTime;

/// Whether picks may use a subject. `probing` is not a state: readers derive it from a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Eligible.
    #[default]
    Active,
    /// Out.
    Disabled,
}

impl State {
    /// The word the database uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Disabled => "disabled",
        }
    }
}

/// A verdict that waits for a probe of our own. Not part of the registry: it bumps no revision and reaches no proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    /// What the evidence claims.
    pub cause: Cause,
    /// One line for humans.
    pub reason: String,
    /// Who said so: `proxy:ID`.
    pub actor: String,
    /// What was seen.
    pub evidence: Option<pb::Evidence>,
    /// When it was first asked for.
    pub since: OffsetDateTime,
    /// Held back by the budget rather than unproven.
    pub suppressed: bool,
}

/// A row of `statuses` without its key. The default is what a subject without a row has: active, no fence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Whether picks may use it.
    pub state: State,
    /// Why it is out; `None` while active.
    pub cause: Option<Cause>,
    /// One line for humans.
    pub reason: String,
    /// Who wrote this state: a user, `proxy:ID`, `prober`.
    pub actor: String,
    /// What was seen, where a machine took it out.
    pub evidence: Option<pb::Evidence>,
    /// Routed, but failing somewhere in the fleet.
    pub degraded: bool,
    /// When it left `Active`.
    pub disabled_at: Option<OffsetDateTime>,
    /// When the prober last tried it.
    pub last_probed_at: Option<OffsetDateTime>,
    /// Throttled: active again from then on. Otherwise when the prober tries next.
    pub retry_at: Option<OffsetDateTime>,
    /// `retry_at` came from the provider.
    pub hinted: bool,
    /// The back-off exponent.
    pub failed_probes: u32,
    /// How often in a row it was throttled without a hint, for `throttle_initial`.
    pub throttles: u32,
    /// When the last throttle ended or ends.
    pub throttled_until: Option<OffsetDateTime>,
    /// The registry revision of this content; zero: never published.
    pub revision: i64,
    /// Verdicts observed below it are stale.
    pub fence: i64,
    /// A verdict waiting for a probe.
    pub pending: Option<Pending>,
    /// When the prober tries a pending verdict next.
    pub pending_due: Option<OffsetDateTime>,
}

impl Status {
    /// Whether it is out at `now`: a throttle whose time is over reads as active.
    pub fn is_out(&self, now: OffsetDateTime) -> bool {
        self.state == State::Disabled && !self.throttle_over(now)
    }

    /// Whether it is a throttle whose time is over, not tidied yet.
    pub fn throttle_over(&self, now: OffsetDateTime) -> bool {
        self.state == State::Disabled
            && self.cause == Some(Cause::Throttled)
            && self.retry_at.is_none_or(|at| at <= now)
    }

    /// The cause in force at `now`, if it is out.
    pub fn cause_in_force(&self, now: OffsetDateTime) -> Option<Cause> {
        if self.is_out(now) { self.cause } else { None }
    }

    /// The same without the verdict that waited for a probe: it was answered, or forgotten.
    #[must_use]
    pub(super) fn unclaimed(self) -> Self {
        Self { pending: None, pending_due: None, ..self }
    }

    /// When the prober should look at it next, if ever.
    pub fn due_at(&self) -> Option<OffsetDateTime> {
        if self.pending.is_some() {
            return self.pending_due;
        }
        match (self.state, self.cause) {
            (State::Disabled, Some(Cause::Operator | Cause::Throttled) | None) | (State::Active, _) => None,
            (State::Disabled, Some(_)) => self.retry_at,
        }
    }
}
