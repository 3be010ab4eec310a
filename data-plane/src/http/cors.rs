//! What browsers may do. Off unless origins are configured.

use http::{HeaderMap, HeaderName, HeaderValue, header};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");
const EXPOSED: HeaderValue =
    HeaderValue::from_static("x-request-id, x-spareline-attempts, x-spareline-channel, retry-after");
const MAX_AGE: HeaderValue = HeaderValue::from_static("86400");

/// The value of `access-control-allow-origin` for this request; `None`: none.
pub(crate) fn allowed(origins: &[String], request: &HeaderMap) -> Option<HeaderValue> {
    if origins.is_empty() {
        return None;
    }
    let origin = request.get(header::ORIGIN)?;
    let listed = origins.iter().any(|o| o == "*" || o.as_bytes().eq_ignore_ascii_case(origin.as_bytes()));
    listed.then(|| origin.clone())
}

/// Adds what an allowed origin has to see, on errors too.
pub(crate) fn decorate(response: &mut HeaderMap, origin: HeaderValue) {
    response.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    response.append(header::VARY, HeaderValue::from_static("origin"));
}

/// Adds the answer to a preflight.
pub(crate) fn preflight(response: &mut HeaderMap, request: &HeaderMap) {
    response.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    response.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    let asked = HeaderName::from_static("access-control-request-headers");
    if let Some(headers) = request.get(&asked) {
        response.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, headers.clone());
    }
}
