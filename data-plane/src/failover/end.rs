//! What hangs on the end of a committed answer: the record, the account of the channel, the place among the streams.

use std::sync::Arc;

use spareline_core::{Scope, health::Soft};
use spareline_upstream::{Body, End, Ending};

use super::{Account, Worker};
use crate::{http::Connection, record::Record, state::Shared};

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
        finish(&shared, &end, account, record, &connection);
    });
    // A stream that was committed while the rest was being cut.
    if worker.shared.is_cut() && stream {
        body.interrupt_handle().interrupt();
    }
}

fn finish(shared: &Shared, end: &End, account: Option<Account>, mut record: Record, connection: &Connection) {
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
    if let (Some(verdict), Some(mut account)) = (&end.verdict, account) {
        // A break is soft evidence, whatever the error event said: the caller may have caused it.
        let soft = match verdict.scope {
            Scope::None | Scope::Request => None,
            Scope::Channel => Some(Soft::NoAnswer),
            _ => Some(Soft::Answered),
        };
        if let Some(soft) = soft {
            let view = shared.view();
            let crossing = account.ticket.failure(soft, account.body_hash, view.fleet(), shared.now());
            if crossing != spareline_core::health::Crossing::None {
                shared.spool.tell_health();
            }
        }
        tracing::debug!(
            event = "stream_failed",
            request_id = %record.request_id,
            ending,
            rule = %verdict.rule,
            limit = end.limit.map(|l| l.as_str()),
            "the answer broke off"
        );
    }
    record.limit = end.limit.map(|l| l.as_str());
    record.finish(ending);
}
