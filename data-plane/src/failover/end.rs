//! What hangs on the end of a committed answer: the record, the account of the channel, the place among the streams.

use std::sync::Arc;

use spareline_core::{
    Scope,
    classify::Verdict,
    health::{Crossing, Soft},
};
use spareline_upstream::{Body, End, Ending};

use super::{Account, Worker};
use crate::{http::Connection, metrics::ChannelLabel, record::Record, state::Shared};

/// Watches a body to its end, whatever that is; called once per committed answer.
pub fn watch_body(
    worker: &Worker,
    body: &mut Body,
    stream: bool,
    account: Option<Account>,
    record: Record,
    connection: Arc<Connection>,
) {
    let shared = worker.shared.clone();
    let remembered = stream.then(|| shared.remember_stream(body.interrupt_handle()));
    if stream {
        tracing::debug!(
            event = "stream_committed",
            request_id = %record.request_id,
            channel = record.attempts.last().map(|a| &*a.channel),
            first_content_ms = record.started().elapsed().as_secs_f64() * 1e3,
            "stream committed"
        );
    }
    body.on_end(move |end| {
        if let Some(id) = remembered {
            shared.forget_stream(id);
        }
        finish(&shared, &end, stream, account, record, &connection);
    });
    // A stream that was committed while the rest was being cut.
    if worker.shared.is_cut() && stream {
        body.interrupt_handle().interrupt();
    }
}

fn finish(
    shared: &Shared,
    end: &End,
    stream: bool,
    account: Option<Account>,
    mut record: Record,
    connection: &Connection,
) {
    record.usage = end.usage;
    record.response_bytes = end.bytes;
    let ending = match end.ending {
        Ending::Complete => "complete",
        Ending::Broken if shared.is_cut() && end.verdict.is_none() => "shutdown",
        Ending::Broken => "broken",
        Ending::Stalled => "stalled",
        Ending::EndedWithoutFinish => "ended_without_finish",
        Ending::ErrorEvent => "error_event",
        Ending::CallerLeft if connection.stalled() => "write_timeout",
        Ending::CallerLeft => "caller_left",
    };
    if stream
        && end.ending == Ending::Complete
        && end.usage.output.is_none()
        && let Some(last) = record.attempts.last()
    {
        let label = ChannelLabel { channel: last.channel.clone() };
        shared.metrics.streams_without_usage.get_or_create(&label).inc();
    }
    match (&end.verdict, account) {
        (Some(verdict), Some(account)) => broke(shared, verdict, account),
        (None, Some(mut account)) if stream => account.ticket.success(),
        _ => {}
    }
    if let Some(verdict) = &end.verdict {
        tracing::debug!(
            event = "stream_failed",
            request_id = %record.request_id,
            ending,
            rule = %verdict.rule,
            limit = end.limit.map(|l| l.as_str()),
            "the answer broke off"
        );
    }
    record.limit = if ending == "write_timeout" { Some(ending) } else { end.limit.map(|l| l.as_str()) };
    record.finish(ending);
}

/// A break is soft evidence, whatever an error event said: its caller may have caused it.
fn broke(shared: &Shared, verdict: &Verdict, mut account: Account) {
    let soft = match verdict.scope {
        Scope::None | Scope::Request => {
            account.ticket.answered();
            return;
        }
        Scope::Channel => Soft::NoAnswer,
        _ => Soft::Answered,
    };
    let view = shared.view();
    let crossing = account.ticket.failure(soft, account.body_hash, view.fleet(), shared.now());
    if crossing != Crossing::None {
        shared.spool.tell_health();
    }
}
