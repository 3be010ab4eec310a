//! What an error body says, by its structure: codes, messages, numbers, waits. Nothing is concluded here.
//!
//! Only the places where providers put such things are read; content, echoed input, `failed_generation` and the like
//! are stepped over.

mod codes;
mod fields;
mod messages;
mod places;
mod python;
mod relays;

use std::borrow::Cow;
use std::cell::OnceCell;

use http::HeaderMap;

pub(super) use self::codes::{Code, Place, normalise};
use self::messages::{Messages, Rank, is_code, text};
use super::json::{Cursor, Value};
use super::rules::Opening;

/// Most of a message that is read, in bytes as written: nobody puts a code or a wait behind that.
const MESSAGE: usize = 4096;

/// Answers are wrapped in one another's messages this deep.
const MOST_WRAPPED: u8 = 2;

/// What relays say around what they quote is taken off this often.
const MOST_QUOTED: usize = 3;

/// What a body looks like, whatever its content type says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shape {
    #[default]
    Empty,
    Html,
    Text,
    Json,
}

/// Everything read.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) shape: Shape,
    /// The most telling first.
    pub(super) codes: Vec<Code>,
    /// The error's own messages, the innermost first.
    pub(super) messages: Vec<String>,
    pub(super) param: String,
    /// A status told inside the body.
    pub(super) status: Option<u16>,
    /// An aggregator's `metadata.raw`: what it got from someone else.
    pub(super) quoted: Option<String>,
    /// An aggregator says that it is quoting.
    pub(super) aggregated: bool,
    /// A relay passes on what it was answered itself: keys and accounts in it are the relay's.
    pub(super) relayed: bool,
    /// A relay's request id is on it, but no type or code of the relay's own.
    pub(super) marked: bool,
    /// The caller's input was flagged by moderation.
    pub(super) flagged: bool,
    /// A per-day quota was exceeded.
    pub(super) per_day: bool,
    /// A quota per model was exceeded.
    pub(super) per_model: bool,
    /// A quota of nothing was exceeded.
    pub(super) quota_zero: bool,
    /// A wait in a field of its own, in seconds, and the field's name.
    pub(super) wait: Option<(f64, &'static str)>,
    /// A moment in a field of its own, in seconds since 1970, and the field's name.
    pub(super) until: Option<(f64, &'static str)>,
    /// `detail` is a list of what is wrong with the request.
    pub(super) validation: bool,
    /// There is an `http_code`, as MiniMax has.
    pub(super) http_code: bool,
    /// How the first message begins, once a rule has asked; a body is judged under one status.
    pub(super) opening: OnceCell<Opening>,
}

// === impl Facts ===

impl Facts {
    /// Of a body already inflated.
    pub(super) fn read(headers: &HeaderMap, body: &[u8]) -> Self {
        let mut facts = Self::default();
        if let Some(kind) = headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok()) {
            facts.word(kind.split(':').next().unwrap_or_default());
        }
        let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body).trim_ascii();
        let body = first_event(body).unwrap_or(body);
        facts.shape = match body.first() {
            None => Shape::Empty,
            // JSON that says nothing.
            _ if matches!(body, b"{}" | b"[]" | b"\"\"" | b"null") => Shape::Empty,
            Some(b'<') => Shape::Html,
            Some(b'{' | b'[' | b'"') => Shape::Json,
            Some(_) => Shape::Text,
        };
        match facts.shape {
            Shape::Json => facts.json(&mut Cursor::new(body), MOST_WRAPPED),
            Shape::Text => {
                let body = body.get(..MESSAGE).unwrap_or(body);
                facts.said(String::from_utf8_lossy(body).into_owned(), MOST_WRAPPED);
            }
            Shape::Empty | Shape::Html => {}
        }
        facts.relayed |= relays::says_so(&facts);
        facts.marked = relays::marked(&facts);
        facts
    }

    /// The error's own message.
    pub(super) fn first_message(&self) -> &str {
        self.messages.first().map_or("", String::as_str)
    }

    /// Whether a word is among the codes, however it is spelt.
    pub(super) fn has_word(&self, plain: &str) -> bool {
        self.codes.iter().any(|code| code.plain == plain)
    }

    fn json(&mut self, cursor: &mut Cursor<'_>, wrapped: u8) {
        let mut found = Messages::default();
        match cursor.value() {
            Value::Object => self.top(cursor, &mut found),
            Value::Array => {
                let first = if cursor.item() { cursor.value() } else { Value::Null };
                if first == Value::Object {
                    self.top(cursor, &mut found);
                }
            }
            Value::Str(raw) => found.push(Rank::Error, raw.start(MESSAGE).text().into_owned()),
            _ => {}
        }
        for text in found.sorted() {
            self.said(text, wrapped);
        }
    }

    /// One message: a whole answer inside of it counts for more than what a relay says around that.
    fn said(&mut self, text: String, wrapped: u8) {
        if self.unwrapped(&text, wrapped, false) {
            return;
        }
        if let Some((number, message)) = places::bracketed_number(&text) {
            self.codes.push(Code::number(Place::Error, number));
            self.message(self.messages.len(), Cow::Borrowed(message));
        }
        // A message that is a code.
        if is_code(&text) {
            self.word(&text);
        }
        let mut inner = None;
        for _ in 0..MOST_QUOTED {
            let Some(quote) = relays::quoted(inner.unwrap_or(&text)) else { break };
            self.relayed |= quote.foreign;
            inner = Some(quote.text);
        }
        let inner = inner.filter(|inner| !self.unwrapped(inner, wrapped, true)).map(str::to_owned);
        self.message(self.messages.len(), Cow::Owned(text));
        if let Some(inner) = inner {
            self.message(self.messages.len(), Cow::Owned(inner));
        }
    }

    /// A whole JSON answer inside a message; a message that merely begins with JSON is an echo, but for what a relay that
    /// quotes may add.
    fn unwrapped(&mut self, text: &str, wrapped: u8, quoted: bool) -> bool {
        let text = text.trim();
        if wrapped == 0 || !text.starts_with(['{', '[']) {
            return false;
        }
        if let Some(json) = python::to_json(text) {
            return self.take(&json, wrapped - 1, true);
        }
        let mut probe = Cursor::new(text.as_bytes());
        probe.skip();
        let whole = !probe.broken() && probe.at_end();
        let marked = !whole && !probe.broken() && probe.rest().starts_with(b"(request id:");
        let followed = quoted && !probe.broken() && relays::may_follow(probe.rest());
        if !(whole || marked || followed) {
            return false;
        }
        self.take(text, wrapped - 1, marked)
    }

    /// Takes over what an answer inside a message says; `foreign`: to whoever put it there.
    fn take(&mut self, text: &str, wrapped: u8, foreign: bool) -> bool {
        let mut inner = Self::default();
        inner.json(&mut Cursor::new(text.as_bytes()), wrapped);
        if inner.codes.is_empty() && inner.messages.is_empty() {
            return false;
        }
        self.codes.splice(0..0, inner.codes);
        self.messages.splice(0..0, inner.messages);
        self.status = self.status.or(inner.status);
        self.wait = self.wait.or(inner.wait);
        self.until = self.until.or(inner.until);
        self.relayed |= foreign || inner.relayed;
        self.per_day |= inner.per_day;
        self.per_model |= inner.per_model;
        self.quota_zero |= inner.quota_zero;
        true
    }

    /// The members of the outermost object.
    fn top(&mut self, cursor: &mut Cursor<'_>, found: &mut Messages) {
        let mut spark = false;
        while let Some(key) = cursor.key() {
            match key.plain() {
                b"error" | b"Error" => match cursor.value() {
                    Value::Object => self.error(cursor, found, Place::Error, 0),
                    Value::Str(raw) => {
                        let text = raw.start(MESSAGE).text();
                        if text.len() <= 64 && !text.contains(' ') {
                            self.word(&text);
                        }
                        found.push(Rank::ErrorText, text.into_owned());
                    }
                    Value::Array => self.errors(cursor, found),
                    value => cursor.finish(value),
                },
                b"errors" => match cursor.value() {
                    Value::Array => self.errors(cursor, found),
                    Value::Object => self.error(cursor, found, Place::Errors, 0),
                    value => cursor.finish(value),
                },
                b"detail" => match cursor.value() {
                    Value::Object => self.error(cursor, found, Place::Top, 0),
                    Value::Str(raw) => found.push(Rank::Detail, raw.start(MESSAGE).text().into_owned()),
                    value => {
                        self.validation |= value == Value::Array;
                        cursor.finish(value);
                    }
                },
                b"fault" => self.fault(cursor, found),
                b"sid" => {
                    spark |= matches!(scalar(cursor), Value::Str(_));
                }
                b"base_resp" => self.numbered(cursor, found, Place::BaseResp),
                b"header" => self.numbered(cursor, found, Place::Header),
                b"Response" | b"response" => self.response(cursor, found),
                b"error_code" => self.code(cursor, Place::ErrorCode),
                b"code" | b"Code" => self.code(cursor, Place::Top),
                b"type" | b"status" | b"reason" | b"error_type" | b"errorType" | b"__type" | b"errorName" => {
                    self.code(cursor, Place::Top);
                }
                b"message" | b"Message" | b"msg" | b"error_msg" | b"error_message" | b"errorMessage"
                | b"error_description" => text(cursor, found, Rank::Message),
                b"title" | b"statusText" => text(cursor, found, Rank::Title),
                b"param" => self.param(cursor),
                _ => self.other(key, cursor),
            }
        }
        // A session id beside it: Spark's number, which stands in a header elsewhere.
        if spark {
            self.codes
                .iter_mut()
                .filter(|code| code.place == Place::Top)
                .for_each(|c| c.place = Place::Header);
        }
    }

    /// The members of an error object.
    fn error(&mut self, cursor: &mut Cursor<'_>, found: &mut Messages, place: Place, depth: u8) {
        while let Some(key) = cursor.key() {
            match key.plain() {
                b"message" | b"Message" | b"msg" | b"Msg" | b"detail" => text(cursor, found, Rank::Error),
                b"error" => match cursor.value() {
                    Value::Object if depth < 2 => self.error(cursor, found, place, depth + 1),
                    Value::Str(raw) => found.push(Rank::Error, raw.start(MESSAGE).text().into_owned()),
                    value => cursor.finish(value),
                },
                b"code" | b"Code" | b"type" | b"status" | b"reason" | b"error_type" | b"errorType"
                | b"error_code" | b"name" => {
                    self.code(cursor, place);
                }
                b"innererror" | b"inner_error" => match cursor.value() {
                    Value::Object if depth < 2 => {
                        // Only its code: its message is often a dump of the request.
                        let mut unread = Messages::default();
                        self.error(cursor, &mut unread, place, depth + 1);
                    }
                    value => cursor.finish(value),
                },
                b"details" => self.details(cursor),
                b"metadata" => self.metadata(cursor),
                b"param" => self.param(cursor),
                _ => self.other(key, cursor),
            }
        }
    }

    fn message(&mut self, at: usize, text: Cow<'_, str>) {
        if !text.trim().is_empty() {
            let at = at.min(self.messages.len());
            self.messages.insert(at, text.into_owned());
        }
    }
}

/// The data of the first event, where a refusal came in the form of a stream.
fn first_event(body: &[u8]) -> Option<&[u8]> {
    let stream = [&b"data:"[..], b"event:", b"id:", b":"].iter().any(|field| body.starts_with(field));
    if !stream {
        return None;
    }
    body.split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"data:"))
        .map(<[u8]>::trim_ascii)
        .filter(|data| data.starts_with(b"{"))
}

/// A value that is no container; containers are stepped over.
fn scalar<'a>(cursor: &mut Cursor<'a>) -> Value<'a> {
    let value = cursor.value();
    cursor.finish(value);
    value
}
