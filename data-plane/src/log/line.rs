//! One log line made by hand: the same shape as the `tracing` lines, at a tenth of the cost.

use std::{
    cell::RefCell,
    fmt::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

/// A line being made. Fields keep the order they were added in.
pub struct Line {
    json: bool,
    text: String,
}

impl Line {
    pub(super) fn new(json: bool, event: &'static str, message: &str) -> Self {
        let mut text = SPARE.take();
        text.clear();
        text.reserve(768);
        let mut line = Self { json, text };
        if json {
            line.text.push_str("{\"timestamp\":\"");
            line.timestamp();
            line.text.push_str("\",\"level\":\"INFO\",\"target\":\"spareline_proxy\",\"message\":");
            quote(&mut line.text, message);
            line.text("event", event);
        } else {
            line.timestamp();
            line.text.push_str("  INFO spareline_proxy: ");
            line.text.push_str(message);
            line.text("event", event);
        }
        line
    }

    fn timestamp(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SECOND.with_borrow_mut(|(second, text)| {
            if *second != now.as_secs() || text.is_empty() {
                *second = now.as_secs();
                *text = date(now.as_secs());
            }
            self.text.push_str(text);
        });
        digits(&mut self.text, u64::from(now.subsec_micros()), 6);
        self.text.push('Z');
    }

    fn key(&mut self, key: &str) {
        if self.json {
            self.text.push_str(",\"");
            self.text.push_str(key);
            self.text.push_str("\":");
        } else {
            self.text.push(' ');
            self.text.push_str(key);
            self.text.push('=');
        }
    }

    /// A text field.
    pub fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key);
        quote(&mut self.text, value);
        self
    }

    /// A number.
    pub fn number(&mut self, key: &str, value: u64) -> &mut Self {
        self.key(key);
        digits(&mut self.text, value, 1);
        self
    }

    /// A number that may be absent; nothing is written then.
    pub fn maybe(&mut self, key: &str, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.number(key, value),
            None => self,
        }
    }

    /// Milliseconds with three decimals.
    pub fn ms(&mut self, key: &str, value: std::time::Duration) -> &mut Self {
        self.key(key);
        millis(&mut self.text, value);
        self
    }

    /// True or false.
    pub fn flag(&mut self, key: &str, value: bool) -> &mut Self {
        self.key(key);
        self.text.push_str(if value { "true" } else { "false" });
        self
    }

    /// A value that writes itself as JSON, such as a list of objects.
    pub fn write(&mut self, key: &str, value: impl FnOnce(&mut String)) -> &mut Self {
        self.key(key);
        value(&mut self.text);
        self
    }

    /// Hands the whole line to `out`.
    pub(super) fn finish(mut self, out: impl FnOnce(&[u8])) {
        self.text.push_str(if self.json { "}\n" } else { "\n" });
        out(self.text.as_bytes());
        if self.text.capacity() <= KEPT {
            SPARE.set(self.text);
        }
    }
}

/// Buffers larger than this are not kept.
const KEPT: usize = 8 << 10;

thread_local! {
    /// The buffer of the last line, for the next one.
    static SPARE: RefCell<String> = const { RefCell::new(String::new()) };
    /// The second that was last written, and its text.
    static SECOND: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// A second of Unix time, up to and with the point before its fractions.
fn date(second: u64) -> String {
    let at = i64::try_from(second).ok().and_then(|s| time::OffsetDateTime::from_unix_timestamp(s).ok());
    let at = at.unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let fields = [
        (at.year().unsigned_abs(), 4, '-'),
        (u32::from(u8::from(at.month())), 2, '-'),
        (u32::from(at.day()), 2, 'T'),
        (u32::from(at.hour()), 2, ':'),
        (u32::from(at.minute()), 2, ':'),
        (u32::from(at.second()), 2, '.'),
    ];
    let mut text = String::with_capacity(20);
    for (value, width, end) in fields {
        digits(&mut text, u64::from(value), width);
        text.push(end);
    }
    text
}

/// Appends a number with at least `width` digits: what the formatter does, without its cost, which shows at a dozen
/// numbers per request.
pub(crate) fn digits(out: &mut String, number: u64, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let text = buffer.format(number);
    for _ in text.len()..width {
        out.push('0');
    }
    out.push_str(text);
}

/// Appends milliseconds with three decimals.
pub(crate) fn millis(out: &mut String, time: std::time::Duration) {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    digits(out, us / 1000, 1);
    out.push('.');
    digits(out, us % 1000, 3);
}

/// Appends `value` as a JSON string.
pub(crate) fn quote(out: &mut String, value: &str) {
    out.push('"');
    if is_plain(value.as_bytes()) {
        out.push_str(value);
        out.push('"');
        return;
    }
    let mut plain = 0;
    for (at, byte) in value.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&value[plain..at]);
        plain = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            other => {
                let _ = write!(out, "\\u{other:04x}");
            }
        }
    }
    out.push_str(&value[plain..]);
    out.push('"');
}

/// Whether nothing in it has to be escaped; eight bytes at a time, since nearly every text is.
fn is_plain(text: &[u8]) -> bool {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, bound: u8| word.wrapping_sub(LOW * u64::from(bound)) & !word & HIGH;
    let (words, rest) = text.as_chunks::<8>();
    let mut marks = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        marks |= below(word, 0x20) | below(word ^ (LOW * 0x22), 1) | below(word ^ (LOW * 0x5c), 1);
    }
    marks == 0 && rest.iter().all(|byte| *byte >= 0x20 && *byte != b'"' && *byte != b'\\')
}
