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

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its name, where there was an `event` field that is UTF-8.
    pub name: Option<&'a str>,
    /// Its data lines joined by LF; empty where `too_long`.
    pub data: &'a [u8],
    /// The event was longer than the cap: its data was not kept.
    pub too_long: bool,
}

/// Incremental; one per stream.
#[derive(Debug)]
pub struct Scanner {}

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

    /// Keeps at most `cap` bytes of one event.
    pub fn with_cap(_cap: usize) -> Self {
        Self {}
    }

    /// Looks at the next chunk. `on_event` is called for every event with a data field that ends in it; where it
    /// answers [`Flow::Stop`] the rest of the chunk is not looked at. Answers how many bytes were looked at.
    pub fn push(&mut self, _chunk: &[u8], _on_event: impl FnMut(Event<'_>) -> Flow) -> usize {
        todo!()
    }

    /// At the end of the stream: the last event, where it lacks only its blank line.
    pub fn finish(&mut self, _on_event: impl FnMut(Event<'_>) -> Flow) {
        todo!()
    }

    /// Whether the bytes so far end inside an event (a cut there is a cut event).
    pub fn mid_event(&self) -> bool {
        todo!()
    }

    /// Whether the last line ended with CR in a stream whose lines end with CRLF, so that a LF is still to come.
    pub fn expects_lf(&self) -> bool {
        todo!()
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// Leave the rest of the chunk alone.
    Stop,
}
