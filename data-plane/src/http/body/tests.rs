use std::io::Write as _;

use http::HeaderValue;
use http_body_util::{Full, StreamBody};

use super::*;

const LIMITS: Limits = Limits { size: 1 << 20, silence: Duration::from_secs(5) };

async fn read(body: &[u8], encoding: Option<&'static str>, budget: &Budget) -> Result<Bytes, ApiError> {
    let mut headers = HeaderMap::new();
    if let Some(encoding) = encoding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    let received = receive(Full::new(Bytes::copy_from_slice(body)), &headers, LIMITS, budget).await?;
    assert!(received.reservation.bytes() >= received.bytes.len());
    Ok(received.bytes)
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

async fn encoded(plain: &[u8], encoding: &str) -> Vec<u8> {
    use async_compression::tokio::write::{BrotliEncoder, ZlibEncoder, ZstdEncoder};
    use tokio::io::AsyncWriteExt as _;
    macro_rules! with {
        ($encoder:ident) => {{
            let mut encoder = $encoder::new(Vec::new());
            encoder.write_all(plain).await.unwrap();
            encoder.shutdown().await.unwrap();
            encoder.into_inner()
        }};
    }
    match encoding {
        "br" => with!(BrotliEncoder),
        "deflate" => with!(ZlibEncoder),
        "zstd" => with!(ZstdEncoder),
        _ => gzip(plain),
    }
}

#[tokio::test]
async fn every_encoding_is_decoded_and_counted() {
    let budget = Budget::new(16 << 20);
    let plain = br#"{"model":"m","input":"hello hello hello"}"#;
    for encoding in ["gzip", "deflate", "br", "zstd"] {
        let body = encoded(plain, encoding).await;
        assert_eq!(read(&body, Some(encoding), &budget).await.unwrap(), plain[..], "{encoding}");
        let broken = &body[..body.len() - 3];
        assert_eq!(
            read(broken, Some(encoding), &budget).await.unwrap_err().code,
            Code::InvalidRequest,
            "{encoding}"
        );
    }
    assert_eq!(read(&gzip(&gzip(plain)), Some("gzip, gzip"), &budget).await.unwrap(), plain[..]);
    assert_eq!(read(plain, Some("identity"), &budget).await.unwrap(), plain[..]);
    assert_eq!(read(plain, Some("rot13"), &budget).await.unwrap_err().code, Code::UnsupportedMedia);
    assert_eq!(budget.used(), 0, "everything is given back");
}

#[tokio::test]
async fn a_zip_bomb_stops_at_the_limit() {
    let budget = Budget::new(64 << 20);
    let bomb = gzip(&vec![b'x'; 32 << 20]);
    assert!(bomb.len() < 100_000);
    assert_eq!(read(&bomb, Some("gzip"), &budget).await.unwrap_err().code, Code::BodyTooLarge);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn part9_too_large_and_no_room_are_told_apart() {
    let budget = Budget::new(1 << 19);
    let big = vec![b' '; (1 << 20) + 1];
    assert_eq!(read(&big, None, &budget).await.unwrap_err().code, Code::BodyTooLarge);
    assert_eq!(read(&big[..600_000], None, &budget).await.unwrap_err().code, Code::Overloaded);
    assert_eq!(read(&big[..500_000], None, &budget).await.unwrap().len(), 500_000);
}

#[tokio::test]
async fn what_is_refused_is_read_to_its_end_so_that_the_caller_reads_why() {
    for (limit, encoding, code) in
        [(1 << 10, None, Code::Overloaded), (1 << 20, Some("rot13"), Code::UnsupportedMedia)]
    {
        let budget = Budget::new(limit);
        let (tell, told) = tokio::sync::oneshot::channel();
        let mut tell = Some(tell);
        let pieces = std::iter::from_fn({
            let mut left = 100;
            move || {
                left -= 1;
                if left == 0 {
                    let _ = tell.take()?.send(());
                    return None;
                }
                Some(Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(&[b' '; 1024]))))
            }
        });
        let mut headers = HeaderMap::new();
        headers.extend(encoding.map(|e| (header::CONTENT_ENCODING, HeaderValue::from_static(e))));
        let body = StreamBody::new(futures_util::stream::iter(pieces));
        let error = receive(body, &headers, LIMITS, &budget).await.unwrap_err();
        assert_eq!((error.code, told.await), (code, Ok(())));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_is_given_up() {
    let budget = Budget::new(1 << 20);
    let chunks = futures_util::stream::unfold(0, |n| async move {
        if n == 3 {
            std::future::pending::<()>().await;
        }
        Some((Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(b"abc"))), n + 1))
    });
    let body = StreamBody::new(Box::pin(chunks));
    let error = receive(body, &HeaderMap::new(), LIMITS, &budget).await.unwrap_err();
    assert_eq!(error.code, Code::RequestTimeout);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn chunks_come_together_in_order() {
    let budget = Budget::new(1 << 20);
    let chunks =
        (0..100_u8).map(|n| Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(vec![n; 7]))));
    let body = StreamBody::new(futures_util::stream::iter(chunks));
    let received = receive(body, &HeaderMap::new(), LIMITS, &budget).await.unwrap();
    let expected: Vec<u8> = (0..100_u8).flat_map(|n| [n; 7]).collect();
    assert_eq!(received.bytes, expected);
}

#[tokio::test]
async fn a_caller_that_leaves_in_the_middle_is_told_from_one_that_sends_nonsense() {
    let budget = Budget::new(1 << 20);
    for (kind, left) in [(std::io::ErrorKind::UnexpectedEof, true), (std::io::ErrorKind::InvalidInput, false)]
    {
        let part = Ok(http_body::Frame::data(Bytes::from_static(b"{\"mod")));
        let frames = futures_util::stream::iter([part, Err(std::io::Error::from(kind))]);
        let error = receive(StreamBody::new(frames), &HeaderMap::new(), LIMITS, &budget).await.unwrap_err();
        assert_eq!((error.code, error.left), (Code::InvalidRequest, left));
    }
}
