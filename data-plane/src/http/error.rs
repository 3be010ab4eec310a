//! Our own errors, in the caller's dialect, and the only way text of ours gets into a body.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use std::time::Duration;

use crate::log::quote;

/// Whose error shape and stream events the caller expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI's.
    #[default]
    OpenAi,
    /// Anthropic's, on `/v1/messages`.
    Anthropic,
}

macro_rules! codes {
    ($($(#[$meta:meta])* $name:ident = $word:literal $status:literal),+ $(,)?) => {
        /// What went wrong, as callers may act on it: a closed set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$meta])* $name),+ }

        impl Code {
            /// As in bodies, logs and metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word),+ }
            }

            /// The status it goes with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status),+ }
            }
        }
    };
}

codes! {
    /// Not JSON, no model, and the like.
    InvalidRequest = "invalid_request" 400,
    /// The caller is not known.
    Unauthorized = "unauthorized" 401,
    /// A group this proxy may not serve.
    GroupNotAllowed = "group_not_allowed" 403,
    /// No channel of the group has ever had that model.
    ModelNotFound = "model_not_found" 404,
    /// The model is there, but not with that endpoint; or no such path.
    EndpointNotAvailable = "endpoint_not_available" 404,
    /// A pinned channel that does not exist for the caller.
    ChannelNotFound = "channel_not_found" 404,
    /// A method the path does not have.
    MethodNotAllowed = "method_not_allowed" 405,
    /// The request body stopped coming.
    RequestTimeout = "request_timeout" 408,
    /// The request body is over the limit.
    BodyTooLarge = "body_too_large" 413,
    /// An encoding or type of body that is not understood.
    UnsupportedMedia = "unsupported_media_type" 415,
    /// Stored objects without a channel for them, WebSockets.
    EndpointNotSupported = "endpoint_not_supported" 501,
    /// Nothing usable is left.
    AllChannelsFailed = "all_channels_failed" 502,
    /// Enough was tried.
    MaxAttemptsExceeded = "max_attempts_exceeded" 502,
    /// Everything usable asks to wait.
    AllThrottled = "all_throttled" 503,
    /// This proxy is full.
    Overloaded = "overloaded" 503,
    /// No registry is in force yet.
    RegistryNotReady = "registry_not_ready" 503,
    /// One of our limits fired in the last attempt.
    UpstreamTimeout = "upstream_timeout" 504,
    /// A stream broke after the commit.
    StreamInterrupted = "stream_interrupted" 502,
    /// A fault of this proxy.
    Internal = "internal" 500,
}

/// One of our errors, on its way to a caller.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// Which.
    pub code: Code,
    /// For humans.
    pub message: String,
    /// The parameter at fault.
    pub param: Option<&'static str>,
    /// How long to wait.
    pub retry_after: Option<Duration>,
    /// For 405.
    pub allow: Option<&'static str>,
    /// Whether the connection is of no more use, since the rest of the body is still to come.
    pub close: bool,
    /// The caller left in the middle of its body: nobody reads this.
    pub left: bool,
}

impl ApiError {
    /// An error with a message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            param: None,
            retry_after: None,
            allow: None,
            close: false,
            left: false,
        }
    }

    /// The parameter at fault.
    #[must_use]
    pub fn param(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    /// How long to wait.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The connection ends with this answer.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// The body in that dialect; `attempts` are the entries of `x-spareline-attempts`.
    #[must_use]
    pub fn body(&self, dialect: Dialect, attempts: &[String], request_id: &str) -> Bytes {
        error_json(
            dialect,
            self.code.status(),
            self.code.as_str(),
            &self.message,
            self.param,
            attempts,
            request_id,
        )
        .into()
    }

    /// The whole answer.
    #[must_use]
    pub fn response(&self, dialect: Dialect, attempts: &[String], request_id: &str) -> Response<Bytes> {
        let mut response = Response::new(self.body(dialect, attempts, request_id));
        *response.status_mut() =
            StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            headers
                .insert(header::RETRY_AFTER, HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)));
        }
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// One error object as text.
pub(crate) fn error_json(
    dialect: Dialect,
    status: u16,
    code: &str,
    message: &str,
    param: Option<&str>,
    attempts: &[String],
    request_id: &str,
) -> String {
    let mut out = String::with_capacity(256);
    out.push_str(match dialect {
        Dialect::OpenAi => "{\"error\":{\"message\":",
        Dialect::Anthropic => "{\"type\":\"error\",\"error\":{\"type\":",
    });
    if dialect == Dialect::Anthropic {
        quote(&mut out, anthropic_type(status));
        out.push_str(",\"message\":");
    }
    quote(&mut out, message);
    if dialect == Dialect::OpenAi {
        out.push_str(",\"type\":");
        quote(&mut out, openai_type(status));
        out.push_str(",\"param\":");
        match param {
            Some(param) => quote(&mut out, param),
            None => out.push_str("null"),
        }
    }
    out.push_str(",\"code\":");
    quote(&mut out, code);
    if !attempts.is_empty() {
        out.push_str(",\"attempts\":[");
        for (n, entry) in attempts.iter().enumerate() {
            if n > 0 {
                out.push(',');
            }
            quote(&mut out, entry);
        }
        out.push(']');
    }
    out.push('}');
    if !request_id.is_empty() {
        out.push_str(",\"request_id\":");
        quote(&mut out, request_id);
    }
    out.push('}');
    out
}

fn openai_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    }
}

fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        400..=499 => "invalid_request_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        _ => "api_error",
    }
}
