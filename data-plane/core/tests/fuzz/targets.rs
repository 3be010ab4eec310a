//! What must hold for any bytes at all. Each target is run by the tests of this crate on seeds and their mutations, and by
//! libFuzzer for as long as one likes (`fuzz/`).

#[path = "../planted/bodies.rs"]
mod bodies;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use spareline_core::classify::{
    Evidence, Input, Rules, Verdict, check_stream_event, classify, classify_recorded, classify_stream,
};
use spareline_core::splice::{self, Edit};
use spareline_core::words::{Class, Endpoint, Provider, Scope};

/// The bytes in front of an answer's body: status (two), dialect and endpoint, vendor, kind, length of the headers.
pub(crate) const HEAD: usize = 6;

/// Names of vendors, by the byte that stands for them; every other byte stands for none.
pub(crate) const VENDORS: &[&str] = &[
    "openai",
    "openai-responses",
    "anthropic",
    "gemini",
    "azure",
    "bedrock",
    "zhipu",
    "minimax",
    "baidu",
    "xfyun",
    "siliconflow",
    "mistral",
    "cloudflare",
    "dashscope",
    "volcengine",
    "openrouter",
    "litellm",
    "new-api",
];

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000)
}

/// An answer out of `data`, given to `look` as an [`Input`] with its body.
fn answer(data: &[u8], look: impl for<'a> FnOnce(Input<'a>, &'a HeaderMap, u16, &'a [u8])) {
    let Some((head, rest)) = data.split_first_chunk::<HEAD>() else { return };
    let status = 100 + u16::from_le_bytes([head[0], head[1]]) % 600;
    let (lines, body) = rest.split_at(usize::from(head[5]).min(rest.len()));
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        if let (Some(name), Some(value)) = (parts.next(), parts.next())
            && let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii()))
        {
            headers.append(name, value);
        }
    }
    let endpoint = usize::from(head[2] >> 2);
    let input = Input {
        provider: Provider::ALL[usize::from(head[2] & 3) % Provider::ALL.len()],
        vendor: VENDORS.get(usize::from(head[3])).copied(),
        endpoint: Endpoint::ALL.get(endpoint).copied(),
        stream: head[4] & 1 == 1,
        evidence: Evidence::Response { status, headers: &headers, body },
    };
    look(input, &headers, status, body);
}

/// Any answer: a verdict that hangs together, the same every time.
pub(crate) fn classifies(data: &[u8]) {
    answer(data, |mut input, headers, status, body| {
        let rules = Rules::builtin();
        let first = classify(&input, &rules, now());
        holds_together(&first);
        assert_eq!(format!("{first:?}"), format!("{:?}", classify(&input, &rules, now())));
        holds_together(&classify_recorded(&input, &rules, now()).verdict);
        for event in [None, Some("error"), Some("message")] {
            input.evidence = Evidence::Event { status, headers, event, data: body };
            holds_together(&classify(&input, &rules, now()));
        }
    });
}

fn holds_together(verdict: &Verdict) {
    assert!(verdict.excerpt.len() <= 256 && verdict.provider_code.len() <= 128, "{verdict:?}");
    assert!(!verdict.excerpt.contains(['\n', '\r', '\0']), "{verdict:?}");
    assert!(!verdict.rule.as_str().is_empty() && verdict.also.len() < 64, "{verdict:?}");
    let out = matches!(verdict.class, Class::Disable | Class::Throttle | Class::ModelUnavailable);
    assert_eq!(verdict.cause.is_some(), out, "{verdict:?}");
    if verdict.class == Class::ModelUnavailable {
        assert!(verdict.confirm && verdict.scope == Scope::Ability, "{verdict:?}");
    }
    if let Some(hint) = &verdict.retry_after {
        assert!(hint.raw.len() <= 64, "{verdict:?}");
        assert!((Duration::from_secs(1)..=Duration::from_secs(900)).contains(&hint.wait()), "{verdict:?}");
        assert!(matches!(verdict.class, Class::Throttle | Class::Retryable), "{verdict:?}");
    }
}

/// Any text in the places where models and callers put theirs: bytes below 0x20 stand for phrases of the rules.
pub(crate) fn planted(data: &[u8]) {
    let Some((vendor, text)) = data.split_first() else { return };
    let vendor = VENDORS.get(usize::from(*vendor)).copied();
    let text = spelt(text);
    let rules = Rules::builtin();
    let headers = HeaderMap::new();
    for (endpoint, body) in bodies::answers(&text) {
        let body = body.to_string();
        let evidence = Evidence::Response { status: 200, headers: &headers, body: body.as_bytes() };
        let verdict = classify(&input(vendor, endpoint, evidence), &rules, now());
        assert_eq!(verdict.class, Class::Ok, "{body} by {}", verdict.rule);
    }
    for (event, data) in bodies::events(&text) {
        let data = data.to_string();
        let evidence = Evidence::Event { status: 200, headers: &headers, event, data: data.as_bytes() };
        let verdict = check_stream_event(&input(vendor, Endpoint::ChatCompletions, evidence), &rules, now());
        assert!(verdict.is_none(), "{data}: {verdict:?}");
    }
    for body in bodies::echoes(&text) {
        let body = body.to_string();
        let evidence = Evidence::Response { status: 400, headers: &headers, body: body.as_bytes() };
        let verdict = classify(&input(vendor, Endpoint::ChatCompletions, evidence), &rules, now());
        assert_eq!(verdict.class, Class::Transparent, "{body} by {}", verdict.rule);
    }
}

fn input<'a>(vendor: Option<&'a str>, endpoint: Endpoint, evidence: Evidence<'a>) -> Input<'a> {
    Input { provider: Provider::OpenAiCompatible, vendor, endpoint: Some(endpoint), stream: false, evidence }
}

/// `text` with its control characters (but for line ends and tabs) replaced by phrases: two bytes name one.
fn spelt(text: &[u8]) -> String {
    thread_local!(static WORDS: Vec<String> = bodies::dictionary());
    let mut out = String::new();
    let mut rest = String::from_utf8_lossy(text).into_owned();
    rest.truncate(rest.floor_char_boundary(2048));
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        if !c.is_ascii_control() || matches!(c, '\n' | '\r' | '\t') {
            out.push(c);
            continue;
        }
        let which = u32::from(c) << 7 | chars.next().map_or(0, u32::from);
        WORDS.with(|words| out.push_str(&words[which as usize % words.len()]));
    }
    out
}

/// Any stream, in any pieces: reads as it does in one piece.
pub(crate) fn splits(data: &[u8]) {
    let Some((&pieces, rest)) = data.split_first() else { return };
    let (cuts, rest) = rest.split_at(usize::from(pieces % 16).min(rest.len()));
    answer(rest, |mut input, headers, _, body| {
        input.stream = true;
        input.evidence = Evidence::Response { status: 200, headers, body: &[] };
        let rules = Rules::builtin();
        let mut places: Vec<usize> = cuts
            .iter()
            .enumerate()
            .map(|(at, cut)| (at * 61 + usize::from(*cut)) % (body.len() + 1))
            .collect();
        places.sort_unstable();
        let (mut chunks, mut from) = (Vec::new(), 0);
        for at in places {
            chunks.push(&body[from..at]);
            from = at;
        }
        chunks.push(&body[from..]);
        let whole = classify_stream(&input, [body], &rules, now());
        let split = classify_stream(&input, chunks, &rules, now());
        holds_together(&whole.verdict);
        assert_eq!(format!("{whole:?}"), format!("{split:?}"));
    });
}

/// Any request body: another model in it changes nothing but the model.
pub(crate) fn splices(data: &[u8]) {
    let Some((&length, rest)) = data.split_first() else { return };
    let (name, body) = rest.split_at(usize::from(length % 64).min(rest.len()));
    let name = String::from_utf8_lossy(name);
    let bytes = Bytes::copy_from_slice(body);
    let around = |new: &[u8], span: &std::ops::Range<usize>, grown: usize| {
        assert_eq!(new[..span.start], body[..span.start]);
        assert_eq!(new[span.start + grown..], body[span.end..]);
    };
    if let Ok(fields) = splice::scan(body, Some("user")) {
        let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        if let Some(model) = &fields.model {
            let edit = Edit::json_model(model.span.clone(), &name);
            let grown = edit.text.len();
            let new = splice::apply(&bytes, &mut [edit]);
            around(&new, &model.span, grown);
            if !name.is_empty() {
                let read = splice::scan(&new, Some("user"));
                assert!(read.is_ok_and(|read| read.model.is_some_and(|model| model.name == name)));
            }
            // Whatever else reads it sees the same.
            if let (Some(old), Ok(mut new)) =
                (value.as_object(), serde_json::from_slice::<serde_json::Value>(&new))
            {
                new["model"] = old["model"].clone();
                assert_eq!(new, value);
            }
        } else if let Some(edit) = Edit::insert_model(body, "m") {
            let (at, grown) = (edit.range.clone(), edit.text.len());
            let new = splice::apply(&bytes, &mut [edit]);
            around(&new, &at, grown);
            assert!(
                splice::scan(&new, None).is_ok_and(|read| read.model.is_some_and(|model| model.name == "m"))
            );
        }
        if let Some(edit) = Edit::include_usage(body, &fields) {
            let new = splice::apply(&bytes, &mut [edit]);
            assert_eq!(splice::scan(&new, None).ok().and_then(|read| read.include_usage), Some(true));
        }
    }
    if let Ok(Some(model)) = splice::multipart_model(body, "b") {
        let edit = Edit::form_model(model.span.clone(), &name);
        let new = splice::apply(&bytes, &mut [edit]);
        around(&new, &model.span, name.len());
    }
}
