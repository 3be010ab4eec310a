//! Which headers cross, by allowlist, both ways. Every value of a header that crosses does, in order.
//!
//! Never up: the caller's credentials (`authorization`, `x-api-key`, `api-key`, `x-goog-api-key`, cookies,
//! `proxy-authorization`), hop-by-hop headers, `expect`, `accept-encoding`, framing. Never down: hop-by-hop headers, cookies,
//! framing, and what names the operator's account.

#[cfg(test)]
mod tests;

use http::header::{self, HeaderMap, HeaderName};

/// How many headers the front adds to an answer's, so that the map need not grow for them.
const OURS: usize = 5;

/// Copies what may go up of a caller's headers.
pub fn to_upstream(caller: &HeaderMap, out: &mut HeaderMap) {
    let hop = Hop::of(caller);
    for (name, value) in caller {
        if goes_up(name) && !hop.names(name) {
            out.append(name, value.clone());
        }
    }
}

/// What of an upstream's response head goes to the caller. `content-encoding` is kept; who decodes the body removes it.
pub fn to_caller(upstream: &HeaderMap) -> HeaderMap {
    let hop = Hop::of(upstream);
    let mut out = HeaderMap::with_capacity((upstream.len() + OURS).min(24));
    for (name, value) in upstream {
        if goes_down(name) && !hop.names(name) {
            out.append(name, value.clone());
        }
    }
    out
}

/// Whether operators may not set a header on a channel: it is ours, or a credential.
pub fn is_reserved(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "authorization"
            | "x-api-key"
            | "api-key"
            | "x-goog-api-key"
            | "cookie"
            | "proxy-authorization"
            | "host"
            | "content-length"
            | "content-encoding"
            | "transfer-encoding"
            | "connection"
            | "keep-alive"
            | "te"
            | "trailer"
            | "upgrade"
            | "expect"
            | "accept-encoding"
            | "proxy-connection"
    )
}

fn goes_up(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(
        name,
        "accept"
            | "accept-language"
            | "content-type"
            | "user-agent"
            | "openai-beta"
            | "openai-organization"
            | "openai-project"
            | "idempotency-key"
            | "x-idempotency-key"
            | "x-request-id"
            | "x-client-request-id"
            | "request-id"
            | "x-correlation-id"
            | "traceparent"
            | "tracestate"
            | "baggage"
            | "http-referer"
            | "referer"
            | "x-title"
            | "x-session-id"
    ) || name.starts_with("anthropic-")
        || name.starts_with("x-stainless-")
}

fn goes_down(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(
        name,
        "content-type"
            | "content-encoding"
            | "content-disposition"
            | "content-language"
            | "cache-control"
            | "vary"
            | "etag"
            | "last-modified"
            | "expires"
            | "retry-after"
            | "retry-after-ms"
            | "x-should-retry"
            | "x-request-id"
            | "request-id"
            | "apim-request-id"
            | "x-ms-region"
            | "openai-model"
            | "openai-processing-ms"
            | "openai-version"
            | "server-timing"
            | "warning"
            | "deprecation"
            | "sunset"
            | "link"
            | "cf-ray"
    ) || name.starts_with("x-ratelimit-")
        || name.starts_with("ratelimit")
        || name.starts_with("anthropic-ratelimit-")
        || name.starts_with("x-stainless-")
}

/// The headers that `connection` names: hop-by-hop, whatever they are called.
struct Hop<'a>(Option<&'a HeaderMap>);

impl<'a> Hop<'a> {
    fn of(headers: &'a HeaderMap) -> Self {
        Self(headers.contains_key(header::CONNECTION).then_some(headers))
    }

    fn names(&self, name: &HeaderName) -> bool {
        let Some(headers) = self.0 else { return false };
        headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.split(',').any(|token| token.trim().eq_ignore_ascii_case(name.as_str())))
    }
}
