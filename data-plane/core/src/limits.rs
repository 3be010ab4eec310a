//! The time limits on one attempt, and how they resolve: model entry > channel > group > global > preset > built-in.

use std::time::Duration;

/// Limits where each may be left to the next wider level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialLimits {
    /// DNS, TCP and TLS.
    pub connect_timeout: Option<Duration>,
    /// Streams: from the request being sent to the first content, the head included.
    pub first_content_timeout: Option<Duration>,
    /// Plain requests: to the whole body; streams where the former is not armed: to the first content.
    pub response_timeout: Option<Duration>,
    /// Streams after the commit: the longest silence.
    pub idle_timeout: Option<Duration>,
    /// A caller that takes nothing.
    pub write_timeout: Option<Duration>,
}

/// Limits in force for one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// DNS, TCP and TLS.
    pub connect_timeout: Duration,
    /// Streams: from the request being sent to the first content, the head included.
    pub first_content_timeout: Duration,
    /// Plain requests: to the whole body; streams where the former is not armed: to the first content.
    pub response_timeout: Duration,
    /// Streams after the commit: the longest silence.
    pub idle_timeout: Duration,
    /// A caller that takes nothing.
    pub write_timeout: Duration,
}

impl PartialLimits {
    /// These, and where unset those of the wider level.
    pub fn or(self, wider: Self) -> Self {
        Self {
            connect_timeout: self.connect_timeout.or(wider.connect_timeout),
            first_content_timeout: self.first_content_timeout.or(wider.first_content_timeout),
            response_timeout: self.response_timeout.or(wider.response_timeout),
            idle_timeout: self.idle_timeout.or(wider.idle_timeout),
            write_timeout: self.write_timeout.or(wider.write_timeout),
        }
    }

    /// These, and where unset those that are in force otherwise.
    pub fn over(self, wider: Limits) -> Limits {
        Limits {
            connect_timeout: self.connect_timeout.unwrap_or(wider.connect_timeout),
            first_content_timeout: self.first_content_timeout.unwrap_or(wider.first_content_timeout),
            response_timeout: self.response_timeout.unwrap_or(wider.response_timeout),
            idle_timeout: self.idle_timeout.unwrap_or(wider.idle_timeout),
            write_timeout: self.write_timeout.unwrap_or(wider.write_timeout),
        }
    }
}

impl Default for Limits {
    /// The built-in limits.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            first_content_timeout: Duration::from_secs(120),
            response_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(180),
            write_timeout: Duration::from_secs(60),
        }
    }
}
