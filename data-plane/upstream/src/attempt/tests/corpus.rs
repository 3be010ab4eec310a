//! Every recorded stream through a whole attempt, in seeded chunks: what goes in comes out, with the right ending.

use std::time::Duration;

use spareline_core::{Class, Endpoint, Provider};

use super::timing::judge;
use crate::attempt::{CommitMode, Ending};
use crate::testing::{CHAT_STREAM, Setup, finish, outgoing};

/// Cuts a text into pieces of 1 to 60 bytes at char boundaries or not: bytes are bytes.
fn pieces(text: &str, seed: &mut u64) -> Vec<(u64, Vec<u8>)> {
    let mut rest = text.as_bytes();
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = usize::try_from(*seed >> 33).unwrap() % 60 + 1;
        let (piece, after) = rest.split_at(length.min(rest.len()));
        pieces.push((0, piece.to_vec()));
        rest = after;
    }
    pieces
}

fn setup(provider: &str) -> Setup {
    let mut setup = Setup::new("http://127.0.0.1:1", CHAT_STREAM);
    match provider {
        "anthropic" => {
            setup.target.provider = Provider::Anthropic;
            setup.request = outgoing(Endpoint::Messages, "/v1/messages", CHAT_STREAM);
        }
        "openai-responses" => setup.request = outgoing(Endpoint::Responses, "/v1/responses", CHAT_STREAM),
        "openai" => {}
        _ => setup.target.provider = Provider::OpenAiCompatible,
    }
    setup.limits.first_content = Some(Duration::from_secs(60));
    setup
}

#[tokio::test(start_paused = true)]
async fn recorded_streams_come_out_as_they_went_in_or_fail_before_the_first_byte() {
    let corpus = include_str!("../../../../../tests/data/corpus/upstream.jsonl");
    let mut seed = 7;
    let mut good = 0;
    for line in corpus.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let kind = row["headers"]["content-type"].as_str().unwrap_or_default();
        if row["stream"] != true || !kind.starts_with("text/event-stream") {
            continue;
        }
        let id = row["id"].as_str().unwrap();
        for (end, commit) in [
            ("\n", CommitMode::FirstContent),
            ("\r\n", CommitMode::FirstContent),
            ("\r", CommitMode::FirstContent),
            ("\n", CommitMode::Assured),
        ] {
            let text = row["body"].as_str().unwrap().replace("\r\n", "\n").replace('\n', end);
            let mut setup = setup(row["provider"].as_str().unwrap());
            setup.commit = commit;
            let answer = judge(&setup, "text/event-stream", pieces(&text, &mut seed), true).await;
            let committed = row["first_content_event"].is_u64() && commit == CommitMode::FirstContent;
            match answer {
                Ok(answer) => {
                    let (body, end) = finish(answer).await;
                    assert!(body == text, "{id}: {body:?}");
                    let want = if row["class"] == "ok" { Ending::Complete } else { Ending::ErrorEvent };
                    assert_eq!(end.ending, want, "{id}");
                    good += 1;
                }
                Err(failed) => {
                    assert!(row["class"] != "ok" && !committed, "{id}: {}", failed.verdict.reason());
                    let class = failed.verdict.class;
                    let also = row["also_ok"]
                        .as_array()
                        .is_some_and(|also| also.iter().any(|word| word == class.as_str()));
                    assert!(row["class"] == class.as_str() || also, "{id}: {}", failed.verdict.reason());
                    assert_eq!(failed.response.is_some(), class == Class::Transparent, "{id}");
                }
            }
        }
    }
    assert!(good > 80, "{good}");
}
