//! Undoes gzip, zlib and raw deflate, within a bound. br and zstd are decoded before they get here.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header};

/// `body` decoded as its head says (or, for gzip, as its first bytes say), at most `limit` bytes of it, and whether
/// something was cut off. What cannot be decoded stays as far as it came.
pub(super) fn inflate<'a>(headers: &HeaderMap, body: &'a [u8], limit: usize) -> (Cow<'a, [u8]>, bool) {
    let encoding =
        headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if body.starts_with(&[0x1f, 0x8b]) {
        return read(MultiGzDecoder::new(body), limit);
    }
    if encoding.trim().eq_ignore_ascii_case("deflate") && !body.starts_with(b"{") {
        let (out, cut) = read(ZlibDecoder::new(body), limit);
        return if out.is_empty() { read(DeflateDecoder::new(body), limit) } else { (out, cut) };
    }
    match body.get(..limit) {
        Some(start) if body.len() > limit => (Cow::Borrowed(start), true),
        _ => (Cow::Borrowed(body), false),
    }
}

fn read<'a>(decoder: impl Read, limit: usize) -> (Cow<'a, [u8]>, bool) {
    let mut out = Vec::with_capacity(limit.min(4096));
    // An error leaves what was decoded before it.
    let failed = decoder.take(limit as u64 + 1).read_to_end(&mut out).is_err();
    let cut = failed || out.len() > limit;
    out.truncate(limit);
    (Cow::Owned(out), cut)
}

#[cfg(test)]
mod tests;
