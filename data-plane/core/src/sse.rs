//! Finds the events of a `text/event-stream` in chunks of any size.
//!
//! The scanner looks at bytes that pass by; it never owns or copies the pass-through. An event that lies within one
//! chunk is lent from that chunk; only what straddles chunks is kept, up to a cap. Work is linear in the bytes seen.
//! Line ends are LF, CRLF and CR, and nothing else (U+2028 in a JSON string is harmless).
//!
//! Above the cap it gives up looking at that one event ([`Event::too_long`]), and goes on with the next: it never
//! ends a stream.

#[cfg(test)]
mod tests;

/// Most bytes of one event's data that are kept for inspection.
pub const DEFAULT_CAP: usize = 1024 * 1024;

/// How a data line begins, at its longest: after a byte order mark.
const DATA_LINE: &[u8] = b"\xef\xbb\xbfdata:";

/// Whether bytes begin as an event stream does.
pub fn looks_like_events(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    [&b"data:"[..], b"event:", b"id:", b"retry:", b":"].iter().any(|begin| bytes.starts_with(begin))
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its name, where there was an `event` field that is UTF-8.
    pub name: Option<&'a str>,
    /// Its data lines joined by LF; empty where `too_long`.
    pub data: &'a [u8],
    /// The event was longer than the cap: its data was not kept.
    pub too_long: bool,
    /// The status that a comment of the event names (`:HTTP_STATUS/400`), as one provider does beside its errors.
    pub status: Option<u16>,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// Leave the rest of the chunk alone.
    Stop,
}

/// Incremental; one per stream.
#[derive(Debug)]
pub struct Scanner {
    cap: usize,
    /// The line that the last chunk left unfinished.
    line: Vec<u8>,
    /// The rest of the current line is not kept: it went over the cap.
    dropping: bool,
    /// The data of the current event, as far as it does not lie in the current chunk alone.
    data: Vec<u8>,
    has_data: bool,
    too_long: bool,
    name: Option<String>,
    status: Option<u16>,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    crlf: bool,
    first_line: bool,
}

// === impl Scanner ===

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// With [`DEFAULT_CAP`].
    pub fn new() -> Self {
        Self::with_cap(DEFAULT_CAP)
    }

    /// Keeps at most `cap` bytes of one event; at least what it takes to tell a data line from others.
    pub fn with_cap(cap: usize) -> Self {
        Self {
            cap: cap.max(DATA_LINE.len()),
            line: Vec::new(),
            dropping: false,
            data: Vec::new(),
            has_data: false,
            too_long: false,
            name: None,
            status: None,
            after_cr: false,
            crlf: false,
            first_line: true,
        }
    }

    /// Looks at the next chunk. `on_event` is called for every event with a data field that ends in it; where it
    /// answers [`Flow::Stop`] the rest of the chunk is not looked at. Answers how many bytes were looked at.
    pub fn push(&mut self, chunk: &[u8], mut on_event: impl FnMut(Event<'_>) -> Flow) -> usize {
        let mut at = 0;
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            self.crlf = chunk[0] == b'\n';
            at = usize::from(self.crlf);
        }
        // The current event's only data line so far, where it lies in this chunk.
        let mut lent: Option<&[u8]> = None;
        while let Some(length) = memchr::memchr2(b'\n', b'\r', &chunk[at..]) {
            let end = at + length;
            let rest = &chunk[at..end];
            at = end + 1;
            if chunk[end] == b'\r' {
                match chunk.get(at) {
                    Some(b'\n') => (self.crlf, at) = (true, at + 1),
                    Some(_) => self.crlf = false,
                    None => self.after_cr = true,
                }
            }
            let flow = if self.line.is_empty() && !self.dropping {
                self.whole_line(rest, &mut lent, &mut on_event)
            } else {
                self.keep(rest);
                self.kept_line(&mut lent, &mut on_event)
            };
            if flow == Flow::Stop {
                self.settle(lent);
                return at;
            }
        }
        self.settle(lent);
        self.keep(&chunk[at..]);
        chunk.len()
    }

    /// At the end of the stream: the last event, where it lacks only its blank line or its last line end.
    pub fn finish(&mut self, mut on_event: impl FnMut(Event<'_>) -> Flow) {
        let mut lent = None;
        if !self.line.is_empty() || self.dropping {
            self.kept_line(&mut lent, &mut on_event);
        }
        self.whole_line(b"", &mut lent, &mut on_event);
    }

    /// Whether the bytes so far end inside an event (a cut there is a cut event).
    pub fn mid_event(&self) -> bool {
        self.has_data || self.dropping || self.name.is_some() || !self.line.is_empty()
    }

    /// Whether the last line ended with CR in a stream whose lines end with CRLF, so that a LF is still to come.
    pub fn expects_lf(&self) -> bool {
        self.after_cr && self.crlf
    }

    /// Copies what is lent from the chunk before the chunk goes away.
    fn settle(&mut self, lent: Option<&[u8]>) {
        if let Some(data) = lent {
            self.data.extend_from_slice(data);
        }
    }

    /// Keeps a part of a line for later, or gives up on the line.
    fn keep(&mut self, part: &[u8]) {
        if self.dropping || part.is_empty() {
            return;
        }
        if self.line.len() + part.len() <= self.cap {
            self.line.extend_from_slice(part);
            return;
        }
        let missing = DATA_LINE.len().saturating_sub(self.line.len()).min(part.len());
        self.line.extend_from_slice(&part[..missing]);
        self.give_up_on_line();
        self.dropping = true;
    }

    /// `line` begins a line that is longer than the cap.
    fn give_up_on_line(&mut self) {
        if self.unmarked(&self.line).starts_with(b"data:") {
            self.has_data = true;
            self.too_long = true;
            self.data = Vec::new();
        }
        self.line = Vec::new();
    }

    /// Without the byte order mark that may begin the stream.
    fn unmarked<'l>(&self, line: &'l [u8]) -> &'l [u8] {
        if self.first_line { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line }
    }

    fn kept_line(&mut self, lent: &mut Option<&[u8]>, on_event: &mut impl FnMut(Event<'_>) -> Flow) -> Flow {
        if std::mem::take(&mut self.dropping) {
            self.first_line = false;
            return Flow::Continue;
        }
        let line = std::mem::take(&mut self.line);
        let line_ref = self.unmarked(&line);
        self.first_line = false;
        let flow = match field(line_ref) {
            Field::End => self.dispatch(lent, on_event),
            Field::Data(value) => {
                self.spill(lent);
                self.append(value);
                Flow::Continue
            }
            Field::Name(value) => self.named(value),
            Field::Status(status) => {
                self.status = Some(status);
                Flow::Continue
            }
            Field::Other => Flow::Continue,
        };
        self.line = line;
        self.line.clear();
        flow
    }

    fn whole_line<'c>(
        &mut self,
        line: &'c [u8],
        lent: &mut Option<&'c [u8]>,
        on_event: &mut impl FnMut(Event<'_>) -> Flow,
    ) -> Flow {
        let too_long = line.len() > self.cap;
        let line = self.unmarked(line);
        self.first_line = false;
        match field(line) {
            Field::End => return self.dispatch(lent, on_event),
            Field::Data(_) if too_long => {
                self.spill(lent);
                (self.has_data, self.too_long, self.data) = (true, true, Vec::new());
            }
            Field::Data(value) if !self.has_data => {
                self.has_data = true;
                *lent = Some(value);
            }
            Field::Data(value) => {
                self.spill(lent);
                self.append(value);
            }
            Field::Name(value) if !too_long => return self.named(value),
            Field::Status(status) if !too_long => self.status = Some(status),
            Field::Name(_) | Field::Status(_) | Field::Other => {}
        }
        Flow::Continue
    }

    /// A second data line follows: what was lent has to be kept.
    fn spill(&mut self, lent: &mut Option<&[u8]>) {
        if let Some(data) = lent.take()
            && !self.too_long
        {
            self.data.extend_from_slice(data);
        }
    }

    fn append(&mut self, value: &[u8]) {
        if !self.too_long && self.data.len() + value.len() + usize::from(self.has_data) > self.cap {
            self.too_long = true;
            self.data = Vec::new();
        }
        if !self.too_long {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
        }
        self.has_data = true;
    }

    fn named(&mut self, value: &[u8]) -> Flow {
        self.name = std::str::from_utf8(value).ok().filter(|name| !name.is_empty()).map(str::to_owned);
        Flow::Continue
    }

    fn dispatch(&mut self, lent: &mut Option<&[u8]>, on_event: &mut impl FnMut(Event<'_>) -> Flow) -> Flow {
        let (name, status) = (self.name.take(), self.status.take());
        if !std::mem::take(&mut self.has_data) {
            return Flow::Continue;
        }
        let too_long = std::mem::take(&mut self.too_long);
        let data = if too_long { b"" } else { lent.unwrap_or(&self.data) };
        let flow = on_event(Event { name: name.as_deref(), data, too_long, status });
        *lent = None;
        self.data.clear();
        flow
    }
}

enum Field<'a> {
    /// A blank line: the event ends.
    End,
    Data(&'a [u8]),
    Name(&'a [u8]),
    Status(u16),
    /// A comment, or a field that does not matter here.
    Other,
}

fn field<'a>(line: &'a [u8]) -> Field<'a> {
    if line.is_empty() {
        return Field::End;
    }
    let (kind, rest): (fn(&'a [u8]) -> Field<'a>, _) = if let Some(rest) = line.strip_prefix(b"data") {
        (Field::Data, rest)
    } else if let Some(rest) = line.strip_prefix(b"event") {
        (Field::Name, rest)
    } else {
        return status(line).map_or(Field::Other, Field::Status);
    };
    match rest {
        [] => kind(rest),
        [b':', b' ', value @ ..] | [b':', value @ ..] => kind(value),
        _ => Field::Other,
    }
}

/// The status that a comment names.
fn status(line: &[u8]) -> Option<u16> {
    std::str::from_utf8(line.strip_prefix(b":HTTP_STATUS/")?).ok()?.trim().parse().ok()
}
