//! Log lines: JSON by default, pretty on a terminal, to standard error.
//!
//! Every line that something may want to find has a field `event` with a stable name; the fields stand beside it at the
//! top level of the JSON object. Lines are written by a thread of their own: a reader that takes nothing stalls nobody, and
//! what does not fit its bounded queue is dropped and counted by the writer.

use std::io::IsTerminal as _;

use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFormat};

/// Starts logging. Lines still queued are written when the guard is dropped.
///
/// # Errors
/// Where logging was started before.
pub fn start(config: &Config) -> Result<WorkerGuard, Box<dyn std::error::Error + Send + Sync>> {
    let (writer, guard) = tracing_appender::non_blocking(std::io::stderr());
    // What Postgres says of a table that is there already, or while it shuts down, is no news: what follows from it is logged. The
    // configured filter has the last word.
    let filter = format!("sqlx::postgres::notice=error,{}", config.log_filter);
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(EnvFilter::try_new(&filter)?).with_writer(writer);
    let json = match config.log_format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !terminal,
    };
    if json {
        builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()?;
    } else {
        builder.with_ansi(terminal).with_target(false).try_init()?;
    }
    Ok(guard)
}
