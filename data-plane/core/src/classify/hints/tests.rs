use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600) // 2026-01-01T00:00:00Z
}

fn wait(pairs: &[(&str, &str)], body: &str) -> Option<f64> {
    let headers = headers(pairs);
    let facts = Facts::read(&headers, body.as_bytes());
    read(&headers, &facts, true, now()).map(|hint| hint.read.as_secs_f64())
}

#[test]
fn part5_phrases() {
    for (message, seconds) in [
        ("Please try again in 174ms. Visit", 0.174),
        ("Please try again in 9m38.016s. Need more?", 578.016),
        ("Please try again in 20s.", 20.0),
        ("Your quota will reset after 8h44m7s.", 31_447.0),
        ("Please retry after 86400 seconds.", 86_400.0),
        ("please try again after 1 seconds", 1.0),
        ("Please retry in 45.578569677s.", 45.578_569_677),
        ("Try again in 18 seconds.", 18.0),
        ("try again in about 2 minutes", 120.0),
        ("Try again in 2 minutes and 5 seconds", 125.0),
        ("Expected available in 1 second(s).", 1.0),
        ("Please wait 7 seconds before retrying", 7.0),
        ("Please wait for 30 sec", 30.0),
        ("Resets in 1h 5m", 3900.0),
        ("请在30秒后重试", 30.0),
        ("请于 2 分钟后再试", 120.0),
    ] {
        let (found, raw) = in_text(message).unwrap_or_else(|| panic!("{message}"));
        assert!((found - seconds).abs() < 1e-6, "{message}: {found} from {raw}");
    }
}

#[test]
fn part5_no_wait_where_none_is_named() {
    for message in [
        "",
        "Retry your request with the ID or ARN of an inference profile",
        "If you created it within the last 5 minutes, please wait a moment and try again.",
        "Limit 3, Used 3, Requested 1.",
        "You can try again in the morning",
        "try again in 5 attempts",
        "retry after 2026-01-01",
    ] {
        assert_eq!(in_text(message), None, "{message}");
    }
}

#[test]
fn part5_headers_in_every_form() {
    let day = "Thu, 01 Jan 2026 00:00:00 GMT";
    for (pairs, seconds) in [
        (&[("retry-after-ms", "1500"), ("retry-after", "9")][..], Some(1.5)),
        (&[("retry-after", "4")], Some(4.0)),
        (&[("retry-after", "0.5")], Some(0.5)),
        (&[("retry-after", "-1")], None),
        (&[("retry-after", "soon")], None),
        (&[("retry-after", "30s")], Some(30.0)),
        // A date counts from the answer's own clock, whatever ours says.
        (
            &[("date", "Thu, 01 Jan 2026 00:10:00 GMT"), ("retry-after", "Thu, 01 Jan 2026 00:12:00 GMT")],
            Some(120.0),
        ),
        (&[("retry-after", "Thu, 01 Jan 2026 00:02:00 GMT")], Some(120.0)),
        (&[("retry-after", "Wed, 31 Dec 2025 00:00:00 GMT"), ("date", day)], Some(0.0)),
        (&[("retry-after", "99999999999")], None),
        // Only limits that are used up.
        (&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")], Some(360.0)),
        (&[("x-ratelimit-remaining-tokens", "7"), ("x-ratelimit-reset-tokens", "6m0s")], None),
        (
            &[
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "5.289s"),
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "120ms"),
            ],
            Some(5.289),
        ),
        (&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1767225660")], Some(60.0)),
        (&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1767225660000")], Some(60.0)),
        (&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "12")], Some(12.0)),
        (
            &[
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:42Z"),
            ],
            Some(42.0),
        ),
    ] {
        assert_eq!(wait(pairs, ""), seconds, "{pairs:?}");
    }
}

#[test]
fn part5_fields() {
    for (body, seconds) in [
        (
            r#"{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"26s"}]}}"#,
            Some(26.0),
        ),
        (r#"{"error":"loading","estimated_time":176.7}"#, Some(176.7)),
        (r#"{"error":{"message":"x","retry_after":"20"}}"#, Some(20.0)),
        (r#"{"error":{"message":"x","retry_after_ms":1500}}"#, Some(1.5)),
        (r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":3600}}"#, Some(3600.0)),
        (r#"{"error":{"message":"x","retry_after":null}}"#, None),
        (r#"{"error":{"message":"x","retry_after":-3}}"#, None),
    ] {
        assert_eq!(wait(&[], body), seconds, "{body}");
    }
}

#[test]
fn part5_a_day_quota_ignores_its_short_hint() {
    let body = |delay: &str| {
        format!(
            r#"{{"error":{{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{{"@type":"x/google.rpc.QuotaFailure","violations":[{{"quotaId":"RequestsPerDayPerModel"}}]}},{{"@type":"x/google.rpc.RetryInfo","retryDelay":"{delay}"}}]}}}}"#
        )
    };
    assert_eq!(wait(&[], &body("5s")), None);
    assert_eq!(wait(&[], &body("36242s")), Some(36_242.0));
}

#[test]
fn part5_clamped_and_shown() {
    let hint = |seconds| Hint { read: Duration::from_secs_f64(seconds), raw: String::new() };
    assert_eq!(hint(0.174).wait(), Duration::from_secs(1));
    assert_eq!(hint(60.0).wait(), Duration::from_secs(60));
    assert_eq!(hint(86_400.0).wait(), Duration::from_secs(900));
    let headers = headers(&[("retry-after", "4")]);
    let shown = read(&headers, &Facts::default(), true, now()).unwrap();
    assert_eq!(shown.raw, "retry-after: 4");
}
