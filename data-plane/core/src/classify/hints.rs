//! How long to wait: headers, fields, and phrases of the error's own message.
//!
//! Read here, believed or not in `judge`. Dates are measured against the answer's own `date` where it has one, so that
//! our clock being off does no harm.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};

use super::facts::Facts;
use super::redact::cut;
use super::verdict::Hint;

/// Longer than this nobody means: a broken clock or a broken unit.
const ABSURD: f64 = 400.0 * 86_400.0;

/// A per-day quota whose hint is shorter than this is a lie.
const DAY_QUOTA: f64 = 3600.0;

/// The hint, in the order of trust: headers, fields, limits used up, the message.
pub(super) fn read(headers: &HeaderMap, facts: &Facts, throttled: bool, now: SystemTime) -> Option<Hint> {
    let found = header_wait(headers, now)
        .or_else(|| facts.wait.map(|(seconds, field)| (seconds, format!("{field}: {seconds}"))))
        .or_else(|| if throttled { limits(headers, now) } else { None })
        .or_else(|| facts.messages.iter().find_map(|message| in_text(message)));
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
    let value = value(headers, header::RETRY_AFTER.as_str())?;
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
    for (name, left) in headers {
        let name = name.as_str();
        let has = |word: &[u8]| memchr::memmem::find(name.as_bytes(), word).is_some();
        if !has(b"remaining") || !(has(b"ratelimit") || has(b"rate-limit")) {
            continue;
        }
        if !left.to_str().is_ok_and(|left| left.trim().parse::<f64>().is_ok_and(|left| left <= 0.0)) {
            continue;
        }
        let reset = name.replace("remaining", "reset");
        let Some(text) = value(headers, &reset) else { continue };
        let Some(seconds) = reset_in(text, base(headers, now)) else { continue };
        if longest.as_ref().is_none_or(|(longest, _)| seconds > *longest) {
            longest = Some((seconds, format!("{reset}: {text}")));
        }
    }
    longest
}

/// A reset as seconds, as `6m0s`, as a moment (seconds or milliseconds since 1970), or as a date.
fn reset_in(text: &str, base: SystemTime) -> Option<f64> {
    let moment = |seconds: f64| {
        let epoch = base.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        (seconds - epoch).max(0.0)
    };
    match text.parse::<f64>() {
        Ok(number) if number > 1e11 => Some(moment(number / 1000.0)),
        Ok(number) if number > 1e9 => Some(moment(number)),
        Ok(number) => (number >= 0.0).then_some(number),
        Err(_) => duration(text).or_else(|| rfc3339(text).map(moment)),
    }
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

fn base(headers: &HeaderMap, now: SystemTime) -> SystemTime {
    value(headers, header::DATE.as_str()).and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now)
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
        b"retry_after_seconds" => ("retry_after_seconds", 1.0),
        b"retryAfter" => ("retryAfter", 1.0),
        b"retry_after_ms" => ("retry_after_ms", 0.001),
        b"resets_in_seconds" => ("resets_in_seconds", 1.0),
        b"reset_seconds" => ("reset_seconds", 1.0),
        _ => return None,
    })
}

/// What stands before a wait in a message, in lower case.
const BEFORE: &[&str] = &[
    "again in ",
    "again after ",
    "retry in ",
    "retry after ",
    "reset after ",
    "reset in ",
    "resets in ",
    "please wait ",
    "available in ",
    "retrying in ",
    "wait for ",
];

/// The first wait in a message: "try again in 9m38.016s", "retry after 7 seconds".
pub(super) fn in_text(message: &str) -> Option<(f64, String)> {
    let bytes = message.as_bytes();
    let mut from = 0;
    while let Some(found) = bytes.get(from..).and_then(|rest| rest.iter().position(u8::is_ascii_digit)) {
        let at = from + found;
        if let Some(start) = announced(message, at) {
            let tail = message
                .get(at..at + 64)
                .or_else(|| message.get(at..))
                .unwrap_or_default()
                .to_ascii_lowercase();
            if let Some((seconds, used)) = spoken(&tail) {
                return Some((seconds, message.get(start..at + used).unwrap_or_default().to_owned()));
            }
        }
        from =
            at + bytes.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    }
    chinese(message)
}

/// Where the announcement of a wait begins that ends right before `at`.
fn announced(message: &str, at: usize) -> Option<usize> {
    // in, after, for, wait, about
    let before = message.as_bytes().get(at.checked_sub(2)?..at)?;
    if !matches!(before, [b'n' | b'r' | b't' | b'N' | b'R' | b'T', b' ']) {
        return None;
    }
    let mut start = at.saturating_sub(24);
    while !message.is_char_boundary(start) {
        start += 1;
    }
    let before = message.get(start..at)?.to_ascii_lowercase();
    let before = before.strip_suffix("about ").unwrap_or(&before);
    let bare = before.strip_suffix("for ").unwrap_or(before);
    [before, bare].iter().find_map(|text| {
        let phrase = BEFORE.iter().find(|phrase| text.ends_with(*phrase))?;
        Some(start + text.len() - phrase.len())
    })
}

/// 请在 30 秒后重试
fn chinese(message: &str) -> Option<(f64, String)> {
    for (unit, seconds) in [("秒后", 1.0), ("分钟后", 60.0), ("小时后", 3600.0)] {
        if let Some((before, _)) = message.split_once(unit) {
            let before = before.trim_end();
            let digits = before.len() - before.bytes().rev().take_while(u8::is_ascii_digit).count();
            let number = before.get(digits..).unwrap_or_default();
            if let Ok(value) = number.parse::<f64>() {
                return Some((value * seconds, format!("{number} {unit}")));
            }
        }
    }
    None
}

/// `1h2m3.5s`, `174ms`, `26s`: every part with its unit, nothing else.
pub(super) fn duration(text: &str) -> Option<f64> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Some(seconds);
    }
    let lower = text.to_ascii_lowercase();
    spoken(&lower).filter(|(_, used)| *used == lower.len()).map(|(seconds, _)| seconds)
}

/// The duration at the start of `text` (lower case) and its length: parts of a number and a unit; a number alone is not
/// one, but "7 seconds" and "2 minutes and 3 seconds" are.
fn spoken(text: &str) -> Option<(f64, usize)> {
    let (mut total, mut used, mut any) = (0.0, 0, false);
    loop {
        let rest = text.get(used..).unwrap_or_default();
        let lead = if any { joint(rest) } else { 0 };
        let rest = rest.get(lead..).unwrap_or_default();
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        // A full stop after the number belongs to the sentence.
        let Some(number) = rest.get(..digits).map(|number| number.trim_end_matches('.')) else { break };
        let Ok(value) = number.parse::<f64>() else { break };
        let after = rest.get(number.len()..).unwrap_or_default();
        let gap = after.bytes().take_while(|byte| *byte == b' ').count();
        let word = after.get(gap..).unwrap_or_default();
        let letters = word.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = match word.get(..letters).unwrap_or_default() {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        total += value * unit;
        used += lead + number.len() + gap + letters;
        any = true;
        // "second(s)"
        if text.get(used..).is_some_and(|rest| rest.starts_with("(s)")) {
            used += 3;
        }
    }
    any.then_some((total, used))
}

/// How two parts of a duration are joined.
fn joint(rest: &str) -> usize {
    for lead in [" and ", ", and ", ", ", " "] {
        if rest.strip_prefix(lead).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            return lead.len();
        }
    }
    0
}

/// Seconds since 1970 of `2026-01-01T00:02:00Z`; fractions are dropped.
fn rfc3339(text: &str) -> Option<f64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !text.ends_with('Z') {
        return None;
    }
    // Days since 1970, counting years from March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    Some(seconds as f64)
}

#[cfg(test)]
mod tests;
