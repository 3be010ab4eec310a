//! Relays pass on what somebody else answered *them*: how to tell, and what lies behind their words. What is said there of
//! a key or an account is said of the relay's, never of ours.

use super::Facts;
use crate::classify::vendor;

/// Types and codes by which relays say so.
const WORDS: &[&str] = &["badresponsestatuscode", "providerresponseerror", "upstreamerror", "aiapicallerror"];

/// What one-api and its kin say of our token.
const OWN: &[&str] = &[
    "insufficientuserquota",
    "insufficienttokenquota",
    "preconsumetokenquotafailed",
    "modelpriceerror",
    "getchannelfailed",
    "noavailablechannel",
];

/// What may follow a quoted answer that is JSON.
const AFTER: &[&str] = &[
    "(request id:",
    "(reset after",
    ". Received Model Group",
    "'. Received Model Group",
    "\". Received Model Group",
    "\nError: ",
    "Error: ",
];

/// What a relay quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quote<'a> {
    pub(super) text: &'a str,
    /// It was said to the relay: keys and accounts in it are the relay's.
    pub(super) foreign: bool,
}

/// What a relay quotes: the text behind `litellm.BadRequestError: OpenAIException - `, `[nvidia/m] [429]: `,
/// `Error code: 429 - `, `400: `, `Error from provider (X): `, `Upstream error from X: ` or a vendor's `openrouter error: `.
/// `None` where nothing is quoted.
pub(super) fn quoted(text: &str) -> Option<Quote<'_>> {
    let foreign = |text| Some(Quote { text: bytes(text), foreign: true });
    if let Some(rest) = text.strip_prefix("litellm.") {
        let start = rest.get(..rest.floor_char_boundary(160)).unwrap_or(rest);
        let behind = ["Exception - ", ": "].iter().find_map(|mark| Some(start.find(mark)? + mark.len()))?;
        return foreign(rest.get(behind..)?);
    }
    for start in ["Error from provider", "Upstream error from "] {
        if let Some(rest) = text.strip_prefix(start) {
            let name = rest.get(..rest.floor_char_boundary(80)).unwrap_or(rest);
            return foreign(rest.get(name.find(": ")? + 2..)?);
        }
    }
    bracketed(text).or_else(|| named(text)).and_then(foreign).or_else(|| numbered(text))
}

/// `Error code: 429 - ...`, `[400]: ...`, `HTTP 403: ...`, `400: ...`, `429 ...`, as clients print what they were answered. A
/// number and three words may as well be a server's own status line.
fn numbered(text: &str) -> Option<Quote<'_>> {
    const BEFORE: &[&str] =
        &["Error code: ", "API Error: ", "API error: ", "HTTP error ", "HTTP ", "status code ", "["];
    let rest = BEFORE.iter().find_map(|before| text.strip_prefix(before)).unwrap_or(text);
    let (status, rest) = rest.split_at_checked(3)?;
    if !status.starts_with(['4', '5']) || !status.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let rest = ["]: ", " - ", ": ", " "].iter().find_map(|after| rest.strip_prefix(after))?;
    let text = bytes(rest.trim_start());
    let foreign = text.starts_with(['{', '[']) || text.split_ascii_whitespace().nth(3).is_some();
    Some(Quote { text, foreign })
}

/// `openrouter error: ...`, by the name of a vendor.
fn named(text: &str) -> Option<&str> {
    let start = text.get(..text.floor_char_boundary(40))?;
    let at = start.find(" error: ")?;
    let name = text.get(..at).filter(|name| !name.contains(' '))?;
    vendor::family(name)?;
    text.get(at + " error: ".len()..)
}

/// `[provider/model] [429]: ...` or `[provider/model] ... (reset after 30s)`.
fn bracketed(text: &str) -> Option<&str> {
    let (name, rest) = text.strip_prefix('[')?.split_once("] ")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | ':' | '@');
    if name.len() > 120 || !name.contains('/') || !name.chars().all(plain) {
        return None;
    }
    let status = rest.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    match status {
        Some((status, rest)) if status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit()) => Some(rest),
        _ => rest.contains("(reset after ").then_some(rest),
    }
}

/// Without the `b'` of Python's bytes.
fn bytes(text: &str) -> &str {
    ["b'", "b\""].iter().find_map(|start| text.strip_prefix(start)).unwrap_or(text)
}

/// Whether a relay's own words go on behind a quoted answer.
pub(super) fn may_follow(rest: &[u8]) -> bool {
    matches!(rest, b"'" | b"\"") || AFTER.iter().any(|after| rest.starts_with(after.as_bytes()))
}

/// Whether a type or code says that the answer is passed on.
pub(super) fn says_so(facts: &Facts) -> bool {
    WORDS.iter().any(|word| facts.has_word(word))
}

/// Whether a message bears the request id that one-api and its kin add to all of them, and nothing else is theirs: beside a
/// provider's own type or code that is an answer passed on.
pub(super) fn marked(facts: &Facts) -> bool {
    let marked = facts.messages.iter().any(|message| {
        message.trim_end().ends_with(')') && message.rfind("(request id: ").is_some_and(|at| at > 0)
    });
    marked && !facts.codes.iter().any(|code| is_own(&code.plain))
}

/// `new_api_error`, but not the `api_error` that others use.
fn is_own(plain: &str) -> bool {
    let kin = ["apierror", "huberror", "apipanic"];
    OWN.contains(&plain)
        || kin.iter().any(|kin| plain.strip_suffix(kin).is_some_and(|whose| !whose.is_empty()))
}

#[cfg(test)]
mod tests;
