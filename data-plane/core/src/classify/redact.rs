//! Shortens and redacts an error's message, so that it can be stored and shown: no keys, tokens, e-mail addresses or
//! URL queries.

/// Most of an excerpt, in bytes.
pub(super) const EXCERPT: usize = 256;

const HIDDEN: &str = "<redacted>";

/// How keys and tokens of the known kinds begin.
const PREFIXES: &[&str] = &[
    "sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "ak-", "ak_", "key-", "key_", "gsk_", "csk-", "xai-", "hf_",
    "r8_", "fw_", "nvapi-", "pplx-", "tgp_", "ghp_", "gho_", "ghu_", "glpat-", "sess-", "eyJ", "AIza",
    "AKIA", "ASIA", "ABSK", "ya29.",
];

/// At most [`EXCERPT`] bytes of `message`, on one line, redacted.
pub(super) fn excerpt(message: &str) -> String {
    let mut out = String::with_capacity(message.len().min(EXCERPT));
    let mut after_bearer = false;
    let mut rest = message;
    while !rest.is_empty() && out.len() < EXCERPT {
        let end = rest.bytes().position(parts).map_or(rest.len(), |at| at + 1);
        let (word, after) = rest.split_at(end);
        rest = after;
        let core = word.len() - word.bytes().rev().take_while(|byte| closes(*byte)).count();
        let (core, tail) = word.split_at(core);
        let bearer = core.eq_ignore_ascii_case("bearer");
        if after_bearer && core.len() >= 4 {
            out.push_str(HIDDEN);
        } else {
            push_word(&mut out, core);
        }
        after_bearer = bearer || (after_bearer && core.is_empty());
        for byte in tail.bytes() {
            out.push(if byte.is_ascii_control() { ' ' } else { char::from(byte) });
        }
    }
    cut(&mut out, EXCERPT);
    out.truncate(out.trim_end().len());
    out
}

/// Where words end.
fn parts(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\n'
            | b'\r'
            | b'\t'
            | b'"'
            | b'\''
            | b'`'
            | b'<'
            | b'>'
            | b'('
            | b')'
            | b'['
            | b']'
            | b','
            | b';'
    )
}

/// What at the end of a word does not belong to it.
fn closes(byte: u8) -> bool {
    byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"*-_=+/".contains(&byte)
}

/// At most `limit` bytes of `text`, ending at a character.
pub(super) fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        let mut end = limit;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}

fn push_word(out: &mut String, word: &str) {
    let has = |wanted: u8| word.as_bytes().contains(&wanted);
    // Most words are words.
    let suspect =
        word.len() >= 16 || word.bytes().any(|byte| matches!(byte, b'-' | b'_' | b':' | b'=' | b'@' | b'*'));
    if !suspect && !word.bytes().any(|byte| byte.is_ascii_control()) {
        out.push_str(word);
        return;
    }
    if has(b':')
        && let Some(at) = word.find("://")
    {
        push_url(out, word, at + 3);
        return;
    }
    // `key=VALUE` and `key:VALUE` hide the value only.
    if let Some(at) = word.find(['=', ':']).filter(|at| at + 1 < word.len()) {
        let (name, value) = word.split_at(at + 1);
        if is_secret(value) || is_email(value) {
            out.push_str(name);
            out.push_str(HIDDEN);
            return;
        }
    }
    if is_secret(word) || is_email(word) {
        out.push_str(HIDDEN);
    } else {
        out.extend(word.chars().filter(|c| !c.is_control()));
    }
}

/// A URL without user, password and query; `host` is where its authority begins.
fn push_url(out: &mut String, word: &str, host: usize) {
    let end = word.find(['?', '#']).unwrap_or(word.len());
    let (url, query) = word.split_at(end);
    let (scheme, rest) = url.split_at(host.min(end));
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    out.push_str(scheme);
    for (at, part) in rest.split('/').enumerate() {
        out.push_str(if at == 0 { "" } else { "/" });
        out.push_str(if at > 0 && is_secret(part) { HIDDEN } else { part });
    }
    // A fragment is part of the page; a query may hold a key.
    if query.starts_with('#') && !query.contains(['?', '=', '&']) {
        out.push_str(query);
    } else if !query.is_empty() {
        out.push('?');
        out.push_str(HIDDEN);
    }
}

fn is_email(word: &str) -> bool {
    word.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty()
            && host.contains('.')
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b))
    })
}

fn is_secret(word: &str) -> bool {
    let known = PREFIXES.iter().any(|prefix| word.starts_with(prefix) && word.len() >= prefix.len() + 4);
    known || word.contains("***") || word.split(['-', '_', '.', '/', ':', '=']).any(is_random)
}

/// A long run of letters and digits mixed, as no word and no model name has it.
fn is_random(part: &str) -> bool {
    part.len() >= 16
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
        && part.bytes().any(|b| b.is_ascii_digit())
        && part.bytes().any(|b| b.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests;
