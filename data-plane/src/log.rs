//! Log lines: JSON or pretty, on standard error, written by a thread of their own so that no request waits for a pipe.
//!
//! Two ways in: `tracing` events for everything rare, and [`Logger::line`] for `request_finished`, which is
//! formatted by hand because it is written once per request. Lines are dropped, and counted, when the reader of our
//! standard error cannot keep up; they never queue without bound.

mod line;
mod sink;
#[cfg(test)]
mod tests;

use std::{io::IsTerminal as _, sync::Arc};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

pub use line::Line;
pub(crate) use line::{digits, millis, quote};
pub use sink::{Guard, Sink};

use crate::config::LogFormat;

/// Writes whole lines past `tracing`.
#[derive(Clone)]
pub struct Logger {
    sink: Arc<Sink>,
    json: bool,
    enabled: bool,
}

impl Logger {
    /// A logger on this sink; `enabled` is whether info lines of this crate pass the filter.
    #[must_use]
    pub fn new(sink: Arc<Sink>, json: bool, enabled: bool) -> Self {
        Self { sink, json, enabled }
    }

    /// A line at info level; `None` when nobody wants it.
    #[must_use]
    pub fn line(&self, event: &'static str, message: &str) -> Option<Line> {
        self.enabled.then(|| Line::new(self.json, event, message))
    }

    /// Lines lost so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.sink.dropped()
    }

    /// Sends it off.
    pub fn write(&self, line: Line) {
        line.finish(|line| self.sink.push(line));
    }
}

/// Sets up `tracing` for the process and returns the logger for hand-made lines; lines are flushed when the guard drops.
#[must_use]
pub fn init(format: LogFormat, level: &str) -> (Logger, Guard) {
    let json = match format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let targets = targets(level);
    let enabled = targets.would_enable("spareline_proxy", &tracing::Level::INFO);
    let (sink, guard) = Sink::start(Box::new(std::io::stderr()));
    let make = {
        let sink = sink.clone();
        move || sink::Writer::new(sink.clone())
    };
    // A second call in one process (tests) keeps the first subscriber.
    let _ = if json {
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(make);
        tracing_subscriber::registry().with(targets).with(layer).try_init()
    } else {
        let ansi = std::io::stderr().is_terminal();
        let layer = tracing_subscriber::fmt::layer().with_ansi(ansi).with_writer(make);
        tracing_subscriber::registry().with(targets).with(layer).try_init()
    };
    (Logger::new(sink, json, enabled), guard)
}

/// A level without a target speaks about our own crates; others say no more than info, since what libraries print of
/// connections and frames is neither for operators nor known to be free of secrets.
fn targets(filter: &str) -> Targets {
    let given: Targets = filter.parse().unwrap_or_default();
    let default = given.default_level().unwrap_or(LevelFilter::INFO);
    let ours =
        ["spareline_proxy", "spareline_core", "spareline_upstream"].map(|name| (name.to_owned(), default));
    let named = given.iter().map(|(name, level)| (name.to_owned(), level));
    Targets::new()
        .with_default(default.min(LevelFilter::INFO))
        .with_targets(ours.into_iter().chain(named).collect::<Vec<_>>())
}
