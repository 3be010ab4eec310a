//! What looks at every stream and every request body: the SSE scanner, the commit judge, the model splice.
#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::HeaderMap;
use spareline_core::classify::Rules;
use spareline_core::commit::{Context, Judge};
use spareline_core::splice::{self, Edit};
use spareline_core::sse::{Event, Flow, Scanner};
use spareline_core::{Endpoint, Provider};

fn chunk(content: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-123\",\"object\":\"chat.completion.chunk\",\"created\":1735000000,\"model\":\"gpt-4o\",\
         \"system_fingerprint\":\"fp_1\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},\"logprobs\":null,\
         \"finish_reason\":null}}]}}\n\n"
    )
}

fn scan(c: &mut Criterion) {
    let mut group = c.benchmark_group("sse_scan");
    let small: String = (0..1000).map(|_| chunk("hello")).collect();
    let large = format!("data: {{\"x\":\"{}\"}}\n\n", "y".repeat(900_000));
    for (name, text, size) in [
        ("1000 events, 4 KiB chunks", &small, 4096),
        ("1000 events, 200 B chunks", &small, 200),
        ("one 900 KB event, 16 KiB chunks", &large, 16384),
    ] {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut scanner = Scanner::new();
                let mut seen = 0;
                for chunk in text.as_bytes().chunks(size) {
                    scanner.push(black_box(chunk), |event| {
                        seen += event.data.len();
                        Flow::Continue
                    });
                }
                seen
            });
        });
    }
}

fn judge(c: &mut Criterion) {
    let headers = HeaderMap::new();
    let rules = Rules::builtin();
    let context = Context {
        provider: Provider::OpenAi,
        vendor: None,
        endpoint: Some(Endpoint::ChatCompletions),
        status: 200,
        headers: &headers,
        rules: &rules,
        now: UNIX_EPOCH,
    };
    let text = chunk("hello");
    let data = text.trim_end().strip_prefix("data: ").unwrap_or_default().as_bytes();
    let mut group = c.benchmark_group("commit_judge");
    group.bench_function("one chat chunk", |b| {
        let mut judge = Judge::new();
        let event = Event { name: None, data, too_long: false, status: None };
        b.iter(|| judge.event(black_box(event), &context));
    });
    let anthropic =
        br#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello there"}}"#;
    group.bench_function("one messages delta", |b| {
        let mut judge = Judge::new();
        let event =
            Event { name: Some("content_block_delta"), data: anthropic, too_long: false, status: None };
        b.iter(|| judge.event(black_box(event), &context));
    });
}

fn model(c: &mut Criterion) {
    let mut group = c.benchmark_group("splice");
    for (name, length) in [("1 KiB body", 900), ("200 KiB body", 200_000)] {
        let body = Bytes::from(format!(
            "{{\"messages\":[{{\"role\":\"user\",\"content\":\"{}\"}}],\"model\":\"gpt-4o\",\"stream\":true}}",
            "lorem ipsum ".repeat(length / 12)
        ));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(format!("scan, {name}"), |b| {
            b.iter(|| splice::scan(black_box(&body), None).is_ok());
        });
        let Ok(Some(found)) = splice::scan(&body, None).map(|fields| fields.model) else { return };
        let span = found.span;
        group.bench_function(format!("replace the model, {name}"), |b| {
            b.iter(|| splice::apply(&body, &mut [Edit::json_model(span.clone(), "upstream-name")]));
        });
    }
}

criterion_group!(benches, scan, judge, model);
criterion_main!(benches);
