//! Takes the chunks of a body apart (RFC 9112, 7.1). As strict as the client library: a line ends with CRLF, a size is
//! hexadecimal digits, and what else a size line says is ignored.

use bytes::{Buf as _, Bytes, BytesMut};

/// Most bytes of a size line or of all trailers.
const LONGEST: usize = 16 * 1024;

/// Where in the body the next byte lies.
#[derive(Debug)]
pub(super) enum Chunks {
    Size,
    Data(u64),
    /// The CRLF behind a chunk's data.
    DataEnd,
    /// Behind the last chunk; bytes of trailers so far.
    Trailers(usize),
    End,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
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
        loop {
            match self {
                Self::Size => {
                    let Some(line) = line(from) else { return wait(from.len() < LONGEST) };
                    let Some(size) = size(&from[..line - 2]) else { return Next::Bad };
                    from.advance(line);
                    *self = if size == 0 { Self::Trailers(0) } else { Self::Data(size) };
                }
                Self::Data(left) => {
                    if from.is_empty() {
                        return Next::More;
                    }
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(from.len());
                    *left -= here as u64;
                    if *left == 0 {
                        *self = Self::DataEnd;
                    }
                    return Next::Data(from.split_to(here).freeze());
                }
                Self::DataEnd => {
                    if from.len() < 2 {
                        return wait(from.is_empty() || from[0] == b'\r');
                    }
                    if !from.starts_with(b"\r\n") {
                        return Next::Bad;
                    }
                    from.advance(2);
                    *self = Self::Size;
                }
                Self::Trailers(seen) => {
                    let Some(line) = line(from) else { return wait(*seen + from.len() < LONGEST) };
                    from.advance(line);
                    *seen += line;
                    if line == 2 {
                        *self = Self::End;
                    } else if *seen >= LONGEST {
                        return Next::Bad;
                    }
                }
                Self::End => return Next::End,
            }
        }
    }

    /// Whether the end is all that has come; then it is taken from `from`. Trailers are left for [`Chunks::next`].
    pub(super) fn ends_here(&mut self, from: &mut BytesMut) -> bool {
        let end: &[u8] = match self {
            Self::Size => b"0\r\n\r\n",
            Self::DataEnd => b"\r\n0\r\n\r\n",
            _ => return matches!(self, Self::End),
        };
        let ends = *from == end;
        if ends {
            from.clear();
            *self = Self::End;
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

/// The size that a line names.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let rest = line[digits..].trim_ascii_start();
    let plain = !rest.contains(&b'\n') && !rest.contains(&b'\r');
    if !(1..=16).contains(&digits) || !plain || !(rest.is_empty() || rest[0] == b';') {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All data, and what is left behind the end.
    fn read(text: &[u8], cut: usize) -> Result<(Vec<u8>, Vec<u8>), Next> {
        let (mut chunks, mut from, mut data) = (Chunks::Size, BytesMut::new(), Vec::new());
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
            b"5\r\nhello\r\n00A ;x=\"1\"\r\n, big\r\nwor\r\n2\r\nld\r\n0\r\nx-trailer: 1\r\n\r\nHTTP/1.1 ";
        for cut in 0..=text.len() {
            let want = (b"hello, big\r\nworld".to_vec(), b"HTTP/1.1 ".to_vec());
            assert_eq!(read(text, cut), Ok(want), "cut at {cut}");
        }
        for end in 0..text.len() - 9 {
            assert_eq!(read(&text[..end], end), Err(Next::More), "ended at {end}");
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
            let (mut chunks, mut from) = (Chunks::Size, BytesMut::from(text));
            if text.starts_with(|size| size != '0') {
                assert_eq!(chunks.next(&mut from), Next::Data(Bytes::from("hi")));
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
        let trailers = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(LONGEST), b"\r\n".to_vec()].concat();
        assert_eq!(read(&trailers, 1), Err(Next::Bad));
    }
}
