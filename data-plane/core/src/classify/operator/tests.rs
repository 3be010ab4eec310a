use std::time::SystemTime;

use http::HeaderMap;

use super::*;
use crate::classify::{Evidence, Input, Rules, classify};
use crate::words::{Cause, Endpoint};

fn rule(id: &str, provider: &str, statuses: &str, code: &str, phrase: &str, class: &str) -> pb::Rule {
    pb::Rule {
        rule_id: id.into(),
        provider: provider.into(),
        statuses: statuses.into(),
        code: code.into(),
        phrase: phrase.into(),
        class: class.into(),
    }
}

#[test]
fn part8_statuses() {
    assert_eq!(statuses("429,500-503, 505-599"), Ok(vec![(429, 429), (500, 503), (505, 599)]));
    assert_eq!(statuses(""), Ok(vec![]));
    for wrong in ["42", "600", "503-500", "429,", "a", "429;500", "-429"] {
        assert!(statuses(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn part8_every_mistake_at_once() {
    let rules = [
        rule("", "nobody", "1000", "", "", "explode"),
        rule("ok", "", "429", "", "", "throttle"),
        rule("ok", "", "", "", "", "ok"),
        rule("short", "", "", "", "no", "disable"),
    ];
    let problems = compile(&rules).unwrap_err();
    let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "rules[0].rule_id",
            "rules[0].provider",
            "rules[0].statuses",
            "rules[0].class",
            "rules[2].rule_id",
            "rules[2].statuses",
            "rules[2].class",
            "rules[3].phrase",
        ]
    );
}

fn read(
    rules: &[pb::Rule],
    vendor: Option<&str>,
    status: u16,
    body: &str,
) -> (Class, String, bool, Option<Cause>) {
    let headers = HeaderMap::new();
    let input = Input {
        provider: Provider::OpenAiCompatible,
        vendor,
        endpoint: Some(Endpoint::ChatCompletions),
        stream: false,
        evidence: Evidence::Response { status, headers: &headers, body: body.as_bytes() },
    };
    let rules = Rules::with_operator(rules).unwrap();
    let verdict = classify(&input, &rules, SystemTime::UNIX_EPOCH);
    (verdict.class, verdict.rule.to_string(), verdict.confirm, verdict.cause)
}

#[test]
fn part8_they_come_before_ours() {
    let rules = [
        rule("by-code", "", "", "invalid_api_key", "", "retryable"),
        rule("by-phrase", "", "400", "", "Your lease has ended", "disable"),
        rule("by-vendor", "moonshot", "418", "", "", "throttle"),
        rule("by-status", "", "500-503", "", "", "disable"),
    ];
    let key = r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#;
    assert_eq!(read(&rules, None, 401, key), (Class::Retryable, "by-code".into(), false, None));
    let plan = r#"{"error":{"message":"your lease has ENDED today"}}"#;
    assert_eq!(
        read(&rules, None, 400, plan),
        (Class::Disable, "by-phrase".into(), false, Some(Cause::Credential))
    );
    // Anchored, and at its statuses only.
    let quoted = r#"{"error":{"message":"got 'Your lease has ended'"}}"#;
    assert_eq!(read(&rules, None, 400, quoted).0, Class::Transparent);
    assert_eq!(read(&rules, None, 429, plan).0, Class::Throttle);
    assert_eq!(read(&rules, Some("moonshot"), 418, "{}").1, "by-vendor");
    assert_eq!(read(&rules, Some("deepseek"), 418, "{}").1, "status.request");
    // By status alone a probe has to confirm it.
    assert_eq!(
        read(&rules, None, 502, "{}"),
        (Class::Disable, "by-status".into(), true, Some(Cause::Credential))
    );
    // A throttle ends by itself.
    let slow = [rule("slow", "", "409", "", "", "throttle")];
    assert_eq!(read(&slow, None, 409, "{}"), (Class::Throttle, "slow".into(), false, Some(Cause::Throttled)));
}

#[test]
fn part8_never_on_what_is_a_success() {
    let rules =
        [rule("greedy", "", "200-299", "", "", "disable"), rule("words", "", "", "", "Hello", "disable")];
    let answer = r#"{"choices":[{"message":{"content":"Hello"}}],"message":"Hello"}"#;
    assert_eq!(read(&rules, None, 200, answer).0, Class::Ok);
}
