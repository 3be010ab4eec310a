//! Most events of a stream differ from the one before in nothing but the text that the model wrote. Such an event means
//! what the one before meant, which is known without reading it again: the bytes around the text are compared instead.
//!
//! Exact, not a guess: only the value of a JSON string under `content` or `text` may differ, and of those nothing
//! counts here but that they are not empty.

use memchr::memmem;

/// Most bytes around the text that are remembered.
const LONGEST: usize = 1024;

/// What stood around the text of the last event that was plain content.
#[derive(Debug, Default)]
pub(super) struct Alike {
    around: Vec<u8>,
    before: usize,
}

impl Alike {
    /// Remembers an event that was content and nothing else.
    pub(super) fn remember(&mut self, data: &[u8]) {
        self.around.clear();
        let Some((from, to)) = text_of(data).filter(|(from, to)| data.len() - (to - from) <= LONGEST) else {
            return;
        };
        self.before = from;
        self.around.extend_from_slice(&data[..from]);
        self.around.extend_from_slice(&data[to..]);
    }

    /// Whether an event is like the one remembered, and has text.
    pub(super) fn is(&self, data: &[u8]) -> bool {
        if self.around.is_empty() || data.len() <= self.around.len() {
            return false;
        }
        let (head, tail) = self.around.split_at(self.before);
        let Some(text) = data.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail)) else {
            return false;
        };
        text.iter().all(|byte| *byte >= 0x20 && *byte != b'"' && *byte != b'\\')
            && std::str::from_utf8(text).is_ok()
    }
}

/// Where the text of an event lies. A quote inside of a JSON string is escaped, so what is found is always a value.
fn text_of(data: &[u8]) -> Option<(usize, usize)> {
    let from = [&b"\"content\":\""[..], b"\"text\":\""]
        .into_iter()
        .find_map(|key| Some(memmem::find(data, key)? + key.len()))?;
    let end = memchr::memchr2(b'"', b'\\', data.get(from..)?)?;
    // With an escape in it, it is not worth it.
    (data[from + end] == b'"').then_some((from, from + end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(content: &str, finish: &str) -> Vec<u8> {
        let rest = format!("\"finish_reason\":{finish}}}],\"usage\":null}}");
        format!("{{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},{rest}").into_bytes()
    }

    #[test]
    fn only_the_text_may_differ() {
        let mut alike = Alike::default();
        assert!(!alike.is(&chunk("a", "null")), "nothing is remembered yet");
        alike.remember(&chunk("Hello", "null"));
        for text in ["a", "Hello", "a longer text, {with} [marks]: 1", "grüß Gott 🙂"] {
            assert!(alike.is(&chunk(text, "null")), "{text}");
        }
        for text in ["", "a\\n", "a\",\"b\":\"c", "a\nb"] {
            assert!(!alike.is(&chunk(text, "null")), "{text}");
        }
        assert!(!alike.is(&chunk("a", "\"stop\"")));
        let mut broken = chunk("?", "null");
        let at = broken.iter().position(|byte| *byte == b'?').unwrap();
        broken[at] = 0xff;
        assert!(!alike.is(&broken));
    }

    #[test]
    fn what_has_no_plain_text_is_not_remembered() {
        for data in
            [chunk("a\\n", "null"), b"{}".to_vec(), [chunk("a", "null"), vec![b' '; LONGEST]].concat()]
        {
            let mut alike = Alike::default();
            alike.remember(&chunk("Hello", "null"));
            alike.remember(&data);
            assert!(!alike.is(&chunk("Hello", "null")));
        }
    }
}
