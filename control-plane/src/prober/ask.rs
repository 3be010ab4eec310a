//! One probe: line by line, form by form, until something is proven or the time is up.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use spareline_core::classify::Rules;
use spareline_core::{Cause, Subject};
use spareline_upstream::request::ModelSpan;
use spareline_upstream::{Answer, Attempt, Budget, CommitMode, Limits, Outgoing};
use tokio::time::Instant;

use super::forms::{Form, forms};
use super::judge::{self, Found, Question};
use super::plan::Line;
use super::{Prober, egress};
use crate::decide::ProbeOutcome;

/// Largest list of models read, in bytes.
const MAX_LIST: usize = 4 * 1024 * 1024;

/// Asks until the question is settled, at most `prober.limit`.
///
/// `others`: addresses of other upstreams, to tell a dead one from our own dead network.
pub(super) async fn ask(
    prober: &Prober,
    question: &Question<'_>,
    lines: &[Line],
    rules: &Rules,
    others: &[url::Url],
) -> ProbeOutcome {
    let deadline = Instant::now() + prober.limit;
    let asked = tokio::time::timeout_at(deadline, ask_all(prober, question, lines, rules, deadline)).await;
    let found = asked.unwrap_or_else(|_| judge::too_slow(question, prober.limit));
    match found {
        Found::Settled(outcome) => outcome,
        Found::NoResponse { reason, answered } => {
            no_response(question, reason, answered, lines, others).await
        }
        Found::OtherForm(reason) | Found::OtherLine(reason) => ProbeOutcome::Inconclusive { reason },
    }
}

async fn ask_all(
    prober: &Prober,
    question: &Question<'_>,
    lines: &[Line],
    rules: &Rules,
    deadline: Instant,
) -> Found {
    let mut last = None;
    let mut answered = false;
    let mut other = None;
    'lines: for line in lines {
        for form in forms(&line.channel, &line.model) {
            let found = ask_once(prober, question, line, &form, rules, deadline).await;
            match found {
                Found::Settled(ProbeOutcome::Inconclusive { reason }) => {
                    // Another line may still prove something.
                    last = Some(reason);
                    continue 'lines;
                }
                Found::Settled(_) | Found::NoResponse { .. } => return found,
                Found::OtherForm(reason) => {
                    answered = true;
                    last.get_or_insert(reason);
                }
                Found::OtherLine(reason) => {
                    answered = true;
                    last = Some(reason);
                    other.get_or_insert(line);
                    continue 'lines;
                }
            }
        }
    }
    // No model that was asked is there any more, which says nothing of the key: is it accepted at all?
    if let Some(line) = other.filter(|_| question.cause == Cause::Credential) {
        let found = ask_once(prober, question, line, &Form::Models, rules, deadline).await;
        if let Found::Settled(
            ProbeOutcome::Good | ProbeOutcome::Bad { .. } | ProbeOutcome::Throttled { .. },
        ) = &found
        {
            return found;
        }
    }
    Found::Settled(judge::exhausted(question, last, answered))
}

async fn ask_once(
    prober: &Prober,
    question: &Question<'_>,
    line: &Line,
    form: &Form,
    rules: &Rules,
    deadline: Instant,
) -> Found {
    let spec = &line.channel;
    let to = match prober.clients.line(spec.id, spec.spec_revision.0, || spec.as_ref().into()) {
        Ok(to) => to,
        Err(error) => return inconclusive(error.to_string()),
    };
    let request = outgoing(form);
    let budget = Budget::unlimited();
    let with_model = matches!(form, Form::Request { .. });
    let attempt = Attempt {
        line: &to,
        secret: line.secret.as_ref().map(|secret| secret.expose()),
        request: &request,
        upstream_model: with_model.then_some(&*line.model.upstream),
        limits: limits(line, deadline),
        commit: CommitMode::FirstContent,
        request_usage: false,
        rules,
        budget: &budget,
        now: SystemTime::now(),
        heard: None,
    };
    match spareline_upstream::attempt(attempt).await {
        Ok(answer) => match form {
            Form::Request { .. } => Found::Settled(ProbeOutcome::Good),
            Form::Models => listed(question, line, answer).await,
        },
        Err(failed) => {
            let question = Question { with_key: line.secret.is_some(), ..question.clone() };
            judge::failed(&question, &failed.verdict)
        }
    }
}

/// The list of models proves that the key is accepted; of a model it proves what it says.
async fn listed(question: &Question<'_>, line: &Line, answer: Answer) -> Found {
    if question.cause != Cause::ModelUnavailable || !matches!(question.subject, Subject::Ability { .. }) {
        return Found::Settled(ProbeOutcome::Good);
    }
    let body = http_body_util::Limited::new(answer.body, MAX_LIST).collect().await;
    let Ok(list) = body.map(http_body_util::Collected::to_bytes) else {
        return inconclusive("the list of models broke off");
    };
    match lists(&list, &line.model.upstream) {
        Some(true) => Found::Settled(ProbeOutcome::Good),
        Some(false) => Found::Settled(ProbeOutcome::Bad {
            cause: Cause::ModelUnavailable,
            reason: format!("{} is not in the provider's list of models", line.model.upstream),
            evidence: None,
        }),
        None => inconclusive("the provider's list of models cannot be read"),
    }
}

/// Whether a list of models in OpenAI's form names one; `None` where it is no such list.
fn lists(body: &[u8], model: &str) -> Option<bool> {
    #[derive(serde::Deserialize)]
    struct List {
        data: Vec<Entry>,
    }
    #[derive(serde::Deserialize)]
    struct Entry {
        id: String,
    }
    let list: List = serde_json::from_slice(body).ok()?;
    Some(list.data.iter().any(|entry| entry.id == model))
}

/// Nothing answered, and soft evidence is at stake: is it them, or is it us?
async fn no_response(
    question: &Question<'_>,
    reason: String,
    answered: bool,
    lines: &[Line],
    others: &[url::Url],
) -> ProbeOutcome {
    let works = async {
        // An egress proxy may be one of the sidecars' machine, which is not ours.
        if let Some(proxy) = lines.iter().find_map(|line| line.channel.options.proxy_url.as_ref()) {
            return egress::takes(proxy).await;
        }
        let here: Vec<_> = lines.iter().map(|line| &line.channel.base_url).collect();
        egress::works(&here, others).await
    };
    if answered || works.await {
        let evidence = None;
        return ProbeOutcome::Bad { cause: question.cause, reason, evidence };
    }
    let reason = format!("{reason}; no way out of here can be shown to work, so this proves nothing");
    ProbeOutcome::Inconclusive { reason }
}

fn outgoing(form: &Form) -> Outgoing {
    let mut headers = HeaderMap::new();
    let (method, endpoint, path, body) = match form {
        Form::Models => (Method::GET, None, "/v1/models".to_owned(), Bytes::new()),
        Form::Request { endpoint, path, body } => {
            headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            (Method::POST, Some(*endpoint), format!("{}{path}", base_path(*endpoint)), body.clone())
        }
    };
    let fields = spareline_core::splice::scan(&body, None).ok();
    let model = fields.and_then(|fields| fields.model).map(|model| ModelSpan::Json(model.span));
    Outgoing { method, endpoint, path, query: None, headers, added: Vec::new(), body, model, stream: false }
}

fn base_path(endpoint: spareline_core::Endpoint) -> &'static str {
    use spareline_core::Endpoint;
    match endpoint {
        Endpoint::ChatCompletions => "/v1/chat/completions",
        Endpoint::Completions => "/v1/completions",
        Endpoint::Embeddings => "/v1/embeddings",
        Endpoint::Responses => "/v1/responses",
        Endpoint::Messages => "/v1/messages",
        Endpoint::Images => "/v1/images",
        Endpoint::Audio => "/v1/audio",
        Endpoint::Moderations => "/v1/moderations",
        Endpoint::Rerank => "/v1/rerank",
    }
}

fn limits(line: &Line, deadline: Instant) -> Limits {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let own = line.model.limits.or(line.channel.limits).over(Default::default());
    Limits {
        connect: own.connect_timeout.min(left),
        first_content: None,
        response: own.response_timeout.min(left),
        idle: own.idle_timeout.min(left),
        deadline: Some(left),
    }
}

fn inconclusive(reason: impl Into<String>) -> Found {
    Found::Settled(ProbeOutcome::Inconclusive { reason: reason.into() })
}

/// One address of each upstream in a world, at most 64: to compare with where one gives no answer.
pub(super) fn others(world: &crate::world::World) -> Vec<url::Url> {
    let urls = world.items.channels().filter_map(|(_, c)| url::Url::parse(&c.base_url).ok());
    let mut known = std::collections::BTreeSet::new();
    urls.filter(|url| known.insert(url.origin().ascii_serialization())).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part8_a_list_of_models_proves_what_it_says() {
        let list = br#"{"object":"list","data":[{"id":"dall-e-3","object":"model"}]}"#;
        assert_eq!(lists(list, "dall-e-3"), Some(true));
        assert_eq!(lists(list, "dall-e-2"), Some(false));
        assert_eq!(lists(br#"{"models":[]}"#, "dall-e-3"), None);
    }
}
