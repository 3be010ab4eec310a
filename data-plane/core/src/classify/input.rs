//! What the classifier is told about an attempt.

use http::HeaderMap;

use crate::words::{Endpoint, Provider};

/// One attempt, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The dialect spoken.
    pub provider: Provider,
    /// Whose rules apply; `None`: the generic ones, and all vendors' where they cannot be mistaken.
    pub vendor: Option<&'a str>,
    /// What was asked for; `None` for a path that is not an endpoint (files, batches, unknown ones).
    pub endpoint: Option<Endpoint>,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// What came back.
    pub evidence: Evidence<'a>,
}

/// What came back.
#[derive(Clone, Copy, Debug)]
pub enum Evidence<'a> {
    /// A response: to a plain request, or to one for a stream that was not answered with 2xx `text/event-stream`.
    Response {
        /// The HTTP status.
        status: u16,
        /// As received; `content-encoding` says whether `body` is still compressed.
        headers: &'a HeaderMap,
        /// The body or its beginning. gzip and deflate are inflated here, within a bound.
        body: &'a [u8],
    },
    /// One event of a 2xx stream.
    Event {
        /// The HTTP status of the head.
        status: u16,
        /// Of the head.
        headers: &'a HeaderMap,
        /// The event's name, where it has one.
        event: Option<&'a str>,
        /// Its data, lines joined by LF.
        data: &'a [u8],
    },
    /// A 2xx stream that did not come to content by its own fault.
    Stream(StreamFault),
    /// No response, or one that broke before its end.
    Transport(Transport),
    /// The caller went away.
    CallerLeft,
    /// Our own fault.
    Internal,
}

/// What was wrong with a stream, other than an error event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamFault {
    /// It ended, in order, without content and without a reason for that.
    Empty,
    /// It was cut before its terminal event.
    Cut,
    /// What came is not an event stream.
    NotAStream,
}

/// Why there is no (whole) response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// The name does not resolve.
    Dns,
    /// The connection was refused, or the network is unreachable.
    Refused,
    /// TLS failed.
    Tls,
    /// Closed or reset.
    Reset {
        /// Whether the request had been sent, so that the upstream may have acted on it.
        sent: bool,
    },
    /// What came is not HTTP.
    NotHttp,
    /// One of our limits fired.
    Timeout(Limit),
}

/// A time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// DNS, TCP and TLS.
    Connect,
    /// Streams: to the first content.
    FirstContent,
    /// To the whole body.
    Response,
    /// Streams after the commit: between bytes.
    Idle,
    /// A caller that takes nothing.
    Write,
    /// The whole request.
    Deadline,
}

// === impl Limit ===

impl Limit {
    /// As in policies, errors and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect_timeout",
            Self::FirstContent => "first_content_timeout",
            Self::Response => "response_timeout",
            Self::Idle => "idle_timeout",
            Self::Write => "write_timeout",
            Self::Deadline => "deadline",
        }
    }
}

// === impl Transport ===

impl Transport {
    /// As in attempt lists and logs; a limit by its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Refused => "refused",
            Self::Tls => "tls",
            Self::Reset { .. } => "reset",
            Self::NotHttp => "parse_error",
            Self::Timeout(limit) => limit.as_str(),
        }
    }

    /// Whether the upstream may have acted on the request.
    pub const fn unknown_outcome(self) -> bool {
        match self {
            Self::Dns | Self::Refused | Self::Tls | Self::Timeout(Limit::Connect) => false,
            Self::Reset { sent } => sent,
            Self::NotHttp | Self::Timeout(_) => true,
        }
    }
}
