//! What a rollout does next. Pure: evidence and the time in, one action out.

use std::time::Duration;

use spareline_proto::admin::v1::{Gate, RolloutState, Stage};
use time::OffsetDateTime;

use super::gate::{self, Answer, Evidence};

/// Where a rollout stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing<'a> {
    /// What it is doing.
    pub state: RolloutState,
    /// All its stages.
    pub stages: &'a [Stage],
    /// Which is in force.
    pub current: usize,
    /// When it began, by the database's clock.
    pub started: OffsetDateTime,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing: what is waited for, one line each.
    Hold(Vec<String>),
    /// The next stage.
    Advance,
    /// The change becomes the registry.
    Finish,
    /// Stop here, and say why.
    Pause(String),
}

/// Decides. Only an active rollout ever moves, and only at the end of its stage's bake time with its gate open.
pub(crate) fn step(standing: &Standing<'_>, evidence: &Evidence, now: OffsetDateTime) -> Action {
    match standing.state {
        RolloutState::Active => {}
        RolloutState::Paused => return Action::Hold(vec!["somebody to resume or abort it".to_owned()]),
        _ => return Action::Hold(Vec::new()),
    }
    let Some(stage) = standing.stages.get(standing.current) else {
        return Action::Pause("it has no such stage".to_owned());
    };
    let none = Gate::default();
    let mut waiting = match gate::ask(stage.gate.as_ref().unwrap_or(&none), evidence) {
        Answer::Broken(why) => return Action::Pause(why),
        Answer::Shut(missing) => missing,
        Answer::Open => Vec::new(),
    };
    if stage.percent <= 0 {
        waiting = vec!["somebody to advance it: a stage of 0 % reaches nobody".to_owned()];
    }
    let bake = stage.bake_time.and_then(|d| Duration::try_from(d).ok()).unwrap_or_default();
    let until = standing.started.checked_add(time::Duration::try_from(bake).unwrap_or(time::Duration::MAX));
    if until.is_none_or(|until| now < until) {
        let rfc3339 = |at: OffsetDateTime| {
            at.format(&time::format_description::well_known::Rfc3339).unwrap_or_default()
        };
        waiting.push(format!("the bake time, until {}", until.map(rfc3339).unwrap_or_default()));
    }
    if !waiting.is_empty() {
        return Action::Hold(waiting);
    }
    if standing.current + 1 < standing.stages.len() { Action::Advance } else { Action::Finish }
}
