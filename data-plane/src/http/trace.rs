//! Ids by which a request is found again: the caller's where they are sound, else our own.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use rand::Rng as _;

/// The request's id, for the caller, the logs and the upstream.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// W3C trace context.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The caller's request id, or a new one.
pub(crate) fn request_id(headers: &HeaderMap) -> Arc<str> {
    let given = headers.get(&REQUEST_ID).and_then(|v| v.to_str().ok()).filter(|id| {
        (1..=128).contains(&id.len())
            && id.bytes().all(|b| {
                b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':' | b'/' | b'+' | b'=')
            })
    });
    match given {
        Some(id) => id.into(),
        None => {
            let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
            Arc::from(&*uuid::Uuid::now_v7().hyphenated().encode_lower(&mut text))
        }
    }
}

/// The caller's trace id, or a new one; `headers` get the `traceparent` that goes up, with a span of ours.
pub(crate) fn join(headers: &mut HeaderMap) -> Arc<str> {
    let given = headers.get(&TRACEPARENT).and_then(|v| v.to_str().ok()).and_then(parse);
    let (trace, flags) = match given {
        Some((trace, flags)) => (trace.to_owned(), flags.to_owned()),
        None => {
            let mut trace = String::with_capacity(32);
            hex(&mut trace, 2);
            (trace, "01".to_owned())
        }
    };
    let mut parent = String::with_capacity(55);
    parent.push_str("00-");
    parent.push_str(&trace);
    parent.push('-');
    hex(&mut parent, 1);
    parent.push('-');
    parent.push_str(&flags);
    if let Ok(value) = HeaderValue::from_str(&parent) {
        headers.insert(TRACEPARENT, value);
    }
    trace.into()
}

/// Trace id and flags of a sound `traceparent`.
fn parse(value: &str) -> Option<(&str, &str)> {
    let lower_hex = |s: &str| s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let mut parts = value.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let sound = version.len() == 2
        && version != "ff"
        && trace.len() == 32
        && span.len() == 16
        && flags.len() == 2
        && [version, trace, span, flags].into_iter().all(lower_hex)
        && trace.bytes().any(|b| b != b'0')
        && span.bytes().any(|b| b != b'0')
        && (version != "00" || parts.next().is_none());
    sound.then_some((trace, flags))
}

fn hex(out: &mut String, words: usize) {
    let mut rng = rand::rng();
    for _ in 0..words {
        let word = rng.next_u64().max(1);
        out.extend((0..16).rev().filter_map(|n| char::from_digit((word >> (4 * n)) as u32 & 15, 16)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part9_a_sound_trace_goes_on_and_a_broken_one_is_replaced() {
        let mut headers = HeaderMap::new();
        let sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        headers.insert(TRACEPARENT, HeaderValue::from_static(sent));
        assert_eq!(&*join(&mut headers), "4bf92f3577b34da6a3ce929d0e0e4736");
        let up = headers[TRACEPARENT].to_str().unwrap().to_owned();
        assert!(up.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && up.ends_with("-00"), "{up}");
        assert!(!up.contains("00f067aa0ba902b7"), "the span is ours");

        for broken in
            ["", "00-zz-00f067aa0ba902b7-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"]
        {
            headers.insert(TRACEPARENT, HeaderValue::from_static(broken));
            assert_eq!(join(&mut headers).len(), 32);
            assert!(parse(headers[TRACEPARENT].to_str().unwrap()).is_some());
        }
    }

    #[test]
    fn part9_a_request_id_that_could_break_a_log_is_replaced() {
        let mut headers = HeaderMap::new();
        headers.insert(REQUEST_ID, HeaderValue::from_static("req-1"));
        assert_eq!(&*request_id(&headers), "req-1");
        headers.insert(REQUEST_ID, HeaderValue::from_static("a b\"c"));
        assert_eq!(request_id(&headers).len(), 36);
    }
}
