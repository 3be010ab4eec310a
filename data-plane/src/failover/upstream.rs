//! The seam between the loop and the network: the real upstreams, or a scripted one in tests.

use std::{future::Future, sync::atomic::AtomicBool, time::SystemTime};

use spareline_core::{
    classify::Rules,
    spec::{ChannelSpec, ModelSpec},
};
use spareline_upstream::{
    Answer, Attempt, Budget, Clients, CommitMode, Failed, Limits, LineError, Outgoing, attempt,
};

use crate::plan::Plan;

/// One attempt's parameters.
pub(crate) struct Try<'a> {
    pub(crate) spec: &'a ChannelSpec,
    pub(crate) secret: Option<&'a str>,
    pub(crate) request: &'a Outgoing,
    pub(crate) upstream_model: Option<&'a str>,
    pub(crate) limits: Limits,
    pub(crate) commit: CommitMode,
    pub(crate) request_usage: bool,
    pub(crate) rules: &'a Rules,
    pub(crate) budget: &'a Budget,
    pub(crate) now: SystemTime,
    pub(crate) heard: &'a AtomicBool,
}

/// Where attempts go.
pub(crate) trait Upstream: Sync {
    /// A committed answer.
    type Answer: Send;

    /// Sends and judges; dropping the future ends it at once.
    fn attempt(&self, it: Try<'_>) -> impl Future<Output = Result<Self::Answer, Box<Failed>>> + Send;

    /// Its status.
    fn status(answer: &Self::Answer) -> u16;

    /// Whether it is an event stream.
    fn is_stream(answer: &Self::Answer) -> bool;
}

impl Upstream for Clients {
    type Answer = Answer;

    async fn attempt(&self, it: Try<'_>) -> Result<Answer, Box<Failed>> {
        let line = match self.line_of(it.spec) {
            Ok(line) => line,
            Err(error) => return Err(unusable(&it, &error)),
        };
        attempt(Attempt {
            line: &line,
            secret: it.secret,
            request: it.request,
            upstream_model: it.upstream_model,
            limits: it.limits,
            commit: it.commit,
            request_usage: it.request_usage,
            rules: it.rules,
            budget: it.budget,
            now: it.now,
            heard: Some(it.heard),
        })
        .await
    }

    fn status(answer: &Answer) -> u16 {
        answer.status.as_u16()
    }

    fn is_stream(answer: &Answer) -> bool {
        answer.stream
    }
}

/// The model to send, where it is another than the caller's or the caller named none.
pub(super) fn model_to_send<'a>(plan: &Plan, model: &'a ModelSpec) -> Option<&'a str> {
    use spareline_upstream::request::ModelSpan;
    let filled_in = matches!(&plan.outgoing.model, Some(ModelSpan::Json(span)) if span.is_empty());
    (filled_in || *model.upstream != *plan.model).then_some(&*model.upstream)
}

/// The channel's network options do not work here: our own fault, another channel may do.
fn unusable(it: &Try<'_>, error: &LineError) -> Box<Failed> {
    use spareline_core::classify::{Evidence, Input, Transport, classify};
    tracing::error!(event = "channel_unusable", channel = %it.spec.name, %error, "the channel's network options do not work");
    let input = Input {
        provider: it.spec.provider,
        vendor: it.spec.vendor.as_deref(),
        endpoint: it.request.endpoint,
        stream: it.request.stream,
        evidence: Evidence::Transport(Transport::Tls),
    };
    let verdict = Box::new(classify(&input, it.rules, it.now));
    Box::new(Failed { verdict, limit: None, response: None, silent: false, overloaded: false })
}
