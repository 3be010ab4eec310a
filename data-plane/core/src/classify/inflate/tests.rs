use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::HeaderValue;

use super::*;

fn head(encoding: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("content-encoding", HeaderValue::from_static(encoding));
    headers
}

#[test]
fn every_form_of_gzip_and_deflate() {
    let text = b"{\"error\":{\"code\":\"invalid_api_key\"}}";
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text).unwrap();
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    zlib.write_all(text).unwrap();
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
    raw.write_all(text).unwrap();
    let gzip = gzip.finish().unwrap();
    assert_eq!(inflate(&head("gzip"), &gzip, 1000).0.as_ref(), text);
    // Nobody said so, but it is.
    assert_eq!(inflate(&HeaderMap::new(), &gzip, 1000).0.as_ref(), text);
    assert_eq!(inflate(&head("deflate"), &zlib.finish().unwrap(), 1000).0.as_ref(), text);
    assert_eq!(inflate(&head("deflate"), &raw.finish().unwrap(), 1000).0.as_ref(), text);
    // Said so, but it is not.
    assert_eq!(inflate(&head("gzip"), text, 1000).0.as_ref(), text);
    assert_eq!(inflate(&head("deflate"), text, 1000).0.as_ref(), text);
}

#[test]
fn a_bomb_stops_at_the_limit_and_a_torso_is_kept() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&vec![b'a'; 8 << 20]).unwrap();
    let bomb = gzip.finish().unwrap();
    let (out, cut) = inflate(&head("gzip"), &bomb, 16 * 1024);
    assert_eq!((out.len(), cut), (16 * 1024, true));

    let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
    gzip.write_all(b"{\"error\":{\"code\":\"invalid_api_key\"}}").unwrap();
    let whole = gzip.finish().unwrap();
    let (out, cut) = inflate(&head("gzip"), &whole[..whole.len() - 12], 1000);
    assert!(cut && out.starts_with(b"{\"error\""), "{out:?}");
}
