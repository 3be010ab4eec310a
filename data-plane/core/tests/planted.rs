//! Nothing that a model wrote or a caller sent ever counts: every phrase and code of the rules and whole error
//! envelopes, planted where models and callers can put text, leave a success a success and a 400 a 400. And no bytes at
//! all make the classifier panic or take more than linear time.

#![allow(clippy::unwrap_used, clippy::panic)] // a broken case file is a failure too

#[path = "planted/bodies.rs"]
mod bodies;

use std::time::{Duration, Instant, SystemTime};

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use serde_json::json;
use spareline_core::classify::{
    Evidence, Input, Rules, Verdict, check_stream_event, check_success, classify, classify_stream,
};
use spareline_core::words::{Class, Endpoint, Provider};

use bodies::{ENVELOPES, answers, dictionary, echoes, events};

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
