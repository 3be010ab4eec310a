//! Nothing that a model wrote or a caller sent ever counts: every phrase and code of the rules and whole error
//! envelopes, planted where models and callers can put text, leave a success a success and a 400 a 400. And no bytes at
//! all make the classifier panic or take more than linear time.

#![allow(clippy::unwrap_used, clippy::panic)] // a broken case file is a failure too

use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use serde_json::{Value, json};
use spareline_core::classify::{
    Evidence, Input, Rules, Verdict, check_stream_event, check_success, classify, classify_stream,
};
use spareline_core::words::{Class, Endpoint, Provider};

const ENVELOPES: &[&str] = &[
    r#"{"error":{"message":"Incorrect API key provided: sk-x","type":"invalid_request_error","code":"invalid_api_key"}}"#,
    r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
    r#"{"error":{"code":429,"message":"limit: 0","status":"RESOURCE_EXHAUSTED"}}"#,
    r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","code":404}"#,
    r#"{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#,
    r#"{"error_code":17,"error_msg":"Open api daily request limit reached"}"#,
    r#"{"Response":{"Error":{"Code":"AuthFailure.SecretIdNotFound","Message":"x"}}}"#,
    r#"[{"error":{"code":401,"status":"UNAUTHENTICATED"}}]"#,
    "data: {\"error\":{\"code\":\"insufficient_quota\"}}\n\n",
    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\ndata: [DONE]\n\n",
    "error code: 1010",
    "<html><head><title>401 Authorization Required</title></head></html>",
    "\"},\"error\":{\"code\":\"invalid_api_key\"},\"x\":\"",
];

/// Everything worth planting.
fn dictionary() -> Vec<String> {
    let phrases = Rules::builtin_texts().map(|text| text.replace(['*', '…'], "gpt-4o").replace('$', ""));
    let more =
        ["permission denied", "account suspended", "账户余额不足", "令牌已过期", "try again in 9m38s", "429"];
    phrases.chain(more.map(str::to_owned)).chain(ENVELOPES.iter().map(|text| (*text).to_owned())).collect()
}

fn read(status: u16, body: &[u8], endpoint: Endpoint, vendor: Option<&str>) -> Verdict {
    let headers = HeaderMap::new();
    let evidence = Evidence::Response { status, headers: &headers, body };
    classify(&input(endpoint, vendor, evidence), &Rules::builtin(), now())
}

fn input<'a>(endpoint: Endpoint, vendor: Option<&'a str>, evidence: Evidence<'a>) -> Input<'a> {
    Input { provider: Provider::OpenAiCompatible, vendor, endpoint: Some(endpoint), stream: false, evidence }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000)
}

/// Plain answers with `text` wherever a model or a caller may have put it.
fn answers(text: &str) -> Vec<(Endpoint, Value)> {
    let own = serde_json::from_str::<Value>(text).unwrap_or_else(|_| json!(text));
    let message = json!({"role": "assistant", "content": text, "reasoning_content": text, "refusal": text,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "report_error", "arguments": text}}]});
    vec![
        (
            Endpoint::ChatCompletions,
            json!({"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-4o",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"total_tokens": 3}}),
        ),
        (
            Endpoint::ChatCompletions,
            json!({"choices": [{"message": {"content": [{"type": "text", "text": text}]}, "error": own}],
            "citations": [text], "search_results": [{"title": text, "error": own}]}),
        ),
        (
            Endpoint::Completions,
            json!({"object": "text_completion", "choices": [{"text": text, "index": 0}]}),
        ),
        (
            Endpoint::Messages,
            json!({"type": "message", "role": "assistant", "content": [{"type": "text", "text": text},
            {"type": "tool_use", "id": "t", "name": "error", "input": {"error": own, "type": "error"}}], "stop_reason": text}),
        ),
        (
            Endpoint::Responses,
            json!({"object": "response", "status": "completed", "error": null, "metadata": {"raw": text, "reasons": text},
            "instructions": text, "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}),
        ),
        (
            Endpoint::Embeddings,
            json!({"object": "list", "data": [{"embedding": [0.1], "input": text, "error": own}]}),
        ),
        (Endpoint::Audio, json!({"text": text, "segments": [{"text": text, "error": own}]})),
        (Endpoint::Moderations, json!({"results": [{"flagged": true, "input": text, "error": own}]})),
        (Endpoint::Rerank, json!({"results": [{"index": 0, "document": {"text": text, "error": own}}]})),
        (Endpoint::Images, json!({"created": 1, "data": [{"revised_prompt": text, "error": own}]})),
        (
            Endpoint::ChatCompletions,
            json!({"candidates": [{"content": {"parts": [{"text": text}]}, "error": own}]}),
        ),
    ]
}

/// Events of a stream with `text` in them.
fn events(text: &str) -> Vec<(Option<&'static str>, Value)> {
    let delta = json!({"content": text, "reasoning": text, "reasoning_content": text,
        "tool_calls": [{"index": 0, "function": {"arguments": text}}]});
    vec![
        (None, json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]})),
        (
            Some("content_block_delta"),
            json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}),
        ),
        (
            Some("content_block_delta"),
            json!({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": text}}),
        ),
        (Some("response.output_text.delta"), json!({"type": "response.output_text.delta", "delta": text})),
        (
            Some("response.created"),
            json!({"type": "response.created", "response": {"error": null, "instructions": text}}),
        ),
        (None, json!({"candidates": [{"content": {"parts": [{"text": text}]}}]})),
        (
            Some("content-delta"),
            json!({"type": "content-delta", "delta": {"message": {"content": {"text": text}}}}),
        ),
    ]
}

/// Bodies of 400s that quote `text`, as validators, gateways and providers do.
fn echoes(text: &str) -> Vec<Value> {
    let own = serde_json::from_str::<Value>(text).unwrap_or_else(|_| json!(text));
    let openai = |message: String| json!({"error": {"message": message, "type": "invalid_request_error", "param": "messages", "code": null}});
    vec![
        openai(format!("Invalid value: '{text}'. Supported values are: 'a' and 'b'.")),
        openai(format!("Invalid 'tools[0].function.name': got '{text}'.")),
        openai(format!("'{text}' is not one of ['low', 'high'] - 'reasoning_effort'")),
        openai(format!("{own} is not of type 'string' - 'messages.0.content'")),
        openai(format!("[{own}] is too short - 'messages'")),
        json!({"object": "error", "message": format!("[{{'type': 'string_type', 'input': '{text}'}}]"), "type": "BadRequestError", "code": 400}),
        json!({"detail": [{"type": "enum", "loc": ["body", "messages", 0], "msg": text, "input": own, "reason": text, "code": text}]}),
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": format!("messages.0.role: got '{text}'")}}),
        json!({"error": {"message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed", "failed_generation": text}}),
        json!({"error": {"code": 400, "message": format!("Unknown name \"{text}\""), "status": "INVALID_ARGUMENT",
            "details": [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"field": text, "description": text, "reason": text}], "reason": text}]}}),
        json!({"error": {"message": "bad request", "type": "invalid_request_error", "input": own, "request": own, "body": own, "value": text}}),
        json!({"error": {"message": "bad request", "type": "invalid_request_error"}, "input": own, "request": own, "messages": [own]}),
        json!({"message": {"detail": [{"msg": text, "input": own}]}, "type": "invalid_request_error", "object": "error"}),
        json!({"error": {"message": "filtered", "code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation", "message": text, "prompt": text}}}),
        json!({"error": {"message": "moderated", "code": 400, "metadata": {"flagged_input": text, "reasons": [text]}}}),
        json!({"code": "InvalidParameter", "message": format!("Range of input length should be [1, 10]: {text}"), "request_id": text}),
    ]
}

#[test]
fn part2_planted_text_never_spoils_a_success() {
    for text in dictionary() {
        for vendor in [None, Some("openai"), Some("minimax"), Some("gemini")] {
            for (endpoint, body) in answers(&text) {
                let verdict = read(200, body.to_string().as_bytes(), endpoint, vendor);
                assert_eq!(verdict.class, Class::Ok, "{text:?} in {body} by {}", verdict.rule);
            }
            let headers = HeaderMap::new();
            for (event, data) in events(&text) {
                let data = data.to_string();
                let evidence =
                    Evidence::Event { status: 200, headers: &headers, event, data: data.as_bytes() };
                let verdict = check_stream_event(
                    &input(Endpoint::ChatCompletions, vendor, evidence),
                    &Rules::builtin(),
                    now(),
                );
                assert!(verdict.is_none(), "{text:?} in {data}: {verdict:?}");
            }
        }
    }
}

/// Whole streams, split at every byte, in all three line ends.
#[test]
fn part2_planted_streams_split_anywhere() {
    let headers = HeaderMap::new();
    for text in ENVELOPES {
        let delta = json!({"choices": [{"index": 0, "delta": {"content": text, "reasoning_content": text}}]});
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        let stream =
            format!(": {}\n\ndata: {delta}\n\ndata: {end}\n\ndata: [DONE]\n\n", text.replace('\n', " "));
        for ends in ["\n", "\r\n", "\r"] {
            let stream = stream.replace('\n', ends);
            for at in 0..=stream.len() {
                let (first, second) = stream.as_bytes().split_at(at);
                let evidence = Evidence::Response { status: 200, headers: &headers, body: &[] };
                let mut input = input(Endpoint::ChatCompletions, None, evidence);
                input.stream = true;
                let read = classify_stream(&input, [first, second], &Rules::builtin(), now());
                assert_eq!(read.verdict.class, Class::Ok, "{text:?} split at {at} with {ends:?}");
                assert_eq!(read.first_content, Some(1), "{text:?} split at {at} with {ends:?}");
            }
        }
    }
}

#[test]
fn part2_planted_echoes_stay_the_callers_fault() {
    for text in dictionary() {
        for vendor in [None, Some("openai"), Some("dashscope"), Some("vllm")] {
            for body in echoes(&text) {
                let verdict = read(400, body.to_string().as_bytes(), Endpoint::ChatCompletions, vendor);
                assert_eq!(verdict.class, Class::Transparent, "{text:?} in {body} by {}", verdict.rule);
            }
        }
    }
}

#[test]
fn part2_a_callers_own_files_are_not_read() {
    let headers = HeaderMap::new();
    for text in ENVELOPES {
        let evidence = Evidence::Response { status: 200, headers: &headers, body: text.as_bytes() };
        let mut input = input(Endpoint::ChatCompletions, None, evidence);
        input.endpoint = None;
        assert!(check_success(&input, &Rules::builtin(), now()).is_ok(), "{text}");
    }
}

#[test]
fn part2_linear_time_on_hostile_bytes() {
    let mut gzip = HeaderMap::new();
    gzip.insert("content-encoding", HeaderValue::from_static("gzip"));
    let seeds: [&[u8]; 12] = [
        b"[",
        b"{\"a\":",
        b"\"\\",
        b"\\\"",
        b"{\"error\":{",
        b"{\"error\":\"",
        b"[{\"error\":[",
        b"<",
        b"\xff\xfe",
        b",",
        b"1",
        b"{\"choices\":[{\"message\":{\"content\":\"x\"}}],",
    ];
    for seed in seeds {
        let body = seed.repeat((4 << 20) / seed.len());
        let start = Instant::now();
        for status in [200, 400, 429, 503] {
            for endpoint in [Endpoint::ChatCompletions, Endpoint::Embeddings] {
                read(status, &body, endpoint, None);
            }
        }
        // Unoptimised and on a busy machine; anything quadratic would take minutes.
        assert!(start.elapsed() < Duration::from_secs(20), "{seed:?}: {:?}", start.elapsed());
    }
}

/// Text out of the dictionary, arbitrary text, or both in one.
fn planted() -> impl Strategy<Value = String> {
    let words = dictionary();
    let word = (0..words.len()).prop_map(move |at| words[at].clone());
    (".{0,12}", word, ".{0,12}").prop_map(|(before, word, after)| format!("{before}{word}{after}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn part2_success_stays_success(text in planted()) {
        for (endpoint, body) in answers(&text) {
            let verdict = read(200, body.to_string().as_bytes(), endpoint, None);
            prop_assert_eq!(verdict.class, Class::Ok, "{} by {}", body, verdict.rule);
        }
    }

    #[test]
    fn part2_echo_stays_transparent(text in planted()) {
        for body in echoes(&text) {
            let verdict = read(400, body.to_string().as_bytes(), Endpoint::ChatCompletions, None);
            prop_assert_eq!(verdict.class, Class::Transparent, "{} by {}", body, verdict.rule);
        }
    }

    #[test]
    fn part2_no_bytes_panic(
        body in proptest::collection::vec(any::<u8>(), 0..600),
        status in 100u16..600,
        event in proptest::option::of("[a-z]{0,6}"),
        encoding in proptest::sample::select(vec!["", "gzip", "deflate", "br"]),
        wait in "[ -~]{0,20}",
    ) {
        let mut headers = HeaderMap::new();
        headers.insert("content-encoding", HeaderValue::from_static(encoding));
        headers.insert("retry-after", HeaderValue::from_str(&wait).unwrap());
        headers.insert("x-ratelimit-remaining-tokens", HeaderValue::from_static("0"));
        headers.insert("x-ratelimit-reset-tokens", HeaderValue::from_str(&wait).unwrap());
        let rules = Rules::builtin();
        for evidence in [
            Evidence::Response { status, headers: &headers, body: &body },
            Evidence::Response { status: 200, headers: &headers, body: &body },
            Evidence::Event { status: 200, headers: &headers, event: event.as_deref(), data: &body },
        ] {
            let verdict = classify(&input(Endpoint::ChatCompletions, None, evidence), &rules, now());
            prop_assert!(verdict.excerpt.len() <= 256 && verdict.provider_code.len() <= 128);
        }
    }

    #[test]
    fn part2_no_mutation_of_an_envelope_panics(
        which in 0..ENVELOPES.len(),
        cut in 0usize..200,
        changes in proptest::collection::vec((0usize..200, any::<u8>()), 0..6),
        status in prop_oneof![Just(200u16), Just(400), Just(401), Just(404), Just(429), Just(503)],
    ) {
        let mut body = ENVELOPES[which].as_bytes().to_vec();
        for (at, byte) in changes {
            if let Some(place) = body.get_mut(at) {
                *place = byte;
            }
        }
        body.truncate(cut.max(1));
        let verdict = read(status, &body, Endpoint::ChatCompletions, None);
        prop_assert!(!verdict.rule.as_str().is_empty());
    }
}
