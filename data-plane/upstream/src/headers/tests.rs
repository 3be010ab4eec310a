use super::*;

fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(*name, value.parse().unwrap());
    }
    map
}

fn up(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut out = HeaderMap::new();
    to_upstream(&map(pairs), &mut out);
    out
}

#[test]
fn no_credential_of_the_callers_goes_up() {
    let sent = up(&[
        ("authorization", "Bearer caller"),
        ("x-api-key", "caller"),
        ("api-key", "caller"),
        ("x-goog-api-key", "caller"),
        ("cookie", "a=caller"),
        ("proxy-authorization", "Basic caller"),
        ("x-spareline-channel", "c"),
        ("x-forwarded-for", "10.0.0.1"),
        ("content-type", "application/json"),
    ]);
    assert_eq!(sent, map(&[("content-type", "application/json")]));
}

#[test]
fn hop_by_hop_expect_and_framing_stay_here() {
    let sent = up(&[
        ("connection", "close, X-Title"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("proxy-connection", "close"),
        ("expect", "100-continue"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("accept-encoding", "br"),
        ("x-title", "named by connection"),
        ("accept", "text/html"),
        ("accept", "application/json"),
    ]);
    assert_eq!(sent, map(&[("accept", "text/html"), ("accept", "application/json")]));
}

#[test]
fn dialect_trace_and_idempotency_headers_go_up_unchanged() {
    let pairs = [
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "a"),
        ("anthropic-beta", "b"),
        ("openai-beta", "assistants=v2"),
        ("openai-organization", "org"),
        ("idempotency-key", "k1"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "a=b"),
        ("x-request-id", "r1"),
        ("user-agent", "OpenAI/Python"),
        ("x-stainless-lang", "python"),
    ];
    assert_eq!(up(&pairs), map(&pairs));
}

#[test]
fn down_come_types_limits_and_every_value_and_no_cookies_or_framing() {
    let sent = to_caller(&map(&[
        ("content-type", "application/json"),
        ("vary", "origin"),
        ("vary", "accept"),
        ("x-ratelimit-remaining-requests", "3"),
        ("retry-after", "4"),
        ("set-cookie", "a=1"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("content-length", "12"),
        ("openai-organization", "operator"),
        ("anthropic-organization-id", "operator"),
        ("location", "https://elsewhere"),
        ("www-authenticate", "Bearer"),
        ("server", "x"),
    ]));
    let want = map(&[
        ("content-type", "application/json"),
        ("vary", "origin"),
        ("vary", "accept"),
        ("x-ratelimit-remaining-requests", "3"),
        ("retry-after", "4"),
    ]);
    assert_eq!(sent, want);
}
