//! A tolerant reader of JSON text: pulls values out of a body without building a tree, skips the rest, and goes as far
//! as the bytes do, so that a code early in a truncated body is still found.
//!
//! Linear in the input, no recursion in [`Cursor::skip`], no allocation but for strings with escapes. It is not a
//! validator: it notices an early end and brackets that do not pair, and lets smaller sins pass.

mod block;

use std::borrow::Cow;

use memchr::memchr2;

use self::block::{BLOCK, Block, Nesting};

/// Where the reader is. After a fault every further read answers "nothing".
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    broken: bool,
    fresh: bool,
}

/// A value, with containers still to be read: `Object` by [`Cursor::key`], `Array` by [`Cursor::item`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Object,
    Array,
    Str(Raw<'a>),
    /// As written.
    Num(&'a str),
    Bool(bool),
    Null,
    /// The text ended or is not JSON here.
    Broken,
}

/// A string as it stands between its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raw<'a> {
    bytes: &'a [u8],
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, broken: false, fresh: false }
    }

    /// Whether something was wrong so far, an early end included.
    pub(crate) fn broken(&self) -> bool {
        self.broken
    }

    /// Whether nothing but white space is left.
    pub(crate) fn at_end(&mut self) -> bool {
        self.blank();
        self.at >= self.bytes.len()
    }

    /// How many bytes have been read.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// What has not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The next value; opens a container.
    pub(crate) fn value(&mut self) -> Value<'a> {
        if self.broken {
            return Value::Broken;
        }
        self.blank();
        match self.bytes.get(self.at) {
            Some(b'{') => self.open(Value::Object),
            Some(b'[') => self.open(Value::Array),
            Some(b'"') => {
                self.at += 1;
                Value::Str(self.string())
            }
            Some(b't') => self.word(b"true", Value::Bool(true)),
            Some(b'f') => self.word(b"false", Value::Bool(false)),
            Some(b'n') => self.word(b"null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.fail(),
        }
    }

    /// The next key of the object that is open, `None` at its end. Its value must then be read or skipped.
    pub(crate) fn key(&mut self) -> Option<Raw<'a>> {
        if !self.next_member(b'}') {
            return None;
        }
        if self.bytes.get(self.at) != Some(&b'"') {
            self.fail();
            return None;
        }
        self.at += 1;
        let key = self.string();
        self.blank();
        if self.bytes.get(self.at) != Some(&b':') {
            self.fail();
            return None;
        }
        self.at += 1;
        Some(key)
    }

    /// Whether the array that is open has a further item, to be read or skipped.
    pub(crate) fn item(&mut self) -> bool {
        self.next_member(b']')
    }

    /// Steps over one value of any depth.
    pub(crate) fn skip(&mut self) {
        match self.value() {
            Value::Object => self.leave(b'}'),
            Value::Array => self.leave(b']'),
            _ => {}
        }
    }

    /// Steps over what `value`, just read, still holds.
    pub(crate) fn finish(&mut self, value: Value<'_>) {
        match value {
            Value::Object => self.leave(b'}'),
            Value::Array => self.leave(b']'),
            _ => {}
        }
    }

    fn open(&mut self, value: Value<'a>) -> Value<'a> {
        self.at += 1;
        self.fresh = true;
        value
    }

    fn fail(&mut self) -> Value<'a> {
        self.broken = true;
        Value::Broken
    }

    fn blank(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// To the start of the next member; false at the end of the container, which is left.
    fn next_member(&mut self, close: u8) -> bool {
        if self.broken {
            return false;
        }
        self.blank();
        let first = std::mem::take(&mut self.fresh);
        match self.bytes.get(self.at) {
            Some(&byte) if byte == close => {
                self.at += 1;
                false
            }
            Some(b',') if !first => {
                self.at += 1;
                self.blank();
                true
            }
            Some(_) if first => true,
            _ => {
                self.fail();
                false
            }
        }
    }

    /// From inside a container to behind its end, a block at a time.
    fn leave(&mut self, close: u8) {
        self.fresh = false;
        let mut open = Nesting::new(close);
        while self.at < self.bytes.len() {
            let block = Block::new(self.bytes.get(self.at..).unwrap_or_default());
            for (at, byte) in block.brackets() {
                if !open.take(byte) {
                    self.at += at + 1;
                    self.fail();
                    return;
                }
                if open.is_empty() {
                    self.at += at + 1;
                    return;
                }
            }
            match block.unfinished() {
                Some(start) => {
                    self.at += start;
                    self.string();
                    if self.broken {
                        return;
                    }
                }
                None => self.at += BLOCK,
            }
        }
        self.at = self.bytes.len();
        self.fail();
    }

    /// From behind the opening quote to behind the closing one; what is there when the text ends before that.
    fn string(&mut self) -> Raw<'a> {
        let start = self.at;
        while let Some(found) = self.bytes.get(self.at..).and_then(quote_or_escape) {
            self.at += found;
            if self.bytes.get(self.at) == Some(&b'"') {
                let bytes = self.bytes.get(start..self.at).unwrap_or_default();
                self.at += 1;
                return Raw { bytes };
            }
            self.at += 2;
        }
        self.at = self.bytes.len();
        self.fail();
        Raw { bytes: self.bytes.get(start..).unwrap_or_default() }
    }

    fn word(&mut self, word: &[u8], value: Value<'a>) -> Value<'a> {
        if self.bytes.get(self.at..self.at + word.len()) == Some(word) {
            self.at += word.len();
            value
        } else {
            self.fail()
        }
    }

    fn number(&mut self) -> Value<'a> {
        let start = self.at;
        while matches!(self.bytes.get(self.at), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        let text = self.bytes.get(start..self.at).and_then(|bytes| std::str::from_utf8(bytes).ok());
        Value::Num(text.unwrap_or_default())
    }
}

// === impl Value ===

impl Value<'_> {
    /// Whether something is there: not null, false, zero, `""`. Containers count as something.
    pub(crate) fn is_set(self) -> bool {
        match self {
            Self::Object | Self::Array => true,
            Self::Str(raw) => !raw.is_empty(),
            Self::Num(text) => text.parse::<f64>().is_ok_and(|number| number != 0.0),
            Self::Bool(value) => value,
            Self::Null | Self::Broken => false,
        }
    }
}

// === impl Raw ===

impl<'a> Raw<'a> {
    pub(crate) fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// Its bytes where they need no decoding: enough to compare with a key.
    pub(crate) fn plain(self) -> &'a [u8] {
        self.bytes
    }

    /// At most `limit` bytes of it, as written; a container in a string is never cut.
    pub(crate) fn start(self, limit: usize) -> Self {
        match self.bytes.get(..limit) {
            Some(bytes) if !matches!(self.bytes.trim_ascii_start().first(), Some(b'{' | b'[')) => {
                // Not in the middle of an escape.
                let end = bytes.len()
                    - bytes.iter().rev().take(12).position(|byte| *byte == b'\\').map_or(0, |at| at + 1);
                Self { bytes: bytes.get(..end).unwrap_or(bytes) }
            }
            _ => self,
        }
    }

    /// Decoded; bad escapes and bad UTF-8 become the replacement character.
    pub(crate) fn text(self) -> Cow<'a, str> {
        if memchr::memchr(b'\\', self.bytes).is_some() {
            return Cow::Owned(unescape(self.bytes));
        }
        match std::str::from_utf8(self.bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(self.bytes),
        }
    }
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Marks the bytes of `word` that equal `byte`; the lowest mark is always right.
fn equal(word: u64, byte: u8) -> u64 {
    let differ = word ^ (LOW * u64::from(byte));
    differ.wrapping_sub(LOW) & !differ & HIGH
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Where the next quote or backslash is. Short strings are the rule: eight bytes at a time before a call out.
fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    for at in [0, 8, 16, 24] {
        let Some(word) = word_at(bytes, at) else { break };
        let marks = equal(word, b'"') | equal(word, b'\\');
        if marks != 0 {
            return Some(at + marks.trailing_zeros() as usize / 8);
        }
    }
    memchr2(b'"', b'\\', bytes)
}

fn unescape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte != b'\\' {
            out.push(byte);
            at += 1;
            continue;
        }
        let (decoded, used) = escape(bytes.get(at..).unwrap_or_default());
        if decoded.is_ascii() {
            out.push(decoded as u8);
        } else {
            out.extend_from_slice(decoded.encode_utf8(&mut [0; 4]).as_bytes());
        }
        at += used;
    }
    match String::from_utf8(out) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

/// One escape sequence at the start of `tail`, and its length.
fn escape(tail: &[u8]) -> (char, usize) {
    match tail.get(1) {
        Some(b'n') => ('\n', 2),
        Some(b't') => ('\t', 2),
        Some(b'r') => ('\r', 2),
        Some(b'b') => ('\u{8}', 2),
        Some(b'f') => ('\u{c}', 2),
        Some(&byte @ (b'"' | b'\\' | b'/')) => (char::from(byte), 2),
        Some(b'u') => {
            let Some(high) = hex4(tail.get(2..6)) else { return (char::REPLACEMENT_CHARACTER, 2) };
            if (0xD800..0xDC00).contains(&high)
                && tail.get(6..8) == Some(br"\u")
                && let Some(low) = hex4(tail.get(8..12))
                && (0xDC00..0xE000).contains(&low)
            {
                let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                return (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
            }
            (char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER), 6)
        }
        _ => (char::REPLACEMENT_CHARACTER, 2),
    }
}

fn hex4(digits: Option<&[u8]>) -> Option<u32> {
    let text = std::str::from_utf8(digits?).ok()?;
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests;
