//! Requests about objects that one account stores.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use spareline_core::{Cause, Subject, spec::Credential, table::Line, view::View};
use tokio::time::Instant;

use super::{Committed, Outcome, Try, Upstream, guard::describe, last, upstream};
use crate::{
    http::error::{ApiError, Code},
    plan::Plan,
    record::{AttemptRecord, Record},
    state::Shared,
};

/// An operator took out the channel, or every key of it.
struct Disabled;

/// The first key that is in, else the first that only a machine took out: the object is nowhere else. What an operator took
/// out gets nothing.
fn key_of<'v>(view: &View, line: &'v Line, now: Duration) -> Result<Option<&'v Arc<Credential>>, Disabled> {
    let cause = |subject: Subject| view.out(&subject, now).map(|out| out.cause);
    if cause(Subject::Channel(line.spec.id)) == Some(Cause::Operator) {
        return Err(Disabled);
    }
    let of_key = |key: &Arc<Credential>| cause(Subject::Credential(key.id));
    let usable = line.keys.iter().find(|key| of_key(key).is_none());
    let key = usable.or_else(|| line.keys.iter().find(|key| of_key(key) != Some(Cause::Operator)));
    if key.is_none() && line.wants_key() { Err(Disabled) } else { Ok(key) }
}

/// About an object that one account stores: its channel, one key, one attempt; nobody is blamed.
pub(super) async fn run<U: Upstream>(
    shared: &Shared,
    via: &U,
    plan: &Plan,
    record: &mut Record,
) -> Outcome<U::Answer> {
    let view = shared.view();
    let policy = view.policy(&plan.group).clone();
    let Some(name) = &policy.stateful_channel else {
        let text = "stored objects are not supported: the group has no stateful_channel";
        return Outcome::Failed(ApiError::new(Code::EndpointNotSupported, text));
    };
    let Some(line) = view.line_by_name(name).filter(|l| l.spec.groups.contains(&plan.group)) else {
        let text = "the group's stateful_channel does not exist";
        return Outcome::Failed(ApiError::new(Code::ChannelNotFound, text));
    };
    let Ok(key) = key_of(&view, line, shared.now()) else {
        let text = "an operator has disabled the group's stateful_channel";
        return Outcome::Failed(ApiError::new(Code::AllChannelsFailed, text));
    };
    record.known_model = view.table().entry(&plan.group, &plan.model).is_some();
    let limits = policy.limits_of(line.spec.limits);
    let model = line.spec.model(&plan.model);
    let tried = Try {
        spec: &line.spec,
        secret: key.map(|c| c.secret.expose()),
        upstream_model: model.and_then(|m| upstream::model_to_send(plan, m)),
        limits: spareline_upstream::Limits {
            connect: limits.connect_timeout,
            first_content: Some(limits.first_content_timeout),
            response: limits.response_timeout,
            idle: limits.idle_timeout,
            deadline: policy.deadline,
        },
        commit: plan.commit,
        request_usage: policy.request_usage,
        rules: view.rules(),
        budget: &shared.budget,
        now: SystemTime::now(),
        request: &plan.outgoing,
        heard: &AtomicBool::new(false),
    };
    let began = Instant::now();
    let result = via.attempt(tried).await;
    let mut attempt = AttemptRecord {
        channel: line.spec.name.clone(),
        rank: key.and_then(|key| line.spec.shown_rank(key.id)),
        outcome: "ok",
        status: 0,
        word: "",
        last_resort: false,
        took: began.elapsed(),
    };
    match result {
        Ok(answer) => {
            attempt.status = U::status(&answer);
            record.attempt(attempt);
            Outcome::Answer(Committed { answer, account: None, write_timeout: limits.write_timeout })
        }
        Err(failed) => {
            (attempt.outcome, attempt.status, attempt.word) = describe(&failed);
            record.attempt(attempt);
            if failed.overloaded {
                return Outcome::Failed(crate::http::overloaded());
            }
            last::pass(*failed, &policy, false)
        }
    }
}
