//! An upstream's body as plain bytes: as it came, or decoded where it was compressed although we asked for identity.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use bytes::Bytes;
use futures_util::Stream;
use http::header::{self, HeaderMap};
use http_body::{Body, Frame, SizeHint};
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::direct::Reply;

/// After the terminal event: how long, and how much, is still read so that the connection can be used again.
const DRAIN_TIME: Duration = Duration::from_millis(250);
const DRAIN_BYTES: usize = 64 * 1024;

/// A body as it comes from one of the clients.
#[derive(Debug)]
pub(crate) enum Incoming {
    Full(reqwest::Body),
    Direct(Reply),
}

pub(crate) enum Source {
    Raw(Incoming),
    Decoded(Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send + Sync>>),
}

/// The body broke off, or cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

struct Chunks(Incoming);

// === impl Incoming ===

impl Body for Incoming {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Full(body) => Pin::new(body).poll_frame(cx).map_err(|_| Broken),
            Self::Direct(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(body) => body.is_end_stream(),
            Self::Direct(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(body) => body.size_hint(),
            Self::Direct(body) => body.size_hint(),
        }
    }
}

// === impl Source ===

impl Source {
    /// As it came.
    pub(crate) fn raw(body: Incoming) -> Self {
        Self::Raw(body)
    }

    /// Decoded; `content-encoding` and `content-length` are taken out of the headers, since they no longer hold.
    /// `None`: an encoding that is not known.
    pub(crate) fn decoded(body: Incoming, headers: &mut HeaderMap) -> Option<Self> {
        let Some(value) = headers.get(header::CONTENT_ENCODING) else { return Some(Self::Raw(body)) };
        let value = value.to_str().unwrap_or_default().trim().to_ascii_lowercase();
        let source = match value.as_str() {
            "" | "identity" => Self::Raw(body),
            "gzip" | "x-gzip" => {
                let mut decoder = GzipDecoder::new(StreamReader::new(Chunks(body)));
                decoder.multiple_members(true);
                Self::reading(decoder)
            }
            "deflate" => Self::reading(ZlibDecoder::new(StreamReader::new(Chunks(body)))),
            "br" => Self::reading(BrotliDecoder::new(StreamReader::new(Chunks(body)))),
            "zstd" => {
                let mut decoder = ZstdDecoder::new(StreamReader::new(Chunks(body)));
                decoder.multiple_members(true);
                Self::reading(decoder)
            }
            _ => return None,
        };
        headers.remove(header::CONTENT_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        Some(source)
    }

    fn reading(reader: impl AsyncRead + Send + Sync + 'static) -> Self {
        Self::Decoded(Box::pin(ReaderStream::with_capacity(reader, 16 * 1024)))
    }

    /// The next bytes; never empty ones.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            let next = match self {
                Self::Raw(body) => match std::task::ready!(Pin::new(body).poll_frame(cx)) {
                    None => return Poll::Ready(None),
                    Some(Err(_)) => return Poll::Ready(Some(Err(Broken))),
                    Some(Ok(frame)) => frame.into_data().ok(),
                },
                Self::Decoded(stream) => match std::task::ready!(stream.as_mut().poll_next(cx)) {
                    None => return Poll::Ready(None),
                    Some(Err(_)) => return Poll::Ready(Some(Err(Broken))),
                    Some(Ok(bytes)) => Some(bytes),
                },
            };
            if let Some(bytes) = next.filter(|bytes| !bytes.is_empty()) {
                return Poll::Ready(Some(Ok(bytes)));
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, Broken>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// What is known of the bytes to come.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Raw(body) => body.size_hint(),
            Self::Decoded(_) => SizeHint::default(),
        }
    }

    /// Reads what little may follow a terminal event, so that the connection goes back to its pool; a body that does not
    /// end soon is closed.
    pub(crate) fn drain(mut self) {
        if let Self::Raw(body) = &self
            && body.is_end_stream()
        {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let rest = async move {
            let mut left = DRAIN_BYTES;
            while let Some(Ok(bytes)) = self.next().await {
                left = left.saturating_sub(bytes.len());
                if left == 0 {
                    break;
                }
            }
        };
        runtime.spawn(async move {
            let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
        });
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Raw(_) => "Raw",
            Self::Decoded(_) => "Decoded",
        })
    }
}

impl Stream for Chunks {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Some(frame) = std::task::ready!(Pin::new(&mut self.0).poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            match frame {
                Ok(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Err(_) => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
            }
        }
    }
}
