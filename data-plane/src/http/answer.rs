//! What goes to the caller: bytes of ours, or an upstream's committed body, passed on as it comes.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use spareline_upstream::attempt::BodyError;

use super::{through::Through, watched::Watched};

/// The attempts, in order.
pub(crate) const ATTEMPTS: HeaderName = HeaderName::from_static("x-spareline-attempts");
/// The channel that answered.
pub(crate) const CHANNEL: HeaderName = HeaderName::from_static("x-spareline-channel");

/// A body for hyper.
#[derive(Debug)]
pub enum FrontBody {
    /// All at once.
    Full(Option<Bytes>),
    /// As it comes.
    Upstream(Box<spareline_upstream::Body>),
    /// A stream, beside hyper.
    Through(Box<Through<spareline_upstream::Body>>),
    /// As it comes, over HTTP/2.
    Watched(Watched<spareline_upstream::Body>),
}

impl From<Bytes> for FrontBody {
    fn from(bytes: Bytes) -> Self {
        Self::Full((!bytes.is_empty()).then_some(bytes))
    }
}

impl Body for FrontBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Upstream(body) => Pin::new(&mut **body).poll_frame(cx),
            Self::Through(body) => Pin::new(&mut **body).poll_frame(cx),
            Self::Watched(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Upstream(body) => body.is_end_stream(),
            Self::Through(body) => body.is_end_stream(),
            Self::Watched(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Upstream(body) => body.size_hint(),
            Self::Through(body) => body.size_hint(),
            Self::Watched(body) => body.size_hint(),
        }
    }
}

/// Says how it came about: the attempts, and who answered.
pub(crate) fn mark(headers: &mut HeaderMap, attempts: String, channel: Option<&str>) {
    if !attempts.is_empty()
        && let Ok(value) = HeaderValue::try_from(attempts)
    {
        headers.insert(ATTEMPTS, value);
    }
    if let Some(value) = channel.and_then(|c| HeaderValue::from_str(c).ok()) {
        headers.insert(CHANNEL, value);
    }
}
