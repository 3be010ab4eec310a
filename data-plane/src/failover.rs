//! One request over several channels: pick, attempt, judge, go on, until there is an answer or nothing more to try.
//!
//! Invariants: live state is read anew for every attempt; a channel (or, after a verdict about a key, that key) that
//! was tried is not tried again, save where a policy says so; what an attempt taught is in force before the next pick;
//! dropping the future ends everything at once, blames nobody and frees what was held.

mod end;
mod guard;
mod last;
mod react;
mod retries;
mod stored;
#[cfg(test)]
mod tests;
mod upstream;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use spareline_core::{
    Class,
    classify::{EvidenceKind, Limit},
    health::Ticket,
    pick::{Pick, Picked, Reason, Tried, pick},
    policy::RequestPolicy,
    view::View,
};
use spareline_upstream::{Answer, Clients, Failed};
use tokio::time::Instant;

pub use end::watch_body;
pub use retries::RetryBudgets;
pub(crate) use upstream::{Try, Upstream};

use guard::{Guard, remember, remember_failure};

use crate::{
    http::{Stopping, error::ApiError},
    plan::Plan,
    record::{Record, Recorder},
    state::Shared,
};

/// What one worker thread has for itself.
pub struct Worker {
    /// Shared with the others.
    pub shared: Arc<Shared>,
    /// Its own connections to upstreams.
    pub clients: Clients,
    /// Tells its connections to end.
    pub stopping: Stopping,
    /// Writes the endings of its requests.
    pub recorder: Arc<Recorder>,
}

impl Worker {
    /// A worker.
    #[must_use]
    pub fn new(shared: Arc<Shared>, clients: Clients) -> Self {
        let recorder = shared.recorder.sibling();
        Self { shared, clients, stopping: Stopping::default(), recorder }
    }
}

/// What a request came to.
pub enum Outcome<A = Answer> {
    /// An upstream's answer, committed.
    Answer(Committed<A>),
    /// An upstream's refusal, passed on.
    Passed {
        /// For the caller.
        status: StatusCode,
        /// For the caller.
        headers: HeaderMap,
        /// For the caller.
        body: Bytes,
    },
    /// An error of ours.
    Failed(ApiError),
}

/// A committed answer and what hangs on its end.
pub struct Committed<A = Answer> {
    /// The answer.
    pub answer: A,
    /// Who is to be blamed when it breaks; `None`: nobody.
    pub account: Option<Account>,
    /// How long the caller may take nothing.
    pub write_timeout: Duration,
}

/// An attempt's account, open until its answer ended.
pub struct Account {
    /// Health's.
    pub ticket: Ticket,
    /// Of the request's body.
    pub body_hash: u64,
}

/// Keeps a worker's lines in step with the registry.
pub async fn upkeep(worker: Arc<Worker>) {
    let mut seen = worker.shared.view().revision();
    let mut every = tokio::time::interval(Duration::from_secs(5));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let view = worker.shared.view();
        if view.revision() != seen {
            seen = view.revision();
            worker.clients.retain(|id| view.line(id).is_some());
        }
    }
}

/// Where a request stands between two attempts.
struct Progress {
    tried: Tried,
    /// Attempts that count.
    attempts: u32,
    /// Attempts that ended in a dead key and do not count.
    dead: u32,
    /// An attempt ended with an outcome nobody knows, and was switched away from.
    uncertain: bool,
    /// `first_content_timeout` fired: it is not armed again.
    first_content_fired: bool,
    /// Retries spent on the same channel.
    same_channel: u32,
    /// The next pick goes to this channel.
    stay: Option<Arc<str>>,
    /// All picks go to this channel.
    pinned: Option<Arc<str>>,
    /// The limit that ended the last attempt.
    limit: Option<Limit>,
    /// The last attempt was throttled.
    throttled: bool,
}

/// What follows a failed attempt.
enum Next {
    /// Another attempt.
    Again,
    /// Another attempt, on the same channel, after a pause.
    Wait(Duration),
    /// The end.
    Stop(Stop),
}

/// How a request ends without an answer.
enum Stop {
    /// Pass on what the upstream said.
    Pass {
        /// The policy says so; otherwise it would switch but may not.
        meant: bool,
    },
    /// Not once more.
    Enough,
    /// `body_memory` is used up.
    Overloaded,
}

/// Runs the loop; attempts are remembered in `record` as they end.
pub(crate) async fn run<U: Upstream>(
    shared: &Shared,
    upstream: &U,
    plan: &Plan,
    record: &mut Record,
) -> Outcome<U::Answer> {
    if plan.stateful {
        return Box::pin(stored::run(shared, upstream, plan, record)).await;
    }
    let started = Instant::now();
    let mut at = Progress {
        tried: Tried::default(),
        attempts: 0,
        dead: 0,
        uncertain: false,
        first_content_fired: false,
        same_channel: 0,
        stay: None,
        pinned: None,
        limit: None,
        throttled: false,
    };
    loop {
        let view = shared.view();
        let policy = &**view.policy(&plan.group);
        if at.attempts == 0
            && let Some(pin) = &plan.pin
        {
            at.pinned = Some(named(&view, &pin.channel));
        }
        let began = if at.attempts + at.dead == 0 { started } else { Instant::now() };
        let left = match policy.deadline.map(|d| d.checked_sub(began - started)) {
            Some(Some(left)) if !left.is_zero() => Some(left),
            Some(_) => return Outcome::Failed(last::timed_out(Limit::Deadline)),
            None => None,
        };
        let stay = at.stay.take();
        let chosen = match choose(shared, &view, policy, plan, &at, stay.as_ref(), began) {
            Err(_) if stay.is_some() => choose(shared, &view, policy, plan, &at, None, began),
            chosen => chosen,
        };
        let mut picked = match chosen {
            Ok(picked) => picked,
            Err(none) => return Outcome::Failed(last::none_left(&none, plan, at.limit)),
        };
        record.known_model = true;
        if policy.affinity.strict && plan.affinity.is_some() {
            at.pinned = Some(picked.channel.name.clone());
        }
        let limits = policy.limits_of(picked.model.limits);
        let heard = AtomicBool::new(false);
        let guard = Guard::new(shared, &view, plan, record, &mut picked, &heard, began);
        let line = guard.picked();
        let tried = Try {
            spec: &line.channel,
            secret: line.credential.as_ref().map(|c| c.secret.expose()),
            upstream_model: upstream::model_to_send(plan, &line.model),
            limits: spareline_upstream::Limits {
                connect: limits.connect_timeout,
                first_content: (!at.first_content_fired).then_some(limits.first_content_timeout),
                response: limits.response_timeout,
                idle: limits.idle_timeout,
                deadline: left,
            },
            commit: plan.commit,
            request_usage: policy.request_usage,
            rules: view.rules(),
            budget: &shared.budget,
            now: SystemTime::now(),
            request: &plan.outgoing,
            heard: &heard,
        };
        let result = upstream.attempt(tried).await;
        let took = guard.done();
        let failed = match result {
            Ok(answer) => {
                remember(record, &picked, took, "ok", U::status(&answer), "");
                if policy.retry_budget.is_some() {
                    shared.retries.succeeded(&plan.group, shared.now());
                }
                let account = react::committed(shared, plan, picked, U::is_stream(&answer));
                let write_timeout = limits.write_timeout;
                return Outcome::Answer(Committed { answer, account: Some(account), write_timeout });
            }
            Err(failed) => failed,
        };
        remember_failure(record, &picked, took, &failed);
        let next = follow(shared, &view, policy, plan, &mut at, picked, &failed, record);
        match next {
            Next::Again => {}
            Next::Wait(pause) => {
                let pause = left.map_or(pause, |left| pause.min(left));
                tokio::time::sleep(pause).await;
            }
            Next::Stop(Stop::Overloaded) => return Outcome::Failed(crate::http::overloaded()),
            Next::Stop(Stop::Pass { meant }) => return last::pass(*failed, policy, meant),
            Next::Stop(Stop::Enough) => {
                // Where all that is left asks to wait, saying so helps more than "enough".
                if at.throttled
                    && let Err(none) = choose(shared, &view, policy, plan, &at, None, Instant::now())
                    && none.reason == Reason::AllThrottled
                {
                    return Outcome::Failed(last::none_left(&none, plan, None));
                }
                return Outcome::Failed(last::enough(at.limit));
            }
        }
    }
}

/// The channel a caller named: by name, or by id.
fn named(view: &View, name: &Arc<str>) -> Arc<str> {
    let by_id = name.parse().ok().and_then(|id| view.line(spareline_core::ChannelId(id)));
    by_id.map_or_else(|| name.clone(), |line| line.spec.name.clone())
}

fn choose(
    shared: &Shared,
    view: &View,
    policy: &RequestPolicy,
    plan: &Plan,
    at: &Progress,
    stay: Option<&Arc<str>>,
    now: Instant,
) -> Result<Picked, spareline_core::pick::NoneLeft> {
    let pick_for = Pick {
        view,
        group: &plan.group,
        model: &plan.model,
        endpoint: plan.endpoint,
        policy,
        tried: &at.tried,
        health: &shared.health,
        overlays: &shared.overlays,
        affinity: plan.affinity.as_deref(),
        pinned: stay.or(at.pinned.as_ref()).map(|n| &**n),
        alone: shared.is_alone(),
        now: shared.at(now),
    };
    pick(&pick_for, &mut rand::rng())
}

/// Decides what follows, and puts in force what the attempt taught.
#[allow(clippy::too_many_arguments)]
fn follow(
    shared: &Shared,
    view: &View,
    policy: &RequestPolicy,
    plan: &Plan,
    at: &mut Progress,
    mut picked: Picked,
    failed: &Failed,
    record: &Record,
) -> Next {
    let verdict = &failed.verdict;
    let reaction = policy.reaction(verdict.kind, picked.channel.provider, verdict.status);
    at.limit = failed.limit;
    at.throttled = verdict.class == Class::Throttle;
    if failed.limit == Some(Limit::FirstContent) {
        at.first_content_fired = true;
    }
    if failed.overloaded {
        return Next::Stop(Stop::Overloaded);
    }
    if failed.limit == Some(Limit::Deadline) {
        // The time was up for the request, which says little about the channel.
        return Next::Stop(Stop::Enough);
    }
    let taught = react::failed(shared, view, plan, &mut picked, failed, reaction.penalise, record);
    let uncertain = verdict.unknown_outcome && !(200..300).contains(&verdict.status);
    let done_perhaps = verdict.unknown_outcome || verdict.kind == EvidenceKind::UnknownOutcome;
    if !reaction.switch {
        return Next::Stop(Stop::Pass { meant: true });
    }
    if done_perhaps && plan.side_effects {
        return Next::Stop(Stop::Pass { meant: false });
    }
    if verdict.class == Class::Disable && policy.max_dead_credentials > 0 {
        at.dead += 1;
        if at.dead > policy.max_dead_credentials {
            return Next::Stop(Stop::Enough);
        }
    } else {
        at.attempts += 1;
    }
    let transient = matches!(verdict.kind, EvidenceKind::ServerError | EvidenceKind::Network)
        || (verdict.kind == EvidenceKind::UnknownOutcome && failed.limit.is_none());
    let stay = transient && at.same_channel < policy.same_channel_retries;
    let wait = taught.throttled_for.filter(|w| policy.throttle_wait_max.is_some_and(|max| *w <= max));
    if stay {
        at.same_channel += 1;
        at.stay = Some(picked.channel.name.clone());
    } else if wait.is_some() {
        at.stay = Some(picked.channel.name.clone());
    } else if react::about_key_only(verdict) {
        at.tried.key(&picked);
    } else {
        at.tried.channel(&picked);
    }
    if plan.pin.as_ref().is_some_and(|pin| pin.switch) {
        at.pinned = None;
    }
    if at.attempts >= policy.max_attempts {
        return Next::Stop(Stop::Enough);
    }
    if uncertain && std::mem::replace(&mut at.uncertain, true) {
        return Next::Stop(Stop::Enough);
    }
    let failures = at.attempts + at.dead;
    if failures > 1 && !shared.retries.allow(&plan.group, policy.retry_budget, shared.now()) {
        return Next::Stop(Stop::Enough);
    }
    match (stay, wait) {
        (true, _) => Next::Wait(Duration::from_millis(rand::random_range(20..=120))),
        // A little more, so that the overlay has run out by then.
        (false, Some(wait)) => Next::Wait(wait + Duration::from_millis(5)),
        (false, None) => Next::Again,
    }
}
