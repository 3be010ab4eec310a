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
        ("Please upgrade your plan or wait 6 seconds for your limit to reset", 6.0),
        ("Rate limited. Retry after: 12s", 12.0),
        ("Retry After: 12 seconds", 12.0),
        ("try again in 1m30s", 90.0),
        ("Please try again in 2 hours", 7200.0),
        ("Resets in 3 days.", 259_200.0),
        ("fetch failed (reset after 1m 36s)", 96.0),
        ("usage limit reached, resets at 2026-01-01T02:00:00Z (2056)", 7200.0),
        ("Limit resets at: 2026-01-01 00:05:59 UTC", 359.0),
        ("Please retry after 2026-01-01 09:00:00.5+08:00.", 3600.0),
        ("You can try again at 2026-01-01 00:01 UTC", 60.0),
        ("It will reset at 2026-01-01 08:00:30 +0800 CST.", 30.0),
        ("Resets in 1h 5m", 3900.0),
        ("You have hit your usage limit (pro plan). Try again in ~45 min.", 2700.0),
        ("Please try again in approximately 2 minutes.", 120.0),
        ("Please wait around 30 seconds", 30.0),
        ("Please retry your request after 60 seconds", 60.0),
        ("Limit resets after 60s", 60.0),
        ("Next request allowed in 12 seconds.", 12.0),
        ("please try again 30 seconds later", 30.0),
        ("Please wait at least 5 minutes", 300.0),
        ("请等待 30 秒", 30.0),
        ("請於 2 分鐘後再試", 120.0),
        ("已达到 5 小时的使用上限，请在30s后重试", 30.0),
        ("30秒後に再試行してください。", 30.0),
        ("30초 후에 다시 시도하세요", 30.0),
        ("Повторите через 30 секунд.", 30.0),
        ("请在30秒后重试", 30.0),
        ("请于 2 分钟后再试", 120.0),
    ] {
        let (found, raw) = in_text(message, 1_767_225_600.0).unwrap_or_else(|| panic!("{message}"));
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
        "resets at 2025-12-31T23:00:00Z",
        "resets at 10:00 UTC",
        "Your limit will reset at 2026-09-09 05:38:28",
        "wait: 5 attempts",
    ] {
        assert_eq!(in_text(message, 1_767_225_600.0), None, "{message}");
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
        (
            &[
                ("anthropic-ratelimit-unified-status", "rejected"),
                ("anthropic-ratelimit-unified-reset", "1767225900"),
            ],
            Some(300.0),
        ),
        (
            &[
                ("anthropic-ratelimit-unified-status", "allowed"),
                ("anthropic-ratelimit-unified-reset", "1767225900"),
            ],
            None,
        ),
        (
            &[
                ("x-codex-primary-used-percent", "100"),
                ("x-codex-primary-reset-after-seconds", "471285"),
                ("x-codex-secondary-used-percent", "80"),
                ("x-codex-secondary-reset-after-seconds", "999999"),
            ],
            Some(471_285.0),
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
        (
            r#"{"error":{"details":[{"@type":"x/google.rpc.RetryInfo","retryDelay":"34.074824224s"}]}}"#,
            Some(34.074_824_224),
        ),
        (r#"{"error":{"message":"x","retryAfterMs":"1500"}}"#, Some(1.5)),
        (r#"{"error":{"type":"usage_limit_reached","resets_at":1767229200}}"#, Some(3600.0)),
        (r#"{"error":{"type":"usage_limit_reached","resets_at":1767229200000}}"#, Some(3600.0)),
        (r#"{"error":{"message":"x","reset_at":"2026-01-01T01:00:00Z"}}"#, Some(3600.0)),
        (r#"{"error":{"message":"x","retry_at":"2026-01-01T01:00:00.123+00:00"}}"#, Some(3600.0)),
        (r#"{"error":{"message":"x"},"retryAt":"1767225660"}"#, Some(60.0)),
        // What is left counts before the moment, and a moment that has passed is none.
        (r#"{"error":{"message":"x","resets_at":1767229200,"resets_in_seconds":20}}"#, Some(20.0)),
        (r#"{"error":{"message":"x","resets_at":1767225599}}"#, None),
        (r#"{"error":{"message":"x","resets_at":12}}"#, None),
        (r#"{"error":{"message":"x","resets_at":null}}"#, None),
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

#[test]
fn every_announcement_ends_with_a_word_that_is_looked_for() {
    let later =
        ["again ", "retry ", "in about ", "wait for ", "in approximately ", "in around ", "in at least "];
    for phrase in spoken::BEFORE.iter().chain(spoken::UNTIL).chain(&later) {
        for text in [format!("x {phrase}5"), format!("X {}: 5", phrase.trim_end().to_uppercase())] {
            assert!(spoken::before(&text, text.len() - 1).is_some(), "{text}");
        }
    }
}
