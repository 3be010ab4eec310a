//! Sends a request, and once more where the pooled connection it got was already dead.

use std::time::Duration;

use http::Response;
use spareline_core::Endpoint;
use spareline_core::classify::Transport;
use tokio::time::Instant;

use super::Attempt;
use crate::request::{self, Built, Outgoing};
use crate::source::Incoming;
use crate::transport::Fault;

/// A dead connection shows at once. Later it is an upstream that gave up, which may have worked on the request.
const STALE_WITHIN: Duration = Duration::from_secs(1);

pub(super) async fn send(attempt: &Attempt<'_>, built: Built) -> Result<Response<Incoming>, Fault> {
    let usage_added = built.usage_added;
    let pool = attempt.line.pool();
    let plain = built.place.url.scheme() == "http";
    let client =
        |fresh| pool.client(attempt.limits.connect, plain, fresh).map_err(|_| Fault::Wire(Transport::Tls));
    let sent = Instant::now();
    let (result, dialed) = client(is_dear(attempt.request))?.execute(built).await;
    let error = match result {
        Ok(response) => return Ok(response),
        Err(error) => error,
    };
    if dialed || sent.elapsed() > STALE_WITHIN || !error.is_stale() {
        return Err(error.fault());
    }
    tracing::debug!(event = "stale_connection", channel = %attempt.line.target().channel, "replayed on a fresh connection");
    let Attempt { line, secret, request, upstream_model, .. } = *attempt;
    let Ok(again) = request::build(line, request, secret, upstream_model, usage_added) else {
        return Err(error.fault());
    };
    let client = client(true)?;
    Box::pin(client.execute(again)).await.0.map_err(|error| error.fault())
}

/// What must not be done twice gets a connection of its own: of a pooled one that died nobody can tell whether it took the
/// request before.
fn is_dear(request: &Outgoing) -> bool {
    const PATHS: [&str; 3] = ["/v1/videos", "/v1/batches", "/v1/files"];
    request.method == http::Method::POST
        && match request.endpoint {
            Some(endpoint) => matches!(endpoint, Endpoint::Images | Endpoint::Audio),
            None => PATHS.iter().any(|path| request.path.starts_with(path)),
        }
}
