//! Waits as people are told them: "try again in 2 minutes and 3 seconds".

use std::sync::LazyLock;

use super::moments::date;
use crate::classify::chinese;

/// What stands before a wait in a message, in lower case.
pub(super) const BEFORE: &[&str] = &[
    "again in ",
    "again after ",
    "retry in ",
    "retry after ",
    "reset after ",
    "reset in ",
    "resets in ",
    "resets after ",
    "request after ",
    "requests after ",
    "allowed in ",
    "retry-after ",
    "wait ",
    "available in ",
    "retrying in ",
    "wait for ",
];

/// What stands before a moment, in lower case.
pub(super) const UNTIL: &[&str] =
    &["resets at ", "reset at ", "retry after ", "retry at ", "again at ", "again after ", "available at "];

/// What stands before a number that "later" follows, in lower case.
const LATER: &[&str] = &["again ", "retry "];

/// What may come between an announcement and its number, in lower case.
const BETWEEN: &[&str] = &["about ", "for ", "approximately ", "around ", "at least "];

/// The last words of all these: most numbers have none of them before them.
static LAST: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let all = [BEFORE, UNTIL, LATER, BETWEEN].into_iter().flatten();
    let mut words: Vec<_> = all.filter_map(|phrase| last_word(phrase)).collect();
    words.sort_unstable();
    words.dedup();
    words
});

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
            let spoken = || spoken(&tail.to_ascii_lowercase());
            if let Some(start) = announced(&before, BEFORE)
                && let Some((seconds, used)) = spoken()
            {
                return Some((seconds, shown(at - start, used)));
            }
            // "try again 30 seconds later"
            if let Some(start) = announced(&before, LATER)
                && let Some((seconds, used)) = spoken()
                && tail.get(used..).is_some_and(|rest| rest.starts_with(" later"))
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
    if message.is_ascii() { None } else { foreign(message) }
}

/// What may announce a wait right before `at`, in lower case.
pub(super) fn before(message: &str, at: usize) -> Option<String> {
    // "in ~45 min"
    let at = if message.as_bytes().get(at.checked_sub(1)?) == Some(&b'~') { at - 1 } else { at };
    // in, after, at, for, wait, about, approximately, around, or a colon
    let end = message.as_bytes().get(at.checked_sub(2)?..at)?;
    if !matches!(end, [b'n' | b'r' | b't' | b'y' | b'd' | b'N' | b'R' | b'T' | b':', b' ']) {
        return None;
    }
    let start = message.floor_char_boundary(at.saturating_sub(32));
    let text = message.get(start..at)?;
    let word = last_word(text)?;
    LAST.iter().any(|last| word.eq_ignore_ascii_case(last)).then(|| text.to_ascii_lowercase())
}

fn last_word(text: &str) -> Option<&str> {
    text.trim_end_matches([':', ' ']).rsplit(|c: char| !c.is_ascii_alphabetic()).next()
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
    let behind = |word: &&str| bare(text.strip_suffix(word)?, dropped + word.len());
    bare(text, dropped).or_else(|| BETWEEN.iter().find_map(behind))
}

/// Units of other languages, in seconds, the longer ones first; of Chinese in simplified characters.
const UNITS: &[(&str, f64)] = &[
    ("秒钟", 1.0),
    ("秒", 1.0),
    ("s", 1.0),
    ("分钟", 60.0),
    ("分", 60.0),
    ("个小时", 3600.0),
    ("小时", 3600.0),
    ("时间", 3600.0),
    ("天", 86_400.0),
    ("초", 1.0),
    ("분", 60.0),
    ("시간", 3600.0),
    ("сек", 1.0),
    ("мин", 60.0),
    ("час", 3600.0),
];

/// 请在 30 秒后重试, 请等待 2 分钟, 30秒後に再試行, 30초 후, через 30 секунд
fn foreign(message: &str) -> Option<(f64, String)> {
    let message = chinese::simplified(message);
    let mut rest = message.as_ref();
    let mut before = "";
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        before = if at > 0 { rest.get(..at)? } else { before };
        let tail = rest.get(at..)?;
        let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = tail.split_at_checked(digits)?;
        rest = after;
        let after = after.trim_start();
        let Some((unit, seconds)) = UNITS.iter().find(|(unit, _)| after.starts_with(unit)) else { continue };
        let then = after.get(unit.len()..)?.trim_start();
        let announced = ["等待", "请等", "через"].iter().any(|word| before.trim_end().ends_with(word));
        if (announced || then.starts_with("后") || then.starts_with("之后") || then.starts_with("후"))
            && let Ok(value) = number.parse::<f64>()
        {
            return Some((value * seconds, format!("{number} {unit}")));
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
