//! Ids by which a request is found again: the caller's where they are sound, else our own.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use rand::{Rng as _, RngExt as _};

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
            // As `now_v7`, but with this thread's generator: the crate's own asks the kernel each time.
            let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            let random = rand::rng().random::<[u8; 10]>();
            let id = uuid::Builder::from_unix_timestamp_millis(millis as u64, &random).into_uuid();
            let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
            Arc::from(&*id.hyphenated().encode_lower(&mut text))
        }
    }
}

/// The caller's trace id, or a new one, and the `traceparent` that goes up, with a span of ours.
pub(crate) fn join(headers: &HeaderMap) -> (Arc<str>, Option<HeaderValue>) {
    let given = headers.get(&TRACEPARENT).and_then(|v| v.to_str().ok()).and_then(parse);
    let mut parent = *b"00-00000000000000000000000000000000-0000000000000000-01";
    match given {
        Some((trace, flags)) => {
            parent[3..35].copy_from_slice(trace.as_bytes());
            parent[53..].copy_from_slice(flags.as_bytes());
        }
        None => hex(&mut parent[3..35]),
    }
    hex(&mut parent[36..52]);
    let trace = std::str::from_utf8(&parent[3..35]).unwrap_or_default();
    (trace.into(), HeaderValue::from_bytes(&parent).ok())
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

/// Fills with random digits, sixteen at a time, never all of them zeros.
fn hex(out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut rng = rand::rng();
    for chunk in out.chunks_mut(16) {
        let mut word = rng.next_u64().max(1);
        for byte in chunk.iter_mut().rev() {
            *byte = DIGITS[(word & 15) as usize];
            word >>= 4;
        }
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
        let (trace, up) = join(&headers);
        assert_eq!(&*trace, "4bf92f3577b34da6a3ce929d0e0e4736");
        let up = up.unwrap().to_str().unwrap().to_owned();
        assert!(up.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && up.ends_with("-00"), "{up}");
        assert!(!up.contains("00f067aa0ba902b7"), "the span is ours");

        for broken in
            ["", "00-zz-00f067aa0ba902b7-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"]
        {
            headers.insert(TRACEPARENT, HeaderValue::from_static(broken));
            let (trace, up) = join(&headers);
            assert_eq!(parse(up.unwrap().to_str().unwrap()), Some((&*trace, "01")));
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
