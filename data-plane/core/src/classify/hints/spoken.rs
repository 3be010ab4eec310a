//! Waits as people are told them: "try again in 2 minutes and 3 seconds".

use super::moments::date;

/// What stands before a wait in a message, in lower case.
const BEFORE: &[&str] = &[
    "again in ",
    "again after ",
    "retry in ",
    "retry after ",
    "reset after ",
    "reset in ",
    "resets in ",
    "retry-after ",
    "wait ",
    "available in ",
    "retrying in ",
    "wait for ",
];

/// What stands before a moment, in lower case.
const UNTIL: &[&str] =
    &["resets at ", "reset at ", "retry after ", "retry at ", "again at ", "again after ", "available at "];

/// The first wait in a message: "try again in 9m38.016s", "retry after: 7 seconds", "resets at 2026-01-01 00:00 UTC" (which
/// counts from `now`, in seconds since 1970).
pub(in crate::classify) fn in_text(message: &str, now: f64) -> Option<(f64, String)> {
    let bytes = message.as_bytes();
    let mut from = 0;
    while let Some(found) = bytes.get(from..).and_then(|rest| rest.iter().position(u8::is_ascii_digit)) {
        let at = from + found;
        if let Some(before) = before(message, at) {
            let tail = message.get(at..message.floor_char_boundary(at + 64)).unwrap_or_default();
            let shown =
                |start: usize, used: usize| message.get(start..at + used).unwrap_or_default().to_owned();
            if let Some(start) = announced(&before, BEFORE)
                && let Some((seconds, used)) = spoken(&tail.to_ascii_lowercase())
            {
                return Some((seconds, shown(at - start, used)));
            }
            if let Some(start) = announced(&before, UNTIL)
                && let Some((moment, used)) = date(tail)
                && moment > now
            {
                return Some((moment - now, shown(at - start, used)));
            }
        }
        from =
            at + bytes.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    }
    chinese(message)
}

/// What may announce a wait right before `at`, in lower case.
fn before(message: &str, at: usize) -> Option<String> {
    // "in ~45 min"
    let at = if message.as_bytes().get(at.checked_sub(1)?) == Some(&b'~') { at - 1 } else { at };
    // in, after, at, for, wait, about, approximately, around, or a colon
    let end = message.as_bytes().get(at.checked_sub(2)?..at)?;
    if !matches!(end, [b'n' | b'r' | b't' | b'y' | b'd' | b'N' | b'R' | b'T' | b':', b' ']) {
        return None;
    }
    let start = message.floor_char_boundary(at.saturating_sub(32));
    Some(message.get(start..at)?.to_ascii_lowercase())
}

/// How many bytes before its end the announcement begins, where `text` ends with one.
fn announced(text: &str, phrases: &[&str]) -> Option<usize> {
    let colon = text.strip_suffix(": ");
    // "again in about 5 minutes", "wait for 5 minutes"
    let bare = |text: &str, dropped: usize| {
        let phrase = phrases.iter().find(|phrase| {
            text.ends_with(*phrase)
                || (colon.is_some() && phrase.strip_suffix(' ').is_some_and(|phrase| text.ends_with(phrase)))
        })?;
        Some(phrase.len() + dropped)
    };
    let text = colon.unwrap_or(text);
    let dropped = if colon.is_some() { 1 } else { 0 };
    [None, Some("about "), Some("for "), Some("approximately "), Some("around ")].into_iter().find_map(
        |word| match word {
            None => bare(text, dropped),
            Some(word) => bare(text.strip_suffix(word)?, dropped + word.len()),
        },
    )
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
pub(in crate::classify) fn duration(text: &str) -> Option<f64> {
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
