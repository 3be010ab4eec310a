//! What a verdict costs. Targets: a 300-byte error < 3 us, a 4 KiB one < 20 us, a 16 KiB one < 30 us (p99), the check of
//! a 64 KiB answer < 60 us, of one stream event < 1 us. Criterion shows means; the p99 of single calls stand at the end.

#![allow(clippy::print_stdout)] // it is what benches are for

use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::{HeaderMap, HeaderValue};
use spareline_core::classify::{Evidence, Input, Rules, check_stream_event, check_success, classify};
use spareline_core::words::{Endpoint, Provider};

const TYPICAL: &str = r#"{"error":{"message":"Rate limit reached for gpt-4.1 in organization org-PLACEHOLDER on tokens per min (TPM): Limit 30000, Used 18928, Requested 11159. Please try again in 174ms. Visit https://platform.openai.com/account/rate-limits to learn more.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#;

fn input<'a>(evidence: Evidence<'a>) -> Input<'a> {
    Input {
        provider: Provider::OpenAiCompatible,
        vendor: None,
        endpoint: Some(Endpoint::ChatCompletions),
        stream: false,
        evidence,
    }
}

/// An error that quotes what was sent, as validators do, code last.
fn quoting(size: usize) -> String {
    let filler: String =
        r#"{\"role\":\"user\",\"content\":\"the quick brown fox, 1 of 2\"},\n"#.repeat(size / 58);
    format!(
        r#"{{"error":{{"message":"Invalid value: [{filler}]","type":"invalid_request_error","param":"messages","code":"invalid_value"}}}}"#
    )
}

/// A long list of small things.
fn details(size: usize) -> String {
    let items: Vec<_> = (0..size / 80)
        .map(|at| {
            format!(r#"{{"type":"missing","loc":["body","messages",{at},"content"],"msg":"Field required"}}"#)
        })
        .collect();
    format!(r#"{{"detail":[{}],"code":"invalid_request"}}"#, items.join(","))
}

fn answer(size: usize) -> String {
    let content = "Insufficient balance? \\\"error\\\": no. The quick brown fox jumps over the lazy dog.\\n"
        .repeat(size / 84);
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1735000000,"model":"gpt-4o","choices":[{{"index":0,"message":{{"role":"assistant","content":"{content}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":9,"completion_tokens":20,"total_tokens":29}}}}"#
    )
}

/// Numbers, as embeddings are.
fn vectors(size: usize) -> String {
    let numbers = vec!["-0.0123456789"; size / 14].join(",");
    format!(
        r#"{{"object":"list","data":[{{"object":"embedding","index":0,"embedding":[{numbers}]}}],"model":"m","usage":{{"prompt_tokens":1,"total_tokens":1}}}}"#
    )
}

fn cases() -> [(&'static str, u16, String); 5] {
    [
        ("typical_300b", 429, TYPICAL.to_owned()),
        ("quoting_4k", 400, quoting(4 * 1024)),
        ("quoting_16k", 400, quoting(16 * 1024)),
        ("details_16k", 422, details(16 * 1024)),
        ("html_16k", 502, format!("<html>{}</html>", "<p>Bad gateway</p>".repeat(900))),
    ]
}

fn errors(c: &mut Criterion) {
    let rules = Rules::builtin();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000);
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let mut group = c.benchmark_group("classify");
    for (name, status, body) in &cases() {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(*name, |b| {
            b.iter(|| {
                let evidence =
                    Evidence::Response { status: *status, headers: &headers, body: body.as_bytes() };
                classify(black_box(&input(evidence)), &rules, now)
            });
        });
    }
    group.finish();
}

fn successes(c: &mut Criterion) {
    let rules = Rules::builtin();
    let now = SystemTime::UNIX_EPOCH;
    let headers = HeaderMap::new();
    let mut group = c.benchmark_group("success");
    for (name, body) in [("answer_64k", answer(64 * 1024)), ("embedding_64k", vectors(64 * 1024))] {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                let evidence = Evidence::Response { status: 200, headers: &headers, body: body.as_bytes() };
                check_success(black_box(&input(evidence)), &rules, now).is_ok()
            });
        });
    }
    let event = r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1735000000,"model":"gpt-4o","choices":[{"index":0,"delta":{"content":" fox"},"finish_reason":null}]}"#;
    group.throughput(Throughput::Bytes(event.len() as u64));
    group.bench_function("stream_event", |b| {
        b.iter(|| {
            let evidence =
                Evidence::Event { status: 200, headers: &headers, event: None, data: event.as_bytes() };
            check_stream_event(black_box(&input(evidence)), &rules, now).is_none()
        });
    });
    group.finish();
}

/// Single calls, as a proxy makes them.
fn quantiles(_: &mut Criterion) {
    const CALLS: usize = 20_000;
    let rules = Rules::builtin();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000);
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    for (name, status, body) in &cases() {
        let evidence = Evidence::Response { status: *status, headers: &headers, body: body.as_bytes() };
        let mut took: Vec<_> = (0..CALLS)
            .map(|_| {
                let start = Instant::now();
                black_box(classify(black_box(&input(evidence)), &rules, now));
                start.elapsed()
            })
            .collect();
        took.sort_unstable();
        let at = |share: usize| took.get(CALLS * share / 1000).copied().unwrap_or_default();
        println!("classify/{name}: p50 {:?}, p99 {:?}, p99.9 {:?}", at(500), at(990), at(999));
    }
}

criterion_group!(benches, errors, successes, quantiles);
criterion_main!(benches);
