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

/// At most 256 bytes of `message`, on one line, redacted. What is redacted already stays as it is.
pub fn excerpt(message: &str) -> String {
    let mut out = String::with_capacity(message.len().min(EXCERPT + 64));
    let mut after_bearer = false;
    let mut rest = message;
    while !rest.is_empty() && out.len() < EXCERPT {
        let (mut kinds, mut end) = (0, 0);
        for byte in rest.bytes() {
            end += 1;
            let kind = KINDS[usize::from(byte)];
            kinds |= kind;
            if kind & PARTS != 0 {
                break;
            }
        }
        let (word, after) = rest.split_at(end);
        rest = after;
        // Most words are words.
        if !after_bearer && word.len() < 16 && kinds & (SUSPECT | CONTROL) == 0 && !is_bearer(word) {
            out.push_str(word);
            continue;
        }
        let core = word.len()
            - word.bytes().rev().take_while(|byte| KINDS[usize::from(*byte)] & CLOSES != 0).count();
        let (core, tail) = word.split_at(core);
        if after_bearer && core.len() >= 4 && core != "redacted" {
            out.push_str(HIDDEN);
        } else {
            push_word(&mut out, core);
        }
        after_bearer = core.eq_ignore_ascii_case(BEARER) || (after_bearer && core.is_empty());
        for byte in tail.bytes() {
            out.push(if byte.is_ascii_control() { ' ' } else { char::from(byte) });
        }
    }
    if out.bytes().any(|byte| byte < 0x20 || byte == 0x7F || byte == 0xC2) {
        // In URLs, and those above ASCII.
        out.retain(|c| !c.is_control());
    }
    cut(&mut out, EXCERPT);
    out.truncate(out.trim_end().len());
    out
}

const BEARER: &str = "bearer";

fn is_bearer(word: &str) -> bool {
    word.as_bytes().get(..BEARER.len()).is_some_and(|start| start.eq_ignore_ascii_case(BEARER.as_bytes()))
}

/// Where words end.
const PARTS: u8 = 1;
/// What at the end of a word does not belong to it.
const CLOSES: u8 = 2;
/// What is in keys, addresses and URLs.
const SUSPECT: u8 = 4;
const CONTROL: u8 = 8;

/// What each byte is.
static KINDS: [u8; 256] = kinds();

const fn kinds() -> [u8; 256] {
    let mut kinds = [0; 256];
    let mut byte = 0u8;
    while byte < 128 {
        let mut kind = 0;
        if matches!(
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
        ) {
            kind |= PARTS;
        }
        if !byte.is_ascii_alphanumeric() && !matches!(byte, b'*' | b'-' | b'_' | b'=' | b'+' | b'/') {
            kind |= CLOSES;
        }
        if matches!(byte, b'-' | b'_' | b':' | b'=' | b'@' | b'*') {
            kind |= SUSPECT;
        }
        if byte.is_ascii_control() {
            kind |= CONTROL;
        }
        kinds[byte as usize] = kind;
        byte += 1;
    }
    kinds
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
    let kinds = word.bytes().fold(0, |kinds, byte| kinds | KINDS[usize::from(byte)]);
    if word.len() < 16 && kinds & (SUSPECT | CONTROL) == 0 {
        out.push_str(word);
        return;
    }
    if let Some(at) = memchr::memmem::find(word.as_bytes(), b"://") {
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
    let begins = |prefix: &&str| {
        word.len() >= prefix.len() + 4
            && word.as_bytes().first() == prefix.as_bytes().first()
            && word.starts_with(*prefix)
    };
    let parts = |byte: &u8| matches!(byte, b'-' | b'_' | b'.' | b'/' | b':' | b'=');
    PREFIXES.iter().any(begins)
        || memchr::memmem::find(word.as_bytes(), b"***").is_some()
        || (word.len() >= RANDOM && word.as_bytes().split(parts).any(is_random))
}

/// A run of letters and digits is at least this long, in bytes, to be taken for a secret.
const RANDOM: usize = 16;

/// A long run of letters and digits mixed, as no word and no model name has it.
fn is_random(part: &[u8]) -> bool {
    part.len() >= RANDOM
        && part.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'+')
        && part.iter().any(u8::is_ascii_digit)
        && part.iter().any(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests;
