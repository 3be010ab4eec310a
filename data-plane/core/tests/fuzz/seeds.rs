//! What fuzzing starts from: the answers of the corpus, and bodies of requests, in the form the targets take.

use serde_json::Value;

use crate::targets::{HEAD, VENDORS};

/// A target by its name, as under `fuzz/fuzz_targets`.
pub(crate) type Target = (&'static str, fn(&[u8]), Vec<Vec<u8>>);

const REQUESTS: &[&str] = &[
    r#"{"model":"gpt-4o","messages":[{"role":"user","content":"hi \" there"}],"stream":true}"#,
    r#" { "messages" : [ { "model" : "x" } ] , "mod\u0065l" : "gpt\u002d4o" , "n" : 1.0e2 , "user" : "u" } "#,
    r#"{"stream":true,"stream_options":{"include_obfuscation":false},"model":"a/b:c","previous_response_id":null}"#,
    r#"{"stream_options":null,"model":"m","background":true,"input":[["\ud83d\ude00",{"model":"y"}],-0.5,1e400]}"#,
    r#"{}"#,
    "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n\0\r\n--b\r\n\
     content-disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--b--\r\n",
];

pub(crate) fn all() -> Vec<Target> {
    let (answers, streams) = answers();
    let planted = (0..64u8).map(|at| vec![at, b'a', 1 + at % 8, 2 * at, b'"', b'}', 2, at, b'\'']).collect();
    let requests = REQUESTS.iter().map(|body| [&[5], "other".as_bytes(), body.as_bytes()].concat()).collect();
    vec![
        ("classifies", crate::targets::classifies, answers),
        ("planted", crate::targets::planted, planted),
        ("splits", crate::targets::splits, streams),
        ("splices", crate::targets::splices, requests),
    ]
}

/// Answers, and those of them that are streams with three cuts in front.
fn answers() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut answers, mut streams) = (Vec::new(), Vec::new());
    for file in ["upstream", "extra", "judge", "sourced"] {
        let path = format!("{}/../../tests/data/corpus/{file}.jsonl", env!("CARGO_MANIFEST_DIR"));
        for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
            let Ok(case) = serde_json::from_str::<Value>(line) else { continue };
            let body = case["body"].as_str().unwrap_or_default();
            let data = encoded(&case, body);
            if case["stream"] == true && body.starts_with(['d', 'e', ':']) {
                let cuts = [3, body.len() as u8 / 2, 7, 130];
                streams.push([&cuts[..], &data].concat());
            }
            answers.push(data);
        }
    }
    (answers, streams)
}

fn encoded(case: &Value, body: &str) -> Vec<u8> {
    let status = case["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
    let vendor = VENDORS.iter().position(|vendor| case["provider"] == *vendor).unwrap_or(255);
    let mut headers = String::new();
    for (name, value) in case["headers"].as_object().into_iter().flatten() {
        let line = format!("{name}:{}\n", value.as_str().unwrap_or_default());
        if headers.len() + line.len() <= 255 {
            headers.push_str(&line);
        }
    }
    let [low, high] = (status - 100).to_le_bytes();
    let stream = u8::from(case["stream"] == true);
    let head: [u8; HEAD] = [low, high, 0, vendor as u8, stream, headers.len() as u8];
    [&head[..], headers.as_bytes(), body.as_bytes()].concat()
}
