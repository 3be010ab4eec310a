//! What callers see of an upstream's error text: as it came, or with links, purchase hints and configured words
//! removed, and friendly texts in place of it by code.
//!
//! Only error bodies go through here, never an answer. JSON keeps its shape, byte for byte but for the messages; the
//! status is not touched. It does not hide who answered: other headers and fields are the proxy's affair.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use spareline_proto::registry::v1 as pb;

use crate::classify::json::{Cursor, Value};
use crate::sse;

/// Hints at buying something. A sentence with one of them goes, in any ASCII case.
const HINTS: &[&str] = &[
    "purchase",
    "subscribe",
    "subscription",
    "upgrade",
    "billing",
    "recharge",
    "top up",
    "topup",
    "buy ",
    "pricing",
    "add credits",
    "more credits",
    "payment",
    "sales@",
    "contact sales",
    "充值",
    "购买",
    "订阅",
    "升级",
    "套餐",
    "付费",
    "续费",
];

/// How links begin.
const LINKS: &[&str] = &["https://", "http://", "www."];

/// Where sentences end.
const ENDS: &[&str] = &[". ", "! ", "? ", ".\n", "\n", "。", "！", "；"];

/// What is left when nothing else is.
const NOTHING_LEFT: &str = "The provider refused the request.";

/// Members that hold a message.
const MESSAGES: &[&[u8]] =
    &[b"message", b"Message", b"msg", b"error_msg", b"status_msg", b"detail", b"title"];

/// Objects deeper than this are passed as they are.
const DEPTH: u8 = 6;

/// How upstream error text is passed on.
#[derive(Clone, Debug, Default)]
pub struct ErrorText {
    sanitized: bool,
    remove: Vec<String>,
    texts: BTreeMap<String, String>,
}

impl ErrorText {
    /// From a policy with everything folded in; unset mode means passthrough.
    pub fn new(policy: &pb::ErrorTextPolicy) -> Self {
        Self {
            sanitized: policy.mode() == pb::ErrorTextMode::Sanitized,
            remove: policy.remove_words.iter().filter(|word| !word.trim().is_empty()).cloned().collect(),
            texts: policy.texts.clone().into_iter().collect(),
        }
    }

    /// Whether bodies pass untouched.
    pub fn is_passthrough(&self) -> bool {
        !self.sanitized && self.texts.is_empty()
    }

    /// The text that stands in for an error code's own, upstream's or ours.
    pub fn text_for(&self, code: &str) -> Option<&str> {
        self.texts.get(code).map(String::as_str)
    }

    /// One message, by its code.
    pub fn message<'a>(&'a self, code: &str, message: &'a str) -> Cow<'a, str> {
        match self.text_for(code) {
            Some(text) => Cow::Borrowed(text),
            None if self.sanitized => self.sanitize(message),
            None => Cow::Borrowed(message),
        }
    }

    /// A whole upstream error body (already decoded). Messages change, everything else stays as it came; what is not
    /// JSON is taken as one message.
    pub fn body<'a>(&self, body: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_passthrough() {
            return Cow::Borrowed(body);
        }
        if sse::looks_like_events(body) {
            return self.events(body);
        }
        let start = body.trim_ascii_start().first();
        if !matches!(start, Some(b'{' | b'[' | b'"')) {
            return match std::str::from_utf8(body) {
                Ok(text) => match self.message("", text) {
                    Cow::Borrowed(_) => Cow::Borrowed(body),
                    Cow::Owned(text) => Cow::Owned(text.into_bytes()),
                },
                Err(_) => Cow::Borrowed(body),
            };
        }
        let mut cursor = Cursor::new(body);
        let mut edits = Vec::new();
        let value = cursor.value();
        self.walk(&mut cursor, value, 0, &mut edits);
        if edits.is_empty() {
            return Cow::Borrowed(body);
        }
        let mut out = Vec::with_capacity(body.len());
        let mut at = 0;
        edits.sort_by_key(|(range, _)| range.start);
        for (range, text) in edits {
            out.extend_from_slice(body.get(at..range.start).unwrap_or_default());
            out.extend_from_slice(text.as_bytes());
            at = range.end;
        }
        out.extend_from_slice(body.get(at..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// An error in the form of a stream: line by line, so that every event stays one.
    fn events<'a>(&self, body: &'a [u8]) -> Cow<'a, [u8]> {
        let mut out = Vec::with_capacity(body.len());
        for line in body.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let end =
                if line.ends_with(b"\n") || line.ends_with(b"\r") { line.len() - 1 } else { line.len() };
            let (text, end) = line.split_at(end);
            match text.strip_prefix(b"data:") {
                Some(data) => {
                    let (space, data) = data.split_at(usize::from(data.starts_with(b" ")));
                    out.extend_from_slice(b"data:");
                    out.extend_from_slice(space);
                    out.extend_from_slice(&self.body(data));
                }
                None => out.extend_from_slice(text),
            }
            out.extend_from_slice(end);
        }
        if out == body { Cow::Borrowed(body) } else { Cow::Owned(out) }
    }

    /// Collects what to put in place of the messages in `value`, which was just read.
    fn walk(
        &self,
        cursor: &mut Cursor<'_>,
        value: Value<'_>,
        depth: u8,
        edits: &mut Vec<(Range<usize>, String)>,
    ) {
        match value {
            Value::Object if depth < DEPTH => {
                let (mut code, mut kind) = (String::new(), String::new());
                let mut messages = Vec::new();
                while let Some(key) = cursor.key() {
                    let value = cursor.value();
                    match (key.plain(), value) {
                        (b"code" | b"Code", Value::Str(raw)) => code = raw.text().into_owned(),
                        (b"code" | b"status_code" | b"error_code", Value::Num(number)) => {
                            number.clone_into(&mut code)
                        }
                        (b"type", Value::Str(raw)) => kind = raw.text().into_owned(),
                        (name, Value::Str(raw))
                            if !cursor.broken() && (name == b"error" || MESSAGES.contains(&name)) =>
                        {
                            let end = cursor.at();
                            messages.push((end - raw.plain().len() - 2..end, raw.text().into_owned()));
                        }
                        (b"param", Value::Str(_)) => {}
                        _ => self.walk(cursor, value, depth + 1, edits),
                    }
                }
                let code = if self.texts.contains_key(&code) { code } else { kind };
                for (range, message) in messages {
                    if let Cow::Owned(text) = self.message(&code, &message) {
                        edits.push((range, quoted(&text)));
                    } else if let Some(text) = self.text_for(&code) {
                        edits.push((range, quoted(text)));
                    }
                }
            }
            Value::Array if depth < DEPTH => {
                while cursor.item() {
                    let value = cursor.value();
                    self.walk(cursor, value, depth + 1, edits);
                }
            }
            // What another provider said, quoted whole; documentation; and the like.
            Value::Str(raw) if self.sanitized && !cursor.broken() => {
                let text = raw.text();
                let lower = text.to_ascii_lowercase();
                let linked = LINKS.iter().any(|link| lower.contains(link));
                if (linked || self.remove.iter().any(|word| lower.contains(&word.to_ascii_lowercase())))
                    && let Cow::Owned(clean) = self.sanitize(&text)
                {
                    let end = cursor.at();
                    edits.push((end - raw.plain().len() - 2..end, quoted(&clean)));
                }
            }
            value => cursor.finish(value),
        }
    }

    fn sanitize<'a>(&self, message: &'a str) -> Cow<'a, str> {
        let sentences = sentences(message);
        let clean: Vec<&str> = sentences.iter().copied().filter(|sentence| !is_hint(sentence)).collect();
        let mut text = if clean.is_empty() { NOTHING_LEFT.to_owned() } else { clean.concat() };
        for word in &self.remove {
            text = without(&text, word);
        }
        let text = text.trim();
        if text == message.trim() {
            return Cow::Borrowed(message);
        }
        Cow::Owned(if text.is_empty() { NOTHING_LEFT.to_owned() } else { text.to_owned() })
    }
}

/// A message cut behind its sentences' ends.
fn sentences(message: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let end =
            ENDS.iter().filter_map(|end| rest.find(end).map(|at| at + end.len())).min().unwrap_or(rest.len());
        let (sentence, after) = rest.split_at(end);
        found.push(sentence);
        rest = after;
    }
    found
}

fn is_hint(sentence: &str) -> bool {
    let lower = sentence.to_ascii_lowercase();
    HINTS.iter().chain(LINKS).any(|hint| lower.contains(hint))
}

/// `text` without `word`, in any ASCII case, and without the gap it leaves.
fn without(text: &str, word: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let word = word.to_ascii_lowercase();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (found, _) in lower.match_indices(&word) {
        out.push_str(text.get(at..found).unwrap_or_default());
        at = found + word.len();
        if out.ends_with(' ') && text.get(at..).is_some_and(|rest| rest.starts_with([' ', '.', ','])) {
            out.pop();
        }
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
