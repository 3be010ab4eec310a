//! Reads a request's body whole, so that every attempt can send it again: bounded while reading, decoded, accounted.
//!
//! Invariants: no more than `limit` decoded bytes are ever held; every byte held is reserved in the process's budget
//! first; an encoding that is not understood is refused, never passed on.

mod gather;

use std::time::Duration;

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use spareline_upstream::{Budget, Reservation};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::error::{ApiError, Code};
use gather::Gather;

/// What bounds a request's body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// In bytes, decoded.
    pub size: usize,
    /// The longest silence.
    pub silence: Duration,
}

/// A body that is wholly here.
#[derive(Debug)]
pub(crate) struct Received {
    /// Decoded.
    pub bytes: Bytes,
    /// Holds its place in the budget.
    pub reservation: Reservation,
}

/// Reads and decodes.
pub(crate) async fn receive<B>(
    body: B,
    headers: &HeaderMap,
    limits: Limits,
    budget: &Budget,
) -> Result<Received, ApiError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let wait = !headers.contains_key(header::EXPECT);
    let encodings = match encodings(headers) {
        Ok(encodings) => encodings,
        Err(error) => {
            if wait {
                Box::pin(discard(body, limits)).await;
            }
            return Err(error);
        }
    };
    let declared = body.size_hint().exact().or_else(|| Some(body.size_hint().lower()));
    if declared.is_some_and(|n| n > limits.size as u64) {
        if wait {
            Box::pin(discard(body, limits)).await;
        }
        return Err(too_large(limits.size));
    }
    let mut received = collect(body, limits, budget).await?;
    for encoding in encodings.iter().rev() {
        // Decoders are big, rare, and would be part of every request's future.
        received = Box::pin(decode(received, *encoding, limits.size, budget)).await?;
    }
    Ok(received)
}

async fn collect<B>(mut body: B, limits: Limits, budget: &Budget) -> Result<Received, ApiError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + 'static,
{
    let mut reservation = budget.empty();
    let mut gather = Gather::default();
    while !body.is_end_stream() {
        let frame = match tokio::time::timeout(limits.silence, body.frame()).await {
            Err(_) => {
                let text = format!("nothing of the body came for {} s", limits.silence.as_secs());
                return Err(ApiError::new(Code::RequestTimeout, text).closing());
            }
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                let text = format!("the body could not be read: {error}");
                let error = ApiError { left: cut_off(&error), ..ApiError::new(Code::InvalidRequest, text) };
                return Err(error.closing());
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        if gather.len() + data.len() > limits.size {
            drop((gather, reservation));
            Box::pin(discard(body, limits)).await;
            return Err(too_large(limits.size));
        }
        if !reservation.grow(data.len()) {
            drop((gather, reservation));
            Box::pin(discard(body, limits)).await;
            return Err(overloaded().closing());
        }
        gather.push(data, usize::try_from(body.size_hint().lower()).unwrap_or(0));
    }
    let bytes = gather.whole();
    Ok(Received { bytes, reservation })
}

/// Whether the connection ended in the middle, rather than holding what is no body.
fn cut_off(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof))
}

/// Lets a caller that is still sending finish within reason, so that it reads our answer instead of a reset. Answers
/// whether it has finished.
pub(crate) async fn discard<B>(mut body: B, limits: Limits) -> bool
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut left = limits.size.saturating_add(8 << 20);
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
        body.is_end_stream()
    };
    tokio::time::timeout(limits.silence.min(Duration::from_secs(5)), read).await.unwrap_or(false)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

fn encodings(headers: &HeaderMap) -> Result<Vec<Encoding>, ApiError> {
    let mut found = Vec::new();
    for value in headers.get_all(header::CONTENT_ENCODING) {
        for word in value.to_str().unwrap_or("?").split(',').map(str::trim).filter(|w| !w.is_empty()) {
            found.push(match word.to_ascii_lowercase().as_str() {
                "identity" => continue,
                "gzip" | "x-gzip" => Encoding::Gzip,
                "deflate" => Encoding::Deflate,
                "br" => Encoding::Brotli,
                "zstd" => Encoding::Zstd,
                _ => {
                    let text = "content-encoding must be one of gzip, deflate, br, zstd, identity";
                    return Err(ApiError::new(Code::UnsupportedMedia, text).closing());
                }
            });
        }
    }
    if found.len() > 2 {
        let text = "the body is encoded more than twice";
        return Err(ApiError::new(Code::UnsupportedMedia, text).closing());
    }
    Ok(found)
}

async fn decode(
    from: Received,
    encoding: Encoding,
    limit: usize,
    budget: &Budget,
) -> Result<Received, ApiError> {
    if from.bytes.is_empty() {
        return Ok(from);
    }
    let input: &[u8] = &from.bytes;
    match encoding {
        Encoding::Gzip => {
            let mut decoder = GzipDecoder::new(input);
            decoder.multiple_members(true);
            inflate(decoder, limit, budget).await
        }
        Encoding::Deflate => match inflate(ZlibDecoder::new(input), limit, budget).await {
            // Some clients send raw deflate under that name.
            Err(error) if error.code == Code::InvalidRequest => {
                inflate(async_compression::tokio::bufread::DeflateDecoder::new(input), limit, budget).await
            }
            other => other,
        },
        Encoding::Brotli => inflate(BrotliDecoder::new(input), limit, budget).await,
        Encoding::Zstd => inflate(ZstdDecoder::new(input), limit, budget).await,
    }
}

async fn inflate(
    mut decoder: impl AsyncRead + Unpin,
    limit: usize,
    budget: &Budget,
) -> Result<Received, ApiError> {
    let mut reservation = budget.empty();
    let mut gather = Gather::default();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let n = match decoder.read(&mut chunk).await {
            Ok(0) => break,
            Ok(n) => n,
            Err(_) => {
                let text = "the body is not what its content-encoding says";
                return Err(ApiError::new(Code::InvalidRequest, text));
            }
        };
        if gather.len() + n > limit {
            return Err(too_large(limit));
        }
        if !reservation.grow(n) {
            return Err(overloaded());
        }
        gather.copy(&chunk[..n], 0);
        if gather.len() & ((1 << 20) - 1) < n {
            // A big body must not hold up the others of this thread.
            tokio::task::yield_now().await;
        }
    }
    Ok(Received { bytes: gather.whole(), reservation })
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("the body is larger than {limit} bytes")).closing()
}

/// No room for bodies.
pub(crate) fn overloaded() -> ApiError {
    ApiError::new(Code::Overloaded, "too many and too large requests at once, try again shortly")
        .retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests;
