//! Reads a chat chunk that holds nothing out of the ordinary, in a sixth of the time that the full reader takes.
//!
//! Exact, not a guess: what is not in every detail as expected here (an unknown key, an escape, a letter beyond ASCII, a
//! number with a fraction, a key given twice, JSON that is none) is left to the full reader.

use super::Shape;
use super::parts::{Choice, Delta, DeltaObject};
use crate::commit::tolerant::{Filled, List, Number, Tolerant, Word};
use crate::commit::usage::Counts;

/// The chunk's shape. `None`: ask the full reader.
pub(super) fn read(data: &[u8]) -> Option<Shape<'_>> {
    let mut text = Text { data, at: 0 };
    let mut shape = Shape::default();
    let mut once = Once::default();
    text.object(|text, key| match key {
        b"id" | b"model" | b"system_fingerprint" | b"service_tier" | b"created" => text.any_scalar(),
        b"object" => {
            once.first(0)?;
            shape.object = Word(text.string()?.into());
            Some(())
        }
        b"choices" => {
            once.first(1)?;
            shape.choices = List { present: true, items: choices(text)? };
            Some(())
        }
        b"usage" => {
            once.first(2)?;
            shape.usage = Tolerant(if text.null() { None } else { Some(counts(text)?) });
            Some(())
        }
        _ => None,
    })?;
    text.blank();
    (text.at == data.len()).then_some(shape)
}

fn choices<'a>(text: &mut Text<'a>) -> Option<Vec<Choice<'a>>> {
    text.open(b'[')?;
    if text.close(b']') {
        return Some(Vec::new());
    }
    let choice = choice(text)?;
    // More than one is out of the ordinary.
    text.close(b']').then(|| vec![choice])
}

fn choice<'a>(text: &mut Text<'a>) -> Option<Choice<'a>> {
    let mut choice = Choice::default();
    let mut once = Once::default();
    text.object(|text, key| {
        match key {
            b"index" => {
                once.first(0)?;
                choice.index = Number(Some(text.number()?));
            }
            b"delta" => {
                once.first(1)?;
                choice.delta = Delta { text: None, object: Some(delta(text)?) };
            }
            b"finish_reason" => {
                once.first(2)?;
                if !text.null() {
                    choice.finish_reason = Word(text.string()?.into());
                }
            }
            b"logprobs" if text.null() => {}
            _ => return None,
        }
        Some(())
    })?;
    Some(choice)
}

fn delta<'a>(text: &mut Text<'a>) -> Option<DeltaObject<'a>> {
    let mut delta = DeltaObject::default();
    let mut once = Once::default();
    text.object(|text, key| {
        match key {
            b"role" => text.any_scalar()?,
            b"content" => {
                once.first(0)?;
                delta.content = Filled(!text.null() && !text.ascii()?.is_empty());
            }
            b"refusal" | b"reasoning_content" | b"tool_calls" | b"function_call" => {
                once.first(key.len())?;
                text.null().then_some(())?;
            }
            _ => return None,
        }
        Some(())
    })?;
    Some(delta)
}

fn counts(text: &mut Text<'_>) -> Option<Counts> {
    let (mut prompt, mut completion) = (None, None);
    let mut once = Once::default();
    text.object(|text, key| {
        let number = text.number()?;
        match key {
            b"prompt_tokens" => {
                once.first(0)?;
                prompt = Some(number);
            }
            b"completion_tokens" => {
                once.first(1)?;
                completion = Some(number);
            }
            b"total_tokens" => {}
            _ => return None,
        }
        Some(())
    })?;
    Some(Counts::plain(prompt, completion))
}

/// Keys seen: the full reader takes an object that gives one twice for malformed.
#[derive(Default)]
struct Once(u32);

impl Once {
    fn first(&mut self, key: usize) -> Option<()> {
        let bit = 1 << key;
        let first = self.0 & bit == 0;
        self.0 |= bit;
        first.then_some(())
    }
}

/// JSON, strictly.
struct Text<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    fn blank(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.data.get(self.at) {
            self.at += 1;
        }
    }

    /// One of the marks of the grammar, if it is next.
    fn mark(&mut self, mark: u8) -> bool {
        self.blank();
        let here = self.data.get(self.at) == Some(&mark);
        self.at += usize::from(here);
        here
    }

    fn open(&mut self, mark: u8) -> Option<()> {
        self.mark(mark).then_some(())
    }

    fn close(&mut self, mark: u8) -> bool {
        self.mark(mark)
    }

    /// Every member: `value` reads what follows the key.
    fn object(&mut self, mut value: impl FnMut(&mut Self, &[u8]) -> Option<()>) -> Option<()> {
        self.open(b'{')?;
        if self.close(b'}') {
            return Some(());
        }
        loop {
            let key = self.ascii()?;
            self.open(b':')?;
            value(self, key)?;
            if !self.mark(b',') {
                return self.open(b'}');
            }
        }
    }

    /// A string of nothing but plain ASCII.
    fn string(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.ascii()?).ok()
    }

    /// Its bytes.
    fn ascii(&mut self) -> Option<&'a [u8]> {
        self.open(b'"')?;
        let rest = &self.data[self.at..];
        let end = memchr::memchr2(b'"', b'\\', rest)?;
        let text = &rest[..end];
        // Without an early end, so that many are looked at together.
        let plain = text.iter().fold(true, |plain, byte| plain & matches!(byte, 0x20..=0x7e));
        if rest[end] != b'"' || !plain {
            return None;
        }
        self.at += end + 1;
        Some(text)
    }

    fn null(&mut self) -> bool {
        self.blank();
        let here = self.data[self.at..].starts_with(b"null");
        self.at += if here { 4 } else { 0 };
        here
    }

    /// A whole number, which something of the grammar follows.
    fn number(&mut self) -> Option<u64> {
        self.blank();
        let rest = &self.data[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let plain = (1..=18).contains(&digits) && (digits == 1 || rest[0] != b'0');
        if !plain || !matches!(rest.get(digits), Some(b',' | b'}' | b' ' | b'\n' | b'\r' | b'\t')) {
            return None;
        }
        self.at += digits;
        Some(rest[..digits].iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0')))
    }

    /// A string, a number or null, whichever does not matter.
    fn any_scalar(&mut self) -> Option<()> {
        self.blank();
        match self.data.get(self.at)? {
            b'"' => self.ascii().map(drop),
            b'n' => self.null().then_some(()),
            _ => self.number().map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads it, if it does, as the full reader would.
    fn agrees(data: &[u8]) -> bool {
        let Some(shape) = read(data) else { return false };
        let full: Option<Shape<'_>> = serde_json::from_slice(data).ok();
        assert_eq!(format!("{:?}", Some(shape)), format!("{full:?}"), "{}", String::from_utf8_lossy(data));
        true
    }

    const CHUNK: &str = r#"{"id":"c-1","object":"chat.completion.chunk","created":1764400000,"model":"m","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi, {you}: [1]","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}"#;

    #[test]
    fn ordinary_chunks_are_read_here() {
        assert!(agrees(CHUNK.as_bytes()));
        for (from, to) in [
            ("Hi, {you}: [1]", ""),
            (":null,\"logprobs\"", " : null , \"logprobs\" "),
            ("\"finish_reason\":null", "\"finish_reason\":\"stop\""),
            (r#"{"role":"assistant","content":"Hi, {you}: [1]","refusal":null}"#, "{}"),
            (":0,\"delta\"", ":17,\"delta\""),
            ("\"usage\":null", r#""usage":{"prompt_tokens":24,"completion_tokens":0,"total_tokens":24}"#),
        ] {
            assert!(CHUNK.contains(from) || to.contains("logprobs"), "{from}");
            assert!(agrees(CHUNK.replace(from, to).as_bytes()), "{to}");
        }
        assert!(agrees(br#" {"choices":[],"usage":{"prompt_tokens":3}} "#));
        assert!(agrees(b"{}"));
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_not() {
        for (from, to) in [
            ("\"created\"", "\"error\""),
            ("1764400000", "1.5"),
            ("1764400000", "01"),
            ("Hi", "H\\u00e9"),
            ("Hi", "h\u{e9}"),
            ("Hi", "H\ni"),
            ("\"refusal\":null", "\"refusal\":\"no\""),
            ("\"refusal\":null", "\"content\":null"),
            ("\"usage\":null", "\"usage\":null,\"usage\":null"),
            ("\"usage\":null", "\"usage\":{\"prompt_tokens\":-1}"),
            ("\"usage\":null", "\"usage\":{\"prompt_tokens\":1,\"prompt_tokens_details\":{}}"),
            ("\"usage\":null", "\"usage\":null,"),
            ("\"usage\":null}", "\"usage\":null"),
            ("\"usage\":null}", "\"usage\":nullx}"),
            ("\"usage\":null}", "\"usage\":null}}"),
        ] {
            assert!(CHUNK.contains(from), "{from}");
            assert!(!agrees(CHUNK.replacen(from, to, 1).as_bytes()), "{to}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]
        #[test]
        fn it_never_disagrees_with_the_full_reader(
            at in any::<proptest::sample::Index>(),
            length in 0_usize..12,
            put in "[\\]\\[{}:,\" \\\\nul0-9a-e\u{e9}\n.-]{0,4}",
        ) {
            let from = at.index(CHUNK.len());
            let to = (from + length).min(CHUNK.len());
            agrees(&[&CHUNK.as_bytes()[..from], put.as_bytes(), &CHUNK.as_bytes()[to..]].concat());
        }
    }
}
