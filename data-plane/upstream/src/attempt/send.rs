//! Sends a request, and once more where the pooled connection it got was already dead.

use std::time::Duration;

use http::Response;
use spareline_core::classify::Transport;
use tokio::time::Instant;

use super::Attempt;
use crate::dial;
use crate::request::{self, Built};
use crate::transport::Fault;

/// A dead connection shows at once. Later it is an upstream that gave up, which may have worked on the request.
const STALE_WITHIN: Duration = Duration::from_secs(1);

pub(super) async fn send(attempt: &Attempt<'_>, built: Built) -> Result<Response<reqwest::Body>, Fault> {
    let pool = attempt.line.pool();
    let plain = built.place.url.scheme() == "http";
    let client =
        |fresh| pool.client(attempt.limits.connect, plain, fresh).map_err(|_| Fault::Wire(Transport::Tls));
    let sent = Instant::now();
    let (result, dialed) = dial::watch(client(false)?.execute(built)).await;
    let error = match result {
        Ok(response) => return Ok(response),
        Err(error) => error,
    };
    if dialed || sent.elapsed() > STALE_WITHIN || !error.is_stale() {
        return Err(error.fault());
    }
    tracing::debug!(event = "stale_connection", channel = %attempt.line.target().channel, "replayed on a fresh connection");
    let Attempt { line, secret, request, upstream_model, request_usage, .. } = *attempt;
    let Ok(again) = request::build(line, request, secret, upstream_model, request_usage) else {
        return Err(error.fault());
    };
    client(true)?.execute(again).await.map_err(|error| error.fault())
}
