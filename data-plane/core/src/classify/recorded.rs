//! Reads a whole recorded answer, stream or not, as a proxy would have read it as it came.
//!
//! For the operator's Classify call and for tests; traffic is judged event by event in the upstream crate.

use std::time::SystemTime;

use super::{ANSWER_LIMIT, Evidence, Input, Rules, StreamFault, Verdict, classify, inflate, ok};
use crate::commit::{Context, Judge, Step};
use crate::sse::{Event, Flow, Scanner};

/// How a whole answer reads.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What it means.
    pub verdict: Verdict,
    /// Which data event carried the first content, from 1.
    pub first_content: Option<u32>,
    /// Which data event was the error, from 1.
    pub error_event: Option<u32>,
}

/// Reads a whole answer: `input.evidence` must be [`Evidence::Response`] with all of its body.
pub fn classify_recorded(input: &Input<'_>, rules: &Rules, now: SystemTime) -> Recorded {
    if let Evidence::Response { status: 200..=299, headers, body } = input.evidence
        && input.stream
    {
        let (body, _) = inflate::inflate(headers, body, ANSWER_LIMIT);
        if is_event_stream(&body) {
            return classify_stream(input, [body.as_ref()], rules, now);
        }
    }
    Recorded { verdict: classify(input, rules, now), first_content: None, error_event: None }
}

/// Reads a whole event stream that came in `chunks`; `input.evidence` holds its head.
pub fn classify_stream<'a>(
    input: &Input<'_>,
    chunks: impl IntoIterator<Item = &'a [u8]>,
    rules: &Rules,
    now: SystemTime,
) -> Recorded {
    let (status, headers) = match input.evidence {
        Evidence::Response { status, headers, .. } | Evidence::Event { status, headers, .. } => {
            (status, headers)
        }
        _ => {
            return Recorded { verdict: classify(input, rules, now), first_content: None, error_event: None };
        }
    };
    let Input { provider, vendor, endpoint, .. } = *input;
    let context = Context { provider, vendor, endpoint, status, headers, rules, now };
    let mut scanner = Scanner::new();
    let mut judge = Judge::new();
    let (mut first_content, mut error) = (None, None);
    let mut look = |event: Event<'_>| {
        if error.is_some() {
            return Flow::Stop;
        }
        match judge.event(event, &context) {
            Step::Content | Step::Terminal { content: true } => {
                first_content.get_or_insert(judge.events());
            }
            Step::Error(verdict) => {
                error = Some((verdict, judge.events()));
                return Flow::Stop;
            }
            Step::Nothing | Step::Terminal { content: false } => {}
        }
        Flow::Continue
    };
    for chunk in chunks {
        scanner.push(chunk, &mut look);
    }
    let cut = scanner.mid_event();
    scanner.finish(&mut look);
    if let Some((verdict, at)) = error {
        return Recorded { verdict: *verdict, first_content, error_event: Some(at) };
    }
    let fault = |fault| classify(&Input { evidence: Evidence::Stream(fault), ..*input }, rules, now);
    let verdict = match first_content {
        Some(_) => ok(input),
        None if judge.may_end_without_content() => ok(input),
        None => fault(if cut { StreamFault::Cut } else { StreamFault::Empty }),
    };
    Recorded { verdict, first_content, error_event: None }
}

/// By its first bytes: content types lie.
fn is_event_stream(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body).trim_ascii_start();
    body.starts_with(b":")
        || [&b"data:"[..], b"event:", b"id:", b"retry:"].iter().any(|field| body.starts_with(field))
}
