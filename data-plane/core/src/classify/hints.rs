//! How long to wait: headers, fields, and phrases of the error's own message.
//!
//! Read here, believed or not in `judge`. Dates are measured against the answer's own `date` where it has one, so that
//! our clock being off does no harm.

mod moments;
mod spoken;

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

pub(super) use self::moments::moment;
pub(super) use self::spoken::{duration, in_text};
use super::facts::Facts;
use super::redact::cut;
use super::verdict::Hint;

/// Longer than this nobody means: a broken clock or a broken unit.
const ABSURD: f64 = 400.0 * 86_400.0;

/// A per-day quota whose hint is shorter than this is a lie.
const DAY_QUOTA: f64 = 3600.0;

/// The hint, in the order of trust: headers, fields, limits used up, the message.
pub(super) fn read(headers: &HeaderMap, facts: &Facts, throttled: bool, now: SystemTime) -> Option<Hint> {
    let since = epoch(base(headers, now));
    let moment = || {
        let (moment, field) = facts.until?;
        (moment > since).then(|| (moment - since, format!("{field}: {moment}")))
    };
    let found = header_wait(headers, now)
        .or_else(|| facts.wait.map(|(seconds, field)| (seconds, format!("{field}: {seconds}"))))
        .or_else(moment)
        .or_else(|| if throttled { limits(headers, now) } else { None })
        .or_else(|| facts.messages.iter().find_map(|message| in_text(message, since)));
    let (seconds, mut raw) = found.filter(|(seconds, _)| (0.0..ABSURD).contains(seconds))?;
    if facts.per_day && seconds < DAY_QUOTA {
        return None;
    }
    cut(&mut raw, 64);
    Some(Hint { read: Duration::from_secs_f64(seconds), raw })
}

/// `retry-after-ms` and its like, `retry-after` in seconds or as a date.
fn header_wait(headers: &HeaderMap, now: SystemTime) -> Option<(f64, String)> {
    for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
        if let Some((value, millis)) = value(headers, name).and_then(|v| Some((v, v.parse::<f64>().ok()?))) {
            return (millis >= 0.0).then(|| (millis / 1000.0, format!("{name}: {value}")));
        }
    }
    let names = [header::RETRY_AFTER.as_str(), "x-retry-after", "x-ratelimit-retry-after"];
    let value = names.into_iter().find_map(|name| value(headers, name))?;
    let seconds = match value.parse::<f64>() {
        Ok(seconds) => seconds,
        Err(_) => match httpdate::parse_http_date(value) {
            Ok(date) => since(date, base(headers, now)),
            Err(_) => duration(value)?,
        },
    };
    (seconds >= 0.0).then(|| (seconds, format!("retry-after: {value}")))
}

/// When limits that are used up are reset: `x-ratelimit-remaining-tokens: 0` beside `x-ratelimit-reset-tokens: 6m0s`.
fn limits(headers: &HeaderMap, now: SystemTime) -> Option<(f64, String)> {
    let mut longest: Option<(f64, String)> = None;
    if let Some(text) = value(headers, "ratelimit")
        && let Some(seconds) = structured(text)
    {
        longest = Some((seconds, format!("ratelimit: {text}")));
    }
    for (name, left) in headers {
        let Some(reset) = left.to_str().ok().and_then(|left| reset_of(name.as_str(), left.trim())) else {
            continue;
        };
        let after = || value(headers, &format!("{reset}-after"));
        let Some(text) = value(headers, &reset).or_else(after) else { continue };
        let Some(seconds) = reset_in(text, base(headers, now)) else { continue };
        if longest.as_ref().is_none_or(|(longest, _)| seconds > *longest) {
            longest = Some((seconds, format!("{reset}: {text}")));
        }
    }
    longest
}

/// `limit=100, remaining=0, reset=30`, or `"default";r=0;t=30`: the reset, where nothing remains.
fn structured(text: &str) -> Option<f64> {
    let field = |names: [&str; 2]| {
        text.split([',', ';']).find_map(|part| {
            let (name, value) = part.split_once('=')?;
            names.contains(&name.trim()).then(|| value.trim().parse::<f64>().ok())?
        })
    };
    field(["remaining", "r"]).filter(|left| *left <= 0.0)?;
    field(["reset", "t"]).filter(|seconds| *seconds >= 0.0)
}

/// The header that says when the limit is reset which `name` says is used up: by what remains of it, by its state, or by
/// the part that is used.
fn reset_of(name: &str, left: &str) -> Option<String> {
    let has = |word: &[u8]| memchr::memmem::find(name.as_bytes(), word).is_some();
    let number = || left.parse::<f64>().ok();
    if has(b"remaining") && (has(b"ratelimit") || has(b"rate-limit")) {
        return number().filter(|left| *left <= 0.0).map(|_| name.replace("remaining", "reset"));
    }
    if let Some(limit) = name.strip_suffix("-used-percent") {
        return number().filter(|used| *used >= 100.0).map(|_| format!("{limit}-reset-after-seconds"));
    }
    let limit = name.strip_suffix("-status").filter(|_| has(b"ratelimit"))?;
    (left == "rejected").then(|| format!("{limit}-reset"))
}

/// A reset as seconds, as `6m0s`, as a moment (seconds or milliseconds since 1970), or as a date.
fn reset_in(text: &str, base: SystemTime) -> Option<f64> {
    if let Some(moment) = moment(text) {
        return Some((moment - epoch(base)).max(0.0));
    }
    duration(text).filter(|seconds| *seconds >= 0.0)
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

fn base(headers: &HeaderMap, now: SystemTime) -> SystemTime {
    value(headers, header::DATE.as_str()).and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now)
}

/// Seconds since 1970.
fn epoch(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn since(date: SystemTime, base: SystemTime) -> f64 {
    date.duration_since(base).map_or(0.0, |wait| wait.as_secs_f64())
}

/// The fields that hold waits, and what one of their units is in seconds.
pub(super) fn field(name: &[u8]) -> Option<(&'static str, f64)> {
    Some(match name {
        b"retryDelay" => ("retryDelay", 1.0),
        b"quotaResetDelay" => ("quotaResetDelay", 1.0),
        b"estimated_time" => ("estimated_time", 1.0),
        b"retry_after" => ("retry_after", 1.0),
        b"retry-after" => ("retry-after", 1.0),
        b"retry_after_seconds" | b"retry_after_secs" | b"retryAfterSeconds" => ("retry_after_seconds", 1.0),
        b"retryAfter" => ("retryAfter", 1.0),
        b"retry_after_ms" | b"retryAfterMs" => ("retry_after_ms", 0.001),
        b"retry_in" => ("retry_in", 1.0),
        b"resets_in_seconds" => ("resets_in_seconds", 1.0),
        b"reset_seconds" => ("reset_seconds", 1.0),
        b"reset_in" | b"resetIn" => ("reset_in", 1.0),
        b"wait_seconds" | b"waitSeconds" => ("wait_seconds", 1.0),
        b"cooldown_seconds" => ("cooldown_seconds", 1.0),
        b"reset_after_seconds" => ("reset_after_seconds", 1.0),
        _ => return None,
    })
}

/// The fields that hold a moment before which there is no point in asking.
pub(super) fn moment_field(name: &[u8]) -> Option<&'static str> {
    Some(match name {
        b"resets_at" | b"resetsAt" => "resets_at",
        b"reset_at" | b"resetAt" => "reset_at",
        b"reset_time" | b"resetTime" => "reset_time",
        b"retry_at" | b"retryAt" => "retry_at",
        b"quotaResetTimeStamp" => "quotaResetTimeStamp",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
