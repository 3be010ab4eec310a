use std::time::UNIX_EPOCH;

use super::*;
use crate::sse::{Flow, Scanner};

/// What a whole stream looked like to the judge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    first_content: Option<u32>,
    error: Option<u32>,
    terminal: bool,
    content: bool,
    finish: Option<Finish>,
    usage: Usage,
    may_end: bool,
    may_end_empty: bool,
    events: u32,
}

fn watch(chunks: &[&[u8]], endpoint: Option<Endpoint>, provider: Provider) -> Seen {
    let headers = HeaderMap::new();
    let rules = Rules::builtin();
    let context = Context {
        provider,
        vendor: None,
        endpoint,
        status: 200,
        headers: &headers,
        rules: &rules,
        now: UNIX_EPOCH,
    };
    let mut judge = Judge::new();
    let mut seen = Seen::default();
    let mut scanner = Scanner::new();
    let mut look = |event: Event<'_>| {
        match judge.event(event, &context) {
            Step::Content | Step::Terminal { content: true } => {
                seen.first_content.get_or_insert(judge.events());
            }
            Step::Error(_) => {
                seen.error.get_or_insert(judge.events());
            }
            Step::Nothing | Step::Terminal { content: false } => {}
        }
        Flow::Continue
    };
    for chunk in chunks {
        scanner.push(chunk, &mut look);
    }
    scanner.finish(&mut look);
    Seen {
        terminal: judge.terminal(),
        content: judge.content(),
        finish: judge.finish(),
        usage: judge.usage(),
        may_end: judge.may_end(),
        may_end_empty: judge.may_end_without_content(),
        events: judge.events(),
        ..seen
    }
}

fn chat(text: &str) -> Seen {
    watch(&[text.as_bytes()], Some(Endpoint::ChatCompletions), Provider::OpenAi)
}

fn messages(text: &str) -> Seen {
    watch(&[text.as_bytes()], Some(Endpoint::Messages), Provider::Anthropic)
}

fn responses(text: &str) -> Seen {
    watch(&[text.as_bytes()], Some(Endpoint::Responses), Provider::OpenAi)
}

struct Row {
    id: String,
    endpoint: Endpoint,
    provider: Provider,
    body: String,
    first_content: Option<u32>,
    error: Option<u32>,
    class: String,
}

fn corpus() -> Vec<Row> {
    let text = include_str!("../../../../tests/data/corpus/upstream.jsonl");
    let mut rows = Vec::new();
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let json = row["headers"]["content-type"]
            .as_str()
            .is_some_and(|kind| !kind.starts_with("text/event-stream"));
        if row["stream"] != true || json {
            continue;
        }
        let index = |field: &str| row[field].as_u64().map(|index| u32::try_from(index).unwrap());
        let (endpoint, provider) = match row["provider"].as_str().unwrap() {
            "anthropic" => (Endpoint::Messages, Provider::Anthropic),
            "openai-responses" => (Endpoint::Responses, Provider::OpenAi),
            "openai" => (Endpoint::ChatCompletions, Provider::OpenAi),
            "azure" => (Endpoint::ChatCompletions, Provider::AzureOpenAi),
            _ => (Endpoint::ChatCompletions, Provider::OpenAiCompatible),
        };
        rows.push(Row {
            id: row["id"].as_str().unwrap().to_owned(),
            endpoint,
            provider,
            body: row["body"].as_str().unwrap().to_owned(),
            first_content: index("first_content_event"),
            error: index("error_event"),
            class: row["class"].as_str().unwrap().to_owned(),
        });
    }
    assert!(rows.len() >= 38, "{}", rows.len());
    rows
}

#[test]
fn corpus_streams_have_their_first_content_and_their_error_where_they_should() {
    for row in corpus() {
        let seen = watch(&[row.body.as_bytes()], Some(row.endpoint), row.provider);
        assert_eq!(seen.first_content, row.first_content, "{}: {seen:?}", row.id);
        assert_eq!(seen.error, row.error, "{}: {seen:?}", row.id);
        if row.class == "ok" {
            assert!(seen.may_end, "{}: {seen:?}", row.id);
            assert!(seen.content || seen.may_end_empty, "{}: {seen:?}", row.id);
        } else if row.error.is_none() {
            assert!(!seen.content && !seen.may_end_empty, "{}: {seen:?}", row.id);
        }
    }
}

/// The events alone: the judge sees nothing else.
fn events(chunks: &[&[u8]]) -> Vec<(Option<String>, Vec<u8>)> {
    let mut events = Vec::new();
    let mut scanner = Scanner::new();
    let mut note = |event: Event<'_>| {
        events.push((event.name.map(str::to_owned), event.data.to_vec()));
        Flow::Continue
    };
    for chunk in chunks {
        scanner.push(chunk, &mut note);
    }
    scanner.finish(&mut note);
    events
}

#[test]
fn corpus_streams_read_the_same_split_anywhere_with_any_line_ends() {
    for row in corpus() {
        let unix = row.body.replace("\r\n", "\n");
        let want = events(&[unix.as_bytes()]);
        let judged = watch(&[unix.as_bytes()], Some(row.endpoint), row.provider);
        for end in ["\n", "\r\n", "\r"] {
            let text = unix.replace('\n', end);
            for at in 0..=text.len() {
                let (a, b) = text.as_bytes().split_at(at);
                assert!(events(&[a, b]) == want, "{} {end:?} at {at}", row.id);
            }
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(
                watch(&bytes, Some(row.endpoint), row.provider),
                judged,
                "{} {end:?} byte by byte",
                row.id
            );
        }
    }
}

#[test]
fn usage_is_read_from_wherever_it_comes_and_never_added_up() {
    let want = |input, output| Usage { input: Some(input), output: Some(output), ..Usage::default() };
    let delta = r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    let cases = [
        format!(r#"data: {delta}

data: {{"choices":[],"usage":{{"prompt_tokens":3,"completion_tokens":5}}}}

"#),
        r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":5}}

"#
        .to_owned(),
        r#"data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}

data: {"choices":[{"index":0,"delta":{"content":"b"}}],"usage":{"prompt_tokens":3,"completion_tokens":5}}

data: {"choices":[{"index":0,"delta":{}}],"usage":null}

"#
        .to_owned(),
        r#"data:{"x_groq":{"usage":{"prompt_tokens":3,"completion_tokens":5}},"choices":[]}

"#
        .to_owned(),
        r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":5}}]}

"#
        .to_owned(),
    ];
    for case in &cases {
        assert_eq!(chat(case).usage, want(3, 5), "{case}");
    }
    let anthropic = r#"data: {"type":"message_start","message":{"usage":{"input_tokens":12,"cache_read_input_tokens":4,"output_tokens":1}}}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}

"#;
    assert_eq!(messages(anthropic).usage, Usage { cached: Some(4), ..want(12, 9) });
    let completed = r#"data: {"type":"response.completed","response":{"output":[{}],"usage":{"input_tokens":2,"output_tokens":7,"output_tokens_details":{"reasoning_tokens":6}}}}

"#;
    assert_eq!(responses(completed).usage, Usage { reasoning: Some(6), ..want(2, 7) });
    let failed = r#"data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"x"},"usage":{"input_tokens":3,"output_tokens":4}}}

"#;
    let seen = responses(failed);
    assert_eq!((seen.error, seen.usage), (Some(1), want(3, 4)), "what failed is billed all the same");
    let both =
        r#"{"usage":{"prompt_tokens":3,"input_tokens":4,"completion_tokens":5.0,"output_tokens":"x"}}"#;
    assert_eq!(Usage::of_answer(both.as_bytes()), want(3, 5));
    assert!(Usage::of_answer(b"[1]").is_empty());
}

#[test]
fn an_end_without_content_is_an_answer_only_where_it_says_why() {
    let ended = |reason: &str| {
        chat(&format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\ndata: [DONE]\n\n"
        ))
    };
    for reason in ["length", "content_filter", "tool_calls", "refusal", "function_call"] {
        let seen = ended(reason);
        assert!(!seen.content && seen.may_end_empty, "{reason}");
    }
    for reason in ["stop", "error", "eos"] {
        assert!(!ended(reason).may_end_empty, "{reason}");
    }
    assert!(!chat("data: [DONE]\n\n").may_end_empty);
    assert!(chat("data: {\"candidates\":[{\"finishReason\":\"SAFETY\"}]}\n\n").may_end_empty);
    assert!(
        chat("data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"},\"candidates\":[]}\n\n").may_end_empty
    );
    let incomplete = "data: {\"type\":\"response.incomplete\",\"response\":{\"output\":[],\"incomplete_details\":{\"reason\":\"content_filter\"}}}\n\n";
    let seen = responses(incomplete);
    assert!(seen.terminal && seen.may_end_empty && seen.finish == Some(Finish::Refused));
}

#[test]
fn a_finish_counts_once_every_choice_has_one() {
    let first = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}},{\"index\":1,\"delta\":{\"content\":\"b\"}}]}\n\ndata: {\"choices\":[{\"index\":1,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let seen = chat(first);
    assert_eq!((seen.finish, seen.may_end), (None, false));
    let seen = chat(&format!(
        "{first}data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"length\"}}]}}\n\n"
    ));
    assert_eq!((seen.finish, seen.may_end), (Some(Finish::Length), true));
}

#[test]
fn lifecycle_and_empty_pieces_are_no_content() {
    for empty in [
        r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
        r#"{"choices":[{"delta":{"content":null,"refusal":null,"tool_calls":[],"reasoning_content":""}}]}"#,
        r#"{"choices":[],"prompt_filter_results":[{}]}"#,
        r#"{"choices":null}"#,
        r#"{"choices":[{"text":""}]}"#,
        r#"{"choices":[7]}"#,
    ] {
        assert!(!chat(&format!("data: {empty}\n\n")).content, "{empty}");
    }
    for empty in ["message_start", "ping", "content_block_stop", "message_delta"] {
        assert!(!messages(&format!("data: {{\"type\":\"{empty}\"}}\n\n")).content, "{empty}");
    }
    for empty in [
        "response.created",
        "response.in_progress",
        "response.queued",
        "response.output_item.added",
        "response.content_part.added",
    ] {
        assert!(
            !responses(&format!("data: {{\"type\":\"{empty}\",\"response\":{{\"error\":null}}}}\n\n"))
                .content,
            "{empty}"
        );
    }
    assert!(
        !messages(
            r#"data: {"type":"content_block_start","content_block":{"type":"text","text":""}}

"#
        )
        .content
    );
    assert!(!chat("data: not json\n\n").content, "a malformed event is no content");
    assert!(!chat(": comment\n\n: comment\n\n").content);
}

#[test]
fn every_kind_of_content_counts() {
    for full in [
        r#"{"choices":[{"delta":{"reasoning":"x"}}]}"#,
        r#"{"choices":[{"delta":{"refusal":"no"}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
        r#"{"choices":[{"delta":{"function_call":{"name":"f"}}}]}"#,
        r#"{"choices":[{"delta":{"audio":{"id":"a"}}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"text"}]}}]}"#,
        r#"{"choices":[{"text":"x"}]}"#,
        r#"{"choices":[{"message":{"content":"whole"}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]}}]}"#,
    ] {
        assert!(chat(&format!("data: {full}\n\n")).content, "{full}");
    }
    for full in [
        r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":""}}"#,
        r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"x"}}"#,
    ] {
        assert!(messages(&format!("data: {full}\n\n")).content, "{full}");
    }
    for full in [
        r#"{"type":"response.output_text.delta","delta":"x"}"#,
        r#"{"type":"response.reasoning_summary_text.delta","delta":"x"}"#,
        r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#,
        r#"{"type":"response.output_item.done","item":{"type":"function_call"}}"#,
        r#"{"type":"response.image_generation_call.partial_image","partial_image_b64":"x"}"#,
    ] {
        assert!(responses(&format!("data: {full}\n\n")).content, "{full}");
    }
    let audio = watch(
        &[b"data: {\"type\":\"speech.audio.delta\",\"audio\":\"x\"}\n\n"],
        Some(Endpoint::Audio),
        Provider::OpenAi,
    );
    assert!(audio.content);
}

#[test]
fn streams_of_unknown_shape_are_content_and_may_end_where_they_like() {
    let seen = watch(&[b"data: hello\n\ndata: {\"x\":1}\n\n"], None, Provider::OpenAiCompatible);
    assert!(seen.content && seen.may_end && seen.first_content == Some(1));
}

#[test]
fn an_event_too_long_to_look_at_is_content_and_its_name_still_ends_the_stream() {
    let headers = HeaderMap::new();
    let rules = Rules::builtin();
    let context = Context {
        provider: Provider::OpenAi,
        vendor: None,
        endpoint: Some(Endpoint::Responses),
        status: 200,
        headers: &headers,
        rules: &rules,
        now: UNIX_EPOCH,
    };
    let mut judge = Judge::new();
    let long = |name| Event { name, data: b"", too_long: true, status: None };
    assert!(matches!(judge.event(long(None), &context), Step::Content));
    assert!(matches!(
        judge.event(long(Some("response.completed")), &context),
        Step::Terminal { content: true }
    ));
}

/// Events that are alike are not read again; what differs must be noticed all the same.
#[test]
fn part13_alike_events_hide_nothing() {
    let chunk =
        |rest: &str| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{rest}}}\n\n");
    let plain = |text: &str| chunk(&format!("\"{text}\"}},\"finish_reason\":null}}]"));
    let words: String = ["one", "two", "three", "four"].map(plain).concat();
    let stop = chunk("\"\"},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":3}");
    let whole = format!("{words}{stop}");
    let seen = watch(&[whole.as_bytes()], Some(Endpoint::ChatCompletions), Provider::OpenAi);
    assert_eq!((seen.events, seen.finish, seen.usage.input), (5, Some(Finish::Length), Some(3)));
    assert_eq!(seen.first_content, Some(1));

    let error = format!("{words}data: {{\"error\":{{\"message\":\"x\",\"type\":\"server_error\"}}}}\n\n");
    let seen = watch(&[error.as_bytes()], Some(Endpoint::ChatCompletions), Provider::OpenAi);
    assert_eq!((seen.events, seen.error), (5, Some(5)));
}

#[test]
fn raw_control_characters_and_bytes_that_are_no_text_hide_no_content_and_no_end() {
    let text: &[&[u8]] = &[
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\x0b\x0c\"}}]}\n\n",
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\xff\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3}}\n\n",
    ];
    let seen = watch(text, Some(Endpoint::ChatCompletions), Provider::OpenAi);
    assert_eq!((seen.first_content, seen.finish, seen.usage.input), (Some(1), Some(Finish::Stop), Some(3)));
    let broken = watch(&[b"data: {\"choices\":\x0b\n\n"], Some(Endpoint::ChatCompletions), Provider::OpenAi);
    assert!(!broken.content);
}

#[test]
fn nothing_follows_an_error_of_anthropics() {
    let error = b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n";
    assert!(watch(&[error], Some(Endpoint::Messages), Provider::Anthropic).terminal);
    assert!(!watch(&[error], Some(Endpoint::Responses), Provider::OpenAi).terminal);
}
