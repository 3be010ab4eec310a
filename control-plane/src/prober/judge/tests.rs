use http::HeaderMap;
use spareline_core::classify::{Evidence, Input, Rules, Transport, classify};
use spareline_core::{ChannelId, CredentialId, Provider, Scope};
use std::sync::Arc;
use std::time::SystemTime;

use super::*;

/// A verdict with these marks; what the classifier itself reads is its own tests' business.
fn verdict(class: Class, status: u16, cause: Option<Cause>) -> Verdict {
    let headers = HeaderMap::new();
    let evidence = match status {
        0 => Evidence::Transport(Transport::Refused),
        status => Evidence::Response { status, headers: &headers, body: b"{}" },
    };
    let input = Input { provider: Provider::OpenAi, vendor: None, endpoint: None, stream: false, evidence };
    let mut verdict = classify(&input, &Rules::builtin(), SystemTime::UNIX_EPOCH);
    verdict.class = class;
    verdict.cause = cause;
    verdict.scope = Scope::Credential;
    verdict.status = status;
    verdict.detail = match status {
        0 => Detail::Word("refused"),
        status => Detail::Status(status),
    };
    verdict
}

fn key() -> Subject {
    Subject::Credential(CredentialId(1))
}

fn ability() -> Subject {
    Subject::Ability { channel: ChannelId(1), model: Arc::from("m"), credential: None }
}

/// In one word.
fn read(subject: &Subject, cause: Cause, verdict: &Verdict) -> String {
    match failed(&Question { subject, cause, with_key: true }, verdict) {
        Found::Settled(ProbeOutcome::Good) => "good".into(),
        Found::Settled(ProbeOutcome::Bad { cause, .. }) => format!("bad {cause}"),
        Found::Settled(ProbeOutcome::Throttled { .. }) => "throttled".into(),
        Found::Settled(ProbeOutcome::Inconclusive { .. }) => "inconclusive".into(),
        Found::OtherForm(_) => "other form".into(),
        Found::OtherLine(_) => "other line".into(),
        Found::NoResponse { answered, .. } => format!("no response, answered {answered}"),
    }
}

#[test]
fn part8_what_a_probe_proves() {
    use Class::{Disable, ModelUnavailable, Retryable, Throttle, Transparent};
    let dead = verdict(Disable, 401, Some(Cause::Credential));
    let broke = verdict(Disable, 429, Some(Cause::Quota));
    let missing = verdict(ModelUnavailable, 404, Some(Cause::ModelUnavailable));
    let slow = verdict(Throttle, 429, Some(Cause::Throttled));
    let picky = verdict(Transparent, 400, None);
    let down = verdict(Retryable, 503, None);
    let absent = verdict(Retryable, 0, None);
    let channel = Subject::Channel(ChannelId(1));
    let (key, ability) = (key(), ability());
    for (subject, cause, verdict, right) in [
        (&key, Cause::Credential, &dead, "bad credential"),
        (&key, Cause::Credential, &broke, "bad quota"),
        (&key, Cause::Quota, &slow, "throttled"),
        (&key, Cause::Credential, &missing, "other line"),
        (&key, Cause::Credential, &picky, "other form"),
        (&key, Cause::Credential, &down, "inconclusive"),
        (&key, Cause::Credential, &absent, "inconclusive"),
        (&ability, Cause::ModelUnavailable, &missing, "bad model_unavailable"),
        (&ability, Cause::ModelUnavailable, &dead, "other line"),
        (&ability, Cause::ModelUnavailable, &slow, "throttled"),
        (&ability, Cause::ModelUnavailable, &down, "inconclusive"),
        (&ability, Cause::Unhealthy, &down, "bad unhealthy"),
        (&ability, Cause::Unhealthy, &picky, "good"),
        (&ability, Cause::Unhealthy, &missing, "bad model_unavailable"),
        (&channel, Cause::Unhealthy, &down, "bad unhealthy"),
        (&channel, Cause::Unhealthy, &dead, "good"),
        (&channel, Cause::Unhealthy, &slow, "good"),
        (&channel, Cause::Unhealthy, &absent, "no response, answered false"),
    ] {
        assert_eq!(
            read(subject, cause, verdict),
            right,
            "{subject:?} {cause} {:?} {}",
            verdict.class,
            verdict.status
        );
    }
}

#[test]
fn part8_a_channel_without_keys_is_condemned_by_what_condemns_keys() {
    let channel = Subject::Channel(ChannelId(1));
    let question = Question { subject: &channel, cause: Cause::Credential, with_key: false };
    let found = failed(&question, &verdict(Class::Disable, 401, Some(Cause::Credential)));
    assert!(matches!(found, Found::Settled(ProbeOutcome::Bad { cause: Cause::Credential, .. })));
}

#[test]
fn part8_a_probe_that_takes_too_long_says_nothing_of_a_key() {
    let key = key();
    let hard = Question { subject: &key, cause: Cause::Credential, with_key: true };
    let limit = Duration::from_secs(20);
    assert!(matches!(too_slow(&hard, limit), Found::Settled(ProbeOutcome::Inconclusive { .. })));
    let soft = Question { cause: Cause::Unhealthy, ..hard.clone() };
    assert!(matches!(too_slow(&soft, limit), Found::NoResponse { answered: true, .. }));
    assert!(matches!(exhausted(&hard, None, true), ProbeOutcome::Inconclusive { .. }));
    assert_eq!(exhausted(&soft, None, true), ProbeOutcome::Good);
}
