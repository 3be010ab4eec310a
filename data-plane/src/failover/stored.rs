//! Requests about objects that one account stores.

use std::{sync::atomic::AtomicBool, time::SystemTime};

use tokio::time::Instant;

use super::{Committed, Outcome, Try, Upstream, guard::describe, last, upstream};
use crate::{
    http::error::{ApiError, Code},
    plan::Plan,
    record::{AttemptRecord, Record},
    state::Shared,
};

/// About an object that one account stores: its channel, its first key, one attempt; nobody is blamed.
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
    record.known_model = view.table().entry(&plan.group, &plan.model).is_some();
    let limits = policy.limits_of(line.spec.limits);
    let model = line.spec.model(&plan.model);
    let key = line.keys.first();
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
