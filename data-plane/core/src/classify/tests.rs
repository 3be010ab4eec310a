use std::time::SystemTime;

use http::{HeaderMap, HeaderValue};

use super::*;
use crate::words::{Cause, Provider};

fn verdict(evidence: Evidence<'_>) -> Verdict {
    let input = Input {
        provider: Provider::OpenAiCompatible,
        vendor: None,
        endpoint: Some(Endpoint::ChatCompletions),
        stream: false,
        evidence,
    };
    classify(&input, &Rules::builtin(), SystemTime::UNIX_EPOCH)
}

fn response(status: u16, body: &str) -> Verdict {
    verdict(Evidence::Response { status, headers: &HeaderMap::new(), body: body.as_bytes() })
}

#[test]
fn part9_no_response_condemns_the_channel_softly() {
    for (fault, word, unknown) in [
        (Transport::Dns, "dns", false),
        (Transport::Refused, "refused", false),
        (Transport::Tls, "tls", false),
        (Transport::Reset { sent: false }, "reset", false),
        (Transport::Reset { sent: true }, "reset", true),
        (Transport::NotHttp, "parse_error", true),
        (Transport::Timeout(Limit::Connect), "connect_timeout", false),
        (Transport::Timeout(Limit::Response), "response_timeout", true),
    ] {
        let got = verdict(Evidence::Transport(fault));
        assert_eq!((got.class, got.scope, got.cause), (Class::Retryable, Scope::Channel, None), "{fault:?}");
        assert_eq!((got.detail.to_string().as_str(), got.unknown_outcome), (word, unknown), "{fault:?}");
        assert_eq!(got.kind == EvidenceKind::UnknownOutcome, unknown, "{fault:?}");
    }
}

#[test]
fn part9_nobody_is_blamed_for_the_caller_or_for_us() {
    for evidence in [Evidence::CallerLeft, Evidence::Internal] {
        let got = verdict(evidence);
        assert_eq!((got.class, got.scope, got.kind), (Class::None, Scope::None, EvidenceKind::Nothing));
    }
    let egress = response(407, "<html></html>");
    assert_eq!(
        (egress.class, egress.scope, egress.kind),
        (Class::Retryable, Scope::None, EvidenceKind::Network)
    );
}

#[test]
fn part8_evidence_kinds() {
    let envelope = r#"{"error":{"message":"x","type":"y"}}"#;
    for (status, kind) in [
        (500, EvidenceKind::ServerError),
        (504, EvidenceKind::UnknownOutcome),
        (524, EvidenceKind::UnknownOutcome),
        (529, EvidenceKind::ServerError),
        (429, EvidenceKind::Throttle),
        (401, EvidenceKind::DeadKey),
        (402, EvidenceKind::DeadKey),
        (403, EvidenceKind::DeadKey),
        (404, EvidenceKind::EndpointMissing),
        (408, EvidenceKind::RequestTimeout),
        (307, EvidenceKind::Redirect),
        (308, EvidenceKind::Redirect),
        (409, EvidenceKind::ServerError),
        (418, EvidenceKind::OtherClientError),
        (200, EvidenceKind::ServerError),
    ] {
        assert_eq!(response(status, envelope).kind, kind, "{status}");
    }
    assert_eq!(response(200, "half {").kind, EvidenceKind::UnknownOutcome);
    assert_eq!(response(404, r#"{"error":{"code":"model_not_found"}}"#).kind, EvidenceKind::ModelUnavailable);
}

#[test]
fn part4_what_has_to_be_confirmed() {
    for (status, body, cause, confirm) in [
        (401, r#"{"error":{"code":"invalid_api_key"}}"#, Some(Cause::Credential), false),
        (429, r#"{"error":{"code":"insufficient_quota"}}"#, Some(Cause::Quota), false),
        (401, "{}", Some(Cause::Credential), true),
        (401, "", Some(Cause::Credential), true),
        (402, r#"{"error":{"message":"pay"}}"#, Some(Cause::Quota), true),
        (
            402,
            r#"{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 64000 tokens, but can only afford 2666."}}"#,
            Some(Cause::Quota),
            true,
        ),
        (403, r#"{"error":{"message":"no"}}"#, Some(Cause::Credential), true),
        (404, r#"{"error":{"code":"model_not_found"}}"#, Some(Cause::ModelUnavailable), true),
        (400, r#"{"error":{"code":"account_credits_depleted"}}"#, Some(Cause::Quota), true),
        (429, "{}", Some(Cause::Throttled), false),
        (400, "{}", None, false),
    ] {
        let got = response(status, body);
        assert_eq!((got.cause, got.confirm), (cause, confirm), "{status} {body} by {}", got.rule);
    }
}

#[test]
fn part3_a_limit_that_names_a_model_takes_that_model_only() {
    let scope = |message: &str| response(429, &format!(r#"{{"error":{{"message":"{message}"}}}}"#)).scope;
    assert_eq!(scope("Too many requests"), Scope::Credential);
    assert_eq!(scope("Rate limit reached on tokens per min"), Scope::Ability);
    assert_eq!(scope("该模型当前访问量过大"), Scope::Ability);
    assert_eq!(scope("TPM limit reached"), Scope::Ability);
    assert_eq!(scope("your pricing tier"), Scope::Ability);
}

#[test]
fn part9_answers_that_are_none() {
    for (body, word, rule) in [
        ("", "empty_response", "body.empty"),
        (" \r\n", "empty_response", "body.empty"),
        ("{}", "empty_response", "body.empty"),
        ("[]\n", "empty_response", "body.empty"),
        ("<html></html>", "parse_error", "body.html"),
        ("Hello", "parse_error", "body.unparsable"),
        (r#"{"choices":[{"#, "parse_error", "body.unparsable"),
        (r#"{"choices":[]}"#, "empty_response", "body.no_choices"),
        (r#""Invalid token""#, "parse_error", "body.not_an_answer"),
    ] {
        let got = response(200, body);
        assert_eq!(
            (got.class, got.detail.to_string().as_str(), got.rule.as_str()),
            (Class::Retryable, word, rule),
            "{body}"
        );
        assert!(got.unknown_outcome && got.cause.is_none(), "{body}");
    }
}

#[test]
fn part9_other_endpoints_have_other_answers() {
    let headers = HeaderMap::new();
    let passes = |endpoint: Option<Endpoint>, stream: bool, body: &[u8]| {
        let evidence = Evidence::Response { status: 200, headers: &headers, body };
        let input = Input { provider: Provider::OpenAi, vendor: None, endpoint, stream, evidence };
        check_success(&input, &Rules::builtin(), SystemTime::UNIX_EPOCH).is_ok()
    };
    assert!(passes(Some(Endpoint::Audio), false, b"ID3\x04binary"));
    assert!(passes(Some(Endpoint::Embeddings), false, br#"{"data":[]}"#));
    assert!(passes(Some(Endpoint::Messages), false, br#"{"content":[],"stop_reason":"refusal"}"#));
    assert!(passes(None, false, b"anything at all"));
    // A stream was asked for.
    assert!(!passes(Some(Endpoint::ChatCompletions), true, br#"{"choices":[{"message":{"content":"Hi"}}]}"#));
}

#[test]
fn part9_reason_excerpt_and_evidence() {
    let body = r#"{"error":{"message":"Incorrect API key provided: sk-secret-0001. Mail a@b.co","code":"invalid_api_key"}}"#;
    let mut got = response(401, body);
    assert_eq!(
        got.reason(),
        "401 invalid_api_key: Incorrect API key provided: <redacted>. Mail <redacted> (phrase.key)"
    );
    assert_eq!(got.also.iter().map(RuleId::as_str).collect::<Vec<_>>(), ["code.key"]);
    let evidence = got.evidence("req-1");
    assert_eq!((evidence.http_status, evidence.provider_code.as_str()), (401, "invalid_api_key"));
    assert_eq!((evidence.rule_id.as_str(), evidence.request_id.as_str()), ("phrase.key", "req-1"));

    let told = r#"{"error":{"message":"The model `x` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#;
    assert_eq!(response(404, told).provider_code, "model_not_found", "not the type it comes with");
    let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, HeaderValue::from_static("99999"))]);
    let evidence = Evidence::Response { status: 429, headers: &headers, body: b"{}" };
    let waits = verdict(evidence);
    assert_eq!(waits.retry_after.as_ref().map(|hint| hint.wait().as_secs()), Some(900));
    assert_eq!(waits.evidence("").retry_hint, "retry-after: 99999", "as it came");

    // A key without any form is known to who sent it.
    got.excerpt = "no such key hunter2, nor hunt".to_owned();
    got.scrub("hunter2");
    assert_eq!(got.excerpt, "no such key <redacted>, nor ");
}

#[test]
fn part9_a_status_may_be_named_beside_the_event() {
    let headers = HeaderMap::new();
    let data = br#"{"code":"InvalidParameter","message":"x"}"#;
    let event = |status| verdict(Evidence::Event { status, headers: &headers, event: Some("error"), data });
    assert_eq!(event(400).class, Class::Transparent);
    assert_eq!(event(200).class, Class::Transparent);
    let bare =
        verdict(Evidence::Event { status: 200, headers: &headers, event: Some("error"), data: b"oops" });
    assert_eq!((bare.class, bare.rule.as_str()), (Class::Retryable, "stream.error_event"));
}

#[test]
fn part1_a_long_error_is_read_at_its_beginning() {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let tail = "x".repeat(100_000);
    let body = format!(r#"{{"error":{{"code":"invalid_api_key","message":"no","dump":"{tail}"}}}}"#);
    let got = verdict(Evidence::Response { status: 400, headers: &headers, body: body.as_bytes() });
    assert_eq!((got.class, got.rule.as_str()), (Class::Disable, "code.key"));
}
