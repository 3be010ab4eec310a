//! The loop against scripted upstreams, on paused time.

#[path = "../../tests/callers/support/registry.rs"]
#[allow(dead_code, unreachable_pub)]
mod registry;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

use http::{HeaderMap, HeaderValue, Method};
use registry::{Made, Registry, channel};
use spareline_core::{
    Endpoint,
    classify::{Evidence, Input, Transport, classify},
};
use spareline_proto::registry::v1 as pb;
use spareline_upstream::{CommitMode, Outgoing, attempt::Rejected, request::ModelSpan};

use super::*;
use crate::{
    config::Config,
    http::error::Code,
    log::{Logger, Sink},
    plan::Pin,
};

/// What a scripted channel does.
#[derive(Clone, Copy)]
enum Act {
    Ok,
    Status(u16, &'static str),
    /// No answer until a limit fires.
    Hang,
    /// A head, then nothing.
    HangAfterHead,
    Reset,
    Refused,
}

const DEAD: Act =
    Act::Status(401, r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#);
const DOWN: Act =
    Act::Status(503, r#"{"error":{"message":"The server is overloaded","type":"server_error"}}"#);
const LIMITED: Act = Act::Status(
    429,
    r#"{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded","type":"requests"}}"#,
);

#[derive(Default)]
struct Script {
    acts: Mutex<HashMap<String, VecDeque<Act>>>,
    tried: Mutex<Vec<(String, spareline_upstream::Limits)>>,
    /// Run at the first attempt.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Script {
    fn on(self, channel: &str, acts: &[Act]) -> Self {
        self.acts.lock().unwrap().insert(channel.into(), acts.iter().copied().collect());
        self
    }

    fn names(&self) -> Vec<String> {
        self.tried.lock().unwrap().iter().map(|(n, _)| n.clone()).collect()
    }
}

impl Upstream for Script {
    type Answer = u16;

    async fn attempt(&self, it: Try<'_>) -> Result<u16, Box<Failed>> {
        let name = it.spec.name.to_string();
        self.tried.lock().unwrap().push((name.clone(), it.limits));
        if let Some(f) = self.meanwhile.lock().unwrap().take() {
            f();
        }
        // The last act stays.
        let act = {
            let mut acts = self.acts.lock().unwrap();
            let acts = acts.get_mut(&name);
            acts.map_or(Act::Ok, |a| if a.len() > 1 { a.pop_front().unwrap() } else { a[0] })
        };
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let (evidence, limit, response) = match act {
            Act::Ok => return Ok(200),
            Act::Status(status, body) => (
                Evidence::Response { status, headers: &headers, body: body.as_bytes() },
                None,
                Some(Rejected {
                    status: StatusCode::from_u16(status).unwrap(),
                    headers: headers.clone(),
                    body: Bytes::from_static(body.as_bytes()),
                }),
            ),
            Act::Hang | Act::HangAfterHead => {
                it.heard.store(matches!(act, Act::HangAfterHead), std::sync::atomic::Ordering::Relaxed);
                let own = it.limits.first_content.filter(|_| it.request.stream);
                let mut limits =
                    vec![own.map_or((it.limits.response, Limit::Response), |d| (d, Limit::FirstContent))];
                limits.extend(it.limits.deadline.map(|d| (d, Limit::Deadline)));
                let (after, limit) = limits.into_iter().min_by_key(|(d, _)| *d).unwrap();
                tokio::time::sleep(after).await;
                (Evidence::Transport(Transport::Timeout(limit)), Some(limit), None)
            }
            Act::Reset => (Evidence::Transport(Transport::Reset { sent: true }), None, None),
            Act::Refused => (Evidence::Transport(Transport::Refused), None, None),
        };
        let input = Input {
            provider: it.spec.provider,
            vendor: it.spec.vendor.as_deref(),
            endpoint: it.request.endpoint,
            stream: it.request.stream,
            evidence,
        };
        let verdict = Box::new(classify(&input, it.rules, it.now));
        Err(Box::new(Failed { verdict, limit, response, silent: limit.is_some(), overloaded: false }))
    }

    fn status(answer: &u16) -> u16 {
        *answer
    }

    fn is_stream(_: &u16) -> bool {
        false
    }
}

fn shared(registry: Registry) -> Arc<Shared> {
    let (sink, _guard) = Sink::start(Box::new(std::io::sink()));
    let config = Config::from_figment(figment::Figment::new()).unwrap();
    let shared = Arc::new(Shared::new(config, Logger::new(sink, true, false)));
    shared.publish(Arc::new(registry.view()));
    shared
}

fn plan(stream: bool) -> Plan {
    let body = Bytes::from_static(br#"{"model":"m"}"#);
    Plan {
        group: "default".into(),
        model: "m".into(),
        endpoint: Some(Endpoint::ChatCompletions),
        affinity: None,
        pin: None,
        commit: CommitMode::FirstContent,
        stateful: false,
        side_effects: false,
        outgoing: Outgoing {
            method: Method::POST,
            endpoint: Some(Endpoint::ChatCompletions),
            path: "/v1/chat/completions".into(),
            query: None,
            headers: HeaderMap::new(),
            added: Vec::new(),
            body,
            model: Some(ModelSpan::Json(9..12)),
            stream,
        },
    }
}

fn record(shared: &Shared) -> Record {
    let recorder = shared.recorder.sibling();
    Record::begin(recorder, "r".into(), "t".into(), "default".into())
}

/// Runs once; the attempts' entries and what came of it.
async fn once(shared: &Shared, script: &Script, plan: &Plan) -> (String, Outcome<u16>) {
    let mut record = record(shared);
    let outcome = run(shared, script, plan, &mut record).await;
    (record.entries(true).join(", "), outcome)
}

fn code(outcome: &Outcome<u16>) -> Code {
    match outcome {
        Outcome::Failed(error) => error.code,
        Outcome::Answer(_) => panic!("answered"),
        Outcome::Passed { status, .. } => panic!("passed {status}"),
    }
}

fn passed(outcome: &Outcome<u16>) -> u16 {
    match outcome {
        Outcome::Passed { status, .. } => status.as_u16(),
        _ => panic!("not passed on"),
    }
}

fn layers(names: &[&str]) -> Registry {
    let at = |registry: Registry, (n, name): (usize, &&str)| {
        registry.channel(made(name).priority(100 - i32::try_from(n).unwrap()))
    };
    names.iter().enumerate().fold(Registry::new(), at)
}

fn made(name: &str) -> Made {
    channel(name, &format!("http://{name}.test/v1"))
}

fn policy(change: impl FnOnce(&mut pb::Policy)) -> pb::Policy {
    let mut policy = pb::Policy::default();
    change(&mut policy);
    policy
}

#[tokio::test(start_paused = true)]
async fn first_content_timeout_causes_one_switch_then_response_timeout_runs() {
    let shared = shared(layers(&["a", "b", "c"]));
    let script = Script::default().on("a", &[Act::Hang]).on("b", &[Act::Hang]);
    let began = Instant::now();
    let (attempts, outcome) = once(&shared, &script, &plan(true)).await;
    assert_eq!(attempts, "a:retryable:first_content_timeout, b:retryable:response_timeout");
    assert_eq!(code(&outcome), Code::UpstreamTimeout, "an unknown outcome is switched away from once");
    assert_eq!(began.elapsed().as_secs(), 120 + 600);
    let tried = script.tried.lock().unwrap();
    assert_eq!(tried[0].1.first_content, Some(Duration::from_secs(120)));
    assert_eq!(tried[1].1.first_content, None);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_bounds_all_attempts_together() {
    let limit = prost_types::Duration { seconds: 10, nanos: 0 };
    let shared = shared(layers(&["a", "b"]).policy(policy(|p| p.deadline = Some(limit))));
    let script = Script::default().on("a", &[Act::Hang]).on("b", &[Act::Hang]);
    let began = Instant::now();
    let (attempts, outcome) = once(&shared, &script, &plan(false)).await;
    assert_eq!(attempts, "a:retryable:deadline");
    assert_eq!(code(&outcome), Code::UpstreamTimeout);
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_not_repeated_where_that_is_feared() {
    let script = Script::default().on("a", &[Act::Reset]);
    let off = shared(layers(&["a", "b"]).policy(policy(|p| p.switch_on_unknown_outcome = Some(false))));
    let (attempts, outcome) = once(&off, &script, &plan(false)).await;
    assert_eq!((attempts.as_str(), code(&outcome)), ("a:retryable:reset", Code::AllChannelsFailed));

    let on = shared(layers(&["a", "b"]));
    assert_eq!(once(&on, &script, &plan(false)).await.0, "a:retryable:reset, b:ok:200");
    let mut paid = plan(false);
    paid.side_effects = true;
    assert_eq!(once(&on, &script, &paid).await.0, "a:retryable:reset");
    let script = Script::default().on("a", &[Act::Refused]);
    assert_eq!(once(&on, &script, &paid).await.0, "a:retryable:refused, b:ok:200", "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn dead_keys_are_counted_apart_up_to_their_own_bound() {
    let names: Vec<String> = (0..30).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let script = |n: usize| names.iter().take(n).fold(Script::default(), |s, name| s.on(name, &[DEAD]));
    let (_, outcome) = once(&shared(layers(&names)), &script(16), &plan(false)).await;
    assert!(matches!(outcome, Outcome::Answer(_)), "16 dead keys cost nobody anything");
    let all = script(30);
    let (_, outcome) = once(&shared(layers(&names)), &all, &plan(false)).await;
    assert_eq!((code(&outcome), all.names().len()), (Code::MaxAttemptsExceeded, 17));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_blames_nobody_unless_the_channel_was_silent_for_long() {
    let shared = shared(layers(&["a"]));
    let script = Script::default().on("a", &[Act::Hang]);
    let heard = Script::default().on("a", &[Act::HangAfterHead]);
    for (script, after, entry) in
        [(&script, 29, "a:cancelled"), (&script, 31, "a:cancelled:silent"), (&heard, 99, "a:cancelled")]
    {
        let mut record = record(&shared);
        let request = plan(false);
        let left =
            tokio::time::timeout(Duration::from_secs(after), run(&shared, script, &request, &mut record));
        assert!(left.await.is_err());
        assert_eq!(record.entries(true), [entry]);
    }
    assert!(shared.health.troubled().is_empty());
    assert!(shared.spool.is_empty());
}

#[tokio::test(start_paused = true)]
async fn five_silent_attempts_in_a_row_open_the_breaker() {
    let shared = shared(layers(&["a", "b"]));
    let script = Script::default().on("a", &[Act::Hang]);
    for n in 0..5_u8 {
        let mut request = plan(false);
        request.outgoing.body = vec![n].into();
        let mut record = record(&shared);
        let left =
            tokio::time::timeout(Duration::from_secs(40), run(&shared, &script, &request, &mut record));
        assert!(left.await.is_err());
    }
    assert_eq!(once(&shared, &script, &plan(false)).await.0, "b:ok:200");
}

#[tokio::test(start_paused = true)]
async fn what_comes_from_the_registry_meanwhile_counts_at_once() {
    let shared = shared(layers(&["a", "old"]));
    let script = Script::default().on("a", &[DOWN]).on("old", &[DOWN]);
    let later = shared.clone();
    *script.meanwhile.lock().unwrap() =
        Some(Box::new(move || later.publish(Arc::new(layers(&["a", "new"]).view()))));
    assert_eq!(once(&shared, &script, &plan(false)).await.0, "a:retryable:503, new:ok:200");
}

#[tokio::test(start_paused = true)]
async fn conservative_passes_keys_and_limits_on() {
    let preset = |p: &mut pb::Policy| p.preset = "conservative".into();
    let shared = shared(layers(&["a", "b"]).policy(policy(preset)));
    let (attempts, outcome) = once(&shared, &Script::default().on("a", &[DEAD]), &plan(false)).await;
    assert_eq!((attempts.as_str(), code(&outcome)), ("a:disable:401", Code::AllChannelsFailed));
    let (_, outcome) = once(&shared, &Script::default().on("a", &[LIMITED]), &plan(false)).await;
    assert_eq!(passed(&outcome), 429);
    let (attempts, _) = once(&shared, &Script::default().on("a", &[DOWN]), &plan(false)).await;
    assert_eq!(attempts, "a:retryable:503, b:ok:200");
    assert!(shared.spool.is_empty(), "nothing is penalised");
}

#[tokio::test(start_paused = true)]
async fn layered_goes_one_layer_down_per_retry() {
    let preset = |p: &mut pb::Policy| p.preset = "layered".into();
    let registry = Registry::new()
        .channel(made("a1").priority(9))
        .channel(made("a2").priority(9))
        .channel(made("b").priority(5))
        .policy(policy(preset));
    let shared = shared(registry);
    let script = Script::default().on("a1", &[DOWN]).on("a2", &[DOWN]).on("b", &[DOWN, DOWN, Act::Ok]);
    let (attempts, outcome) = once(&shared, &script, &plan(false)).await;
    let entries: Vec<&str> = attempts.split(", ").collect();
    assert!(entries[0].starts_with("a"), "{attempts}");
    assert_eq!(
        entries[1..],
        ["b:retryable:503", "b:retryable:503"],
        "in the last layer what was tried is tried again"
    );
    assert_eq!(code(&outcome), Code::MaxAttemptsExceeded);
}

#[tokio::test(start_paused = true)]
async fn a_moderation_refusal_passes_as_400() {
    let refusal = Act::Status(
        403,
        r#"{"error":{"code":"content_policy_violation","message":"Your request was rejected by our safety system."}}"#,
    );
    let shared = shared(layers(&["a", "b"]));
    let (attempts, outcome) = once(&shared, &Script::default().on("a", &[refusal]), &plan(false)).await;
    assert_eq!((attempts.as_str(), passed(&outcome)), ("a:transparent:403", 400));
}

#[tokio::test(start_paused = true)]
async fn three_throttled_ask_to_wait_rather_than_say_enough() {
    let shared = shared(layers(&["a", "b", "c"]).policy(policy(|p| p.last_resort = Some(false))));
    let script = ["a", "b", "c"].iter().fold(Script::default(), |s, n| s.on(n, &[LIMITED]));
    let (_, outcome) = once(&shared, &script, &plan(false)).await;
    let Outcome::Failed(error) = outcome else { panic!("not an error of ours") };
    assert_eq!(error.code, Code::AllThrottled);
    assert!(error.retry_after.unwrap() >= Duration::from_secs(290), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_retry_budget_leaves_the_first_switch_free() {
    let budget = pb::RetryBudget { min_per_second: 0, percent: 0 };
    let shared = shared(layers(&["a", "b", "c"]).policy(policy(|p| p.retry_budget = Some(budget))));
    let script = Script::default().on("a", &[DOWN]).on("b", &[DOWN]);
    let (attempts, outcome) = once(&shared, &script, &plan(false)).await;
    assert_eq!(attempts, "a:retryable:503, b:retryable:503");
    assert_eq!(code(&outcome), Code::MaxAttemptsExceeded);
}

#[tokio::test(start_paused = true)]
async fn a_pin_that_may_switch_does_so_after_a_failure() {
    let shared = shared(layers(&["a", "b"]));
    let mut pinned = plan(false);
    pinned.pin = Some(Pin { channel: "b".into(), switch: true });
    let script = Script::default().on("b", &[DOWN]);
    assert_eq!(once(&shared, &script, &pinned).await.0, "b:retryable:503, a:ok:200");
}

#[tokio::test(start_paused = true)]
async fn affinity_meets_the_same_channel_and_strict_stays_there() {
    let same = |registry: Registry| {
        let names = ["a", "b", "c", "d"].iter().fold(registry, |r, n| r.channel(made(n)));
        shared(names)
    };
    let mut sticky = plan(false);
    sticky.affinity = Some("caller-7".into());
    let (one, two) = (same(Registry::new()), same(Registry::new()));
    let (first, _) = once(&one, &Script::default(), &sticky).await;
    for _ in 0..10 {
        assert_eq!(once(&two, &Script::default(), &sticky).await.0, first, "on every sidecar");
    }
    let name = first.split(':').next().unwrap().to_owned();
    let (attempts, _) = once(&one, &Script::default().on(&name, &[DOWN]), &sticky).await;
    assert!(
        attempts.starts_with(&format!("{name}:retryable:503, ")) && attempts.ends_with(":ok:200"),
        "{attempts}"
    );

    let strict = pb::AffinityPolicy { strict: Some(true), ..Default::default() };
    let strict = same(Registry::new().policy(policy(|p| p.affinity = Some(strict))));
    let (attempts, _) = once(&strict, &Script::default().on(&name, &[DOWN]), &sticky).await;
    assert_eq!(attempts, format!("{name}:retryable:503"));
}
