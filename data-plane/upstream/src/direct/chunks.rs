//! Takes the chunks of a body apart (RFC 9112, 7.1). As strict as the client library: a line ends with CRLF, a size is
//! hexadecimal digits, and what else size lines say is ignored, up to a bound. Trailers are passed over unread.

use bytes::{Buf as _, Bytes, BytesMut};

/// Most bytes of a body's size lines beside the sizes, and of its trailers, together: whoever holds data holds the buffer
/// around it, so that what is not data must not be without end.
const LONGEST: usize = 16 * 1024;
/// Digits of the longest size.
const DIGITS: usize = 16;
/// Pieces shorter than this are handed out together where they came together: the handle of each would be longer than it.
const TINY: usize = 32;

/// A body in chunks, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// Bytes that were ignored.
    ignored: usize,
}

/// Where in the body the next byte lies.
#[derive(Debug, Default)]
enum At {
    #[default]
    Size,
    Data(u64),
    /// The CRLF behind a chunk's data.
    DataEnd,
    /// Behind the last chunk.
    Trailers,
    End,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Clone))]
pub(super) enum Next {
    Data(Bytes),
    /// More bytes are needed.
    More,
    End,
    /// This is no body in chunks.
    Bad,
}

impl Chunks {
    /// Takes what it can from the front of `from`. After [`Next::End`] what is left lies behind the body.
    pub(super) fn next(&mut self, from: &mut BytesMut) -> Next {
        let first = self.piece(from);
        match first {
            Next::Data(piece) if piece.len() < TINY && from.len() > 2 => self.joined(&piece, from),
            _ => first,
        }
    }

    /// The pieces behind a tiny one with it. What else comes then comes again: no state is left by it.
    fn joined(&mut self, first: &[u8], from: &mut BytesMut) -> Next {
        let mut all = BytesMut::from(first);
        while let Next::Data(piece) = self.piece(from) {
            all.extend_from_slice(&piece);
            if piece.len() >= TINY {
                break;
            }
        }
        Next::Data(all.freeze())
    }

    fn piece(&mut self, from: &mut BytesMut) -> Next {
        loop {
            match &mut self.at {
                At::Size => {
                    let Some(line) = line(from) else {
                        let good = from.first().is_none_or(u8::is_ascii_hexdigit);
                        return wait(good && self.ignored + from.len() < LONGEST);
                    };
                    let Some((size, digits)) = size(&from[..line - 2]) else { return Next::Bad };
                    from.advance(line);
                    self.ignored += line - 2 - digits.min(DIGITS);
                    if self.ignored >= LONGEST {
                        return Next::Bad;
                    }
                    self.at = if size == 0 { At::Trailers } else { At::Data(size) };
                }
                At::Data(left) => {
                    if from.is_empty() {
                        return Next::More;
                    }
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(from.len());
                    *left -= here as u64;
                    if *left == 0 {
                        self.at = At::DataEnd;
                    }
                    return Next::Data(from.split_to(here).freeze());
                }
                At::DataEnd => {
                    if from.len() < 2 {
                        return wait(from.is_empty() || from[0] == b'\r');
                    }
                    if !from.starts_with(b"\r\n") {
                        return Next::Bad;
                    }
                    from.advance(2);
                    self.at = At::Size;
                }
                At::Trailers => {
                    let Some(line) = line(from) else { return wait(self.ignored + from.len() < LONGEST) };
                    from.advance(line);
                    self.ignored += line;
                    if line == 2 {
                        self.at = At::End;
                    } else if self.ignored >= LONGEST {
                        return Next::Bad;
                    }
                }
                At::End => return Next::End,
            }
        }
    }

    /// Whether the end is all that has come; then it is taken from `from`. Trailers are left for [`Chunks::next`].
    pub(super) fn ends_here(&mut self, from: &mut BytesMut) -> bool {
        let end: &[u8] = match self.at {
            At::Size => b"0\r\n\r\n",
            At::DataEnd => b"\r\n0\r\n\r\n",
            _ => return matches!(self.at, At::End),
        };
        let ends = *from == end;
        if ends {
            from.clear();
            self.at = At::End;
        }
        ends
    }
}

fn wait(good: bool) -> Next {
    if good { Next::More } else { Next::Bad }
}

/// How long the line at the front is, with its CRLF.
fn line(from: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr(b'\n', &from[at..])? + 1;
        if at >= 2 && from[at - 2] == b'\r' {
            return Some(at);
        }
    }
}

/// The size that a line names, and how many digits that took.
fn size(line: &[u8]) -> Option<(u64, usize)> {
    let (mut size, mut digits) = (0_u64, 0);
    while let Some(digit) = line.get(digits).and_then(|byte| char::from(*byte).to_digit(16)) {
        size = size.checked_mul(16)? | u64::from(digit);
        digits += 1;
    }
    let rest = &line[digits..];
    let plain = digits > 0 && !rest.contains(&b'\n') && !rest.contains(&b'\r');
    let spaces = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    (plain && matches!(rest.get(spaces), None | Some(b';'))).then_some((size, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All data, and what is left behind the end.
    fn read(text: &[u8], cut: usize) -> Result<(Vec<u8>, Vec<u8>), Next> {
        let (mut chunks, mut from, mut data) = (Chunks::default(), BytesMut::new(), Vec::new());
        let mut parts = [&text[..cut], &text[cut..]].into_iter();
        loop {
            match chunks.next(&mut from) {
                Next::Data(bytes) => data.extend_from_slice(&bytes),
                Next::More => from.extend_from_slice(parts.next().ok_or(Next::More)?),
                Next::End => return Ok((data, [&from, parts.next().unwrap_or_default()].concat())),
                Next::Bad => return Err(Next::Bad),
            }
        }
    }

    #[test]
    fn chunks_are_taken_apart_wherever_they_are_cut() {
        let text =
            b"5\r\nhello\r\n00000000000000000A \t;x=\"1\"\r\n, big\r\nwor\r\n2\r\nld\r\n0\r\nx-trailer: 1\r\n\r\nHTTP/1.1 ";
        for cut in 0..=text.len() {
            let want = (b"hello, big\r\nworld".to_vec(), b"HTTP/1.1 ".to_vec());
            assert_eq!(read(text, cut), Ok(want), "cut at {cut}");
        }
        for end in 0..text.len() - 9 {
            assert_eq!(read(&text[..end], end), Err(Next::More), "ended at {end}");
        }
    }

    #[test]
    fn tiny_chunks_that_came_together_are_one_piece() {
        let tiny = b"1\r\nx\r\n".repeat(100);
        let large = [b"28\r\n".to_vec(), b"y".repeat(40), b"\r\n".to_vec()].concat();
        for (end, next) in [("0\r\n\r\n!", Next::End), ("5\r", Next::More), ("?", Next::Bad)] {
            let text = [&tiny[..], &large, &large, &tiny, end.as_bytes()].concat();
            let (mut chunks, mut from) = (Chunks::default(), BytesMut::from(&text[..]));
            for want in [[b"x".repeat(100), b"y".repeat(40)].concat(), b"y".repeat(40), b"x".repeat(100)] {
                assert_eq!(chunks.next(&mut from), Next::Data(Bytes::from(want)));
            }
            assert_eq!((chunks.next(&mut from), chunks.next(&mut from)), (next.clone(), next));
        }
    }

    #[test]
    fn an_end_is_known_where_it_has_come_and_nothing_else() {
        for (text, ends) in [
            ("2\r\nhi\r\n0\r\n\r\n", true),
            ("0\r\n\r\n", true),
            ("2\r\nhi\r\n0\r\n", false),
            ("2\r\nhi\r\n", false),
            ("2\r\nhi\r\n0\r\n\r\n!", false),
            ("2\r\nhi\r\n0\r\nx: y\r\n\r\n", false),
            ("2\r\nhi\r\n2\r\nho\r\n0\r\n\r\n", false),
            ("3\r\nhi", false),
        ] {
            let data = "h".repeat(TINY + 1);
            let long = text
                .replace("2\r\nhi", &format!("21\r\n{data}"))
                .replace("3\r\nhi", &format!("22\r\n{data}"));
            let (mut chunks, mut from) = (Chunks::default(), BytesMut::from(&long[..]));
            if text.starts_with(|size| size != '0') {
                assert_eq!(chunks.next(&mut from), Next::Data(Bytes::from(data)));
            }
            let before = from.len();
            assert_eq!(chunks.ends_here(&mut from), ends, "{text:?}");
            assert_eq!(from.len(), if ends { 0 } else { before });
            assert_eq!(chunks.ends_here(&mut from), ends);
        }
    }

    #[test]
    fn what_is_malformed_is_told_and_not_guessed_at() {
        for text in [
            &b"x\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b"+5\r\nhello\r\n",
            b"5 5\r\nhello\r\n",
            b"5\nhello\n\r\n",
            b"11111111111111111\r\n",
            b"5\n\r\nhello\r\n",
            b"5\r\r\nhello\r\n",
            b"5\x0c\r\nhello\r\n",
            b"5;\n\r\nhello\r\n",
            b"then nothing",
            b"5\r\nhello5\r\n",
            b"5\r\nhello\n5",
            b"5\r\nhello\nx",
        ] {
            for cut in 0..text.len() {
                assert_eq!(read(text, cut), Err(Next::Bad), "{:?}", String::from_utf8_lossy(text));
            }
        }
        let long = [b"5;".to_vec(), b"x".repeat(LONGEST), b"\r\n".to_vec()].concat();
        assert_eq!(read(&long[..LONGEST], 1), Err(Next::Bad));
        let many = b"1;twelve bytes\r\nx\r\n".repeat(LONGEST / 13 + 1);
        assert_eq!(read(&many[..many.len() - 19], 1), Err(Next::More));
        assert_eq!(read(&many, 1), Err(Next::Bad));
        let trailers = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(LONGEST), b"\r\n".to_vec()].concat();
        assert_eq!(read(&trailers, 1), Err(Next::Bad));
    }
}
