//! The two heads of an exchange, as text: a request's is written, an answer's is read (RFC 9112). As strict as the client
//! library: what a line or a framing leaves in doubt is no HTTP.
//!
//! A header's value is a slice of what was read, and keeps that buffer for as long as it lives.

#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

use bytes::{Buf as _, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version, request};

use super::extent::Extent;

/// Most header lines of an answer.
const MAX_HEADERS: usize = 100;
/// Most bytes until an answer's head has come, with informational ones before it.
pub(super) const LONGEST: usize = 8 * 1024 + 100 * 4 * 1024;

/// What came is not HTTP, or not as it must be here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotHttp;

/// An answer's.
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    /// How much of a body follows.
    pub(super) extent: Extent,
    /// The connection may be used again.
    pub(super) keep: bool,
}

impl<E: std::error::Error> From<E> for NotHttp {
    fn from(_: E) -> Self {
        Self
    }
}

/// Appends a request's head; `length`: of its body. Framing is decided here, whatever the headers say.
pub(super) fn encode(request: &request::Parts, length: usize, into: &mut Vec<u8>) {
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    for part in [request.method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        into.extend_from_slice(part.as_bytes());
    }
    for (name, value) in &request.headers {
        if *name != header::CONTENT_LENGTH && *name != header::TRANSFER_ENCODING {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                into.extend_from_slice(part);
            }
        }
    }
    if length > 0 || matches!(request.method, Method::POST | Method::PUT | Method::PATCH) {
        into.extend_from_slice(b"content-length: ");
        into.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        into.extend_from_slice(b"\r\n");
    }
    into.extend_from_slice(b"\r\n");
}

/// Takes the head of the answer to a request of method `asked` from the front of `came`, and all informational ones before
/// it. `None`: more is needed.
pub(super) fn take(came: &mut BytesMut, asked: &Method) -> Result<Option<Head>, NotHttp> {
    loop {
        let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut answer = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsed = config.parse_response_with_uninit_headers(&mut answer, came, &mut room)?;
        let httparse::Status::Complete(length) = parsed else { return Ok(None) };
        if length > LONGEST {
            return Err(NotHttp);
        }
        let status = StatusCode::from_u16(answer.code.ok_or(NotHttp)?)?;
        let version = if answer.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
        if status.is_informational() {
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(NotHttp);
            }
            came.advance(length);
            continue;
        }
        // Where it lies, until the buffer can be shared.
        let place = |part: &[u8]| {
            let start = part.as_ptr() as usize - came.as_ptr() as usize;
            start..start + part.len()
        };
        let fields = answer.headers.iter().map(|field| (place(field.name.as_bytes()), place(field.value)));
        let fields: Vec<_> = fields.collect();
        let text = came.split_to(length).freeze();
        let mut headers = HeaderMap::with_capacity(fields.len());
        let mut said = Said::default();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(&text[name])?;
            let value = HeaderValue::from_maybe_shared(text.slice(value))?;
            said.note(&name, &value);
            headers.append(name, value);
        }
        let extent = said.extent(asked, status, version)?;
        let keep = said.keeps(version);
        return Ok(Some(Head { status, version, headers, extent, keep }));
    }
}

/// What an answer's headers say of the connection and of the body's extent.
#[derive(Default)]
struct Said {
    close: bool,
    keep_alive: bool,
    /// Whether chunks are the outermost transfer coding.
    chunked: Option<bool>,
    /// The inner `None`: it is no number, or not the same everywhere.
    length: Option<Option<u64>>,
}

impl Said {
    fn note(&mut self, name: &HeaderName, value: &HeaderValue) {
        match *name {
            header::CONNECTION => {
                for token in tokens(value) {
                    self.close |= token.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            header::TRANSFER_ENCODING => {
                let last = tokens(value).next_back();
                self.chunked = Some(last.is_some_and(|last| last.eq_ignore_ascii_case(b"chunked")));
            }
            header::CONTENT_LENGTH => {
                for token in tokens(value) {
                    let length = number(token);
                    self.length = Some(length.filter(|_| self.length.is_none_or(|known| known == length)));
                }
            }
            _ => {}
        }
    }

    fn extent(&self, asked: &Method, status: StatusCode, version: Version) -> Result<Extent, NotHttp> {
        let bare = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if bare || asked == Method::HEAD {
            return Ok(Extent::Length(0));
        }
        match (self.chunked, self.length) {
            (Some(_), _) if version == Version::HTTP_10 => Err(NotHttp),
            (Some(true), _) => Ok(Extent::chunks()),
            (None, Some(length)) => length.map(Extent::Length).ok_or(NotHttp),
            (Some(false), _) | (None, None) => Ok(Extent::UntilClose),
        }
    }

    fn keeps(&self, version: Version) -> bool {
        // Two framings at once: whoever stands between may have believed the other one.
        let doubtful = self.chunked.is_some() && self.length.is_some();
        !self.close && !doubtful && (self.keep_alive || version == Version::HTTP_11)
    }
}

fn tokens(value: &HeaderValue) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Digits alone, and as large as the client library can count.
fn number(digits: &[u8]) -> Option<u64> {
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|length| *length <= u64::MAX - 2)
}
