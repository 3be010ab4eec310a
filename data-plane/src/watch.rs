//! The edge of the registry watch: dials, moves messages, does what the session says.
//!
//! It decides nothing: when to dial, what to answer and what to put in force is [`ClientSession`]'s. Losing the control
//! plane changes nothing for requests; what is in force stays in force.

pub(crate) mod changes;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use spareline_core::session::{Action, ClientSession};
use spareline_proto::dataplane::v1::{
    Node, WatchRequest, WatchResponse, registry_watch_service_client::RegistryWatchServiceClient,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use tonic::{Status, Streaming, transport::Endpoint};

pub(crate) use changes::rejected;

use crate::{lkg, state::Shared};

/// Connecting, and opening the stream.
const DIAL: Duration = Duration::from_secs(10);
/// The largest frame taken: snapshots come in chunks of 1 MiB.
const FRAME: usize = 64 << 20;

/// How the control plane is reached. Names are resolved anew by every dial; a silent peer is noticed in 30 s.
pub(crate) fn endpoint(url: &url::Url) -> Endpoint {
    // The configuration has checked it; what tonic still refuses shows as a failed dial.
    let endpoint = Endpoint::from_shared(url.as_str().to_owned())
        .unwrap_or_else(|_| Endpoint::from_static("http://invalid.invalid"));
    endpoint
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        .tcp_keepalive(Some(Duration::from_secs(30)))
        .http2_keep_alive_interval(Duration::from_secs(15))
        .keep_alive_timeout(Duration::from_secs(15))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(2 << 20)
}

/// Watches until dropped.
pub async fn run(shared: Arc<Shared>) {
    let config = &shared.config;
    let node = Node {
        proxy_id: config.proxy_id.clone(),
        instance_id: uuid::Uuid::now_v7().to_string(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        labels: config.labels.clone(),
        features: Vec::new(),
        groups: config.groups.iter().map(|g| g.to_string()).collect(),
    };
    let mut session = ClientSession::new(node, shared.view(), shared.now());
    let mut quiet = false;
    loop {
        if let Some(at) = session.dial_at() {
            while shared.now() < at {
                shared.set_alone(session.is_alone(shared.now()));
                let left = at.saturating_sub(shared.now());
                tokio::time::sleep(left.min(Duration::from_secs(5))).await;
            }
        }
        let lost = match one(&shared, &mut session).await {
            Ok(why) => why,
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        };
        let was_connected = shared.metrics.watch_connected.set(0) == 1;
        session.disconnected(shared.now(), &mut rand::rng());
        shared.set_alone(session.is_alone(shared.now()));
        let again = session.dial_at().map(|at| at.saturating_sub(shared.now()));
        let again_in_ms = again.unwrap_or_default().as_secs_f64() * 1e3;
        if was_connected || !quiet {
            let control_plane = config.control_plane.as_str();
            tracing::warn!(event = "watch_lost", why = %lost, again_in_ms, control_plane, "watch lost: {lost}");
        } else {
            tracing::debug!(event = "watch_lost", why = %lost, again_in_ms, "still no control plane: {lost}");
        }
        quiet = !was_connected;
    }
}

/// One connection, until it ends; answers why.
async fn one(shared: &Arc<Shared>, session: &mut ClientSession) -> Result<String, Status> {
    let dialled = timeout(DIAL, endpoint(&shared.config.control_plane).connect()).await;
    let channel = match dialled {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => return Ok(chain(&error)),
        Err(_) => return Ok("connecting took too long".to_owned()),
    };
    let mut client = RegistryWatchServiceClient::new(channel).max_decoding_message_size(FRAME);
    // The client may be asked to answer two frames at most; more would be a server out of step.
    let (requests, outgoing) = mpsc::channel::<WatchRequest>(16);
    let hello = session.connected(shared.now());
    if requests.try_send(hello).is_err() {
        return Ok("the hello could not be sent".to_owned());
    }
    let stream = futures_util::stream::unfold(outgoing, |mut rx| async move { Some((rx.recv().await?, rx)) });
    let mut incoming = match timeout(DIAL, client.watch(stream)).await {
        Ok(opened) => opened?.into_inner(),
        Err(_) => return Ok("opening the watch took too long".to_owned()),
    };
    loop {
        let actions = match next(shared, session, &mut incoming).await? {
            Some(actions) => actions,
            None => return Ok("the server ended the stream".to_owned()),
        };
        for action in actions {
            match action {
                Action::Send(request) => {
                    if requests.try_send(request).is_err() {
                        return Ok("the server takes no answers".to_owned());
                    }
                }
                Action::Publish(published) => {
                    shared.publish(published.view.clone());
                    changes::log(shared, &published);
                }
                Action::Welcomed(welcome) => {
                    shared.metrics.watch_connected.set(1);
                    shared.metrics.watch_sessions.inc();
                    tracing::info!(
                        event = "watch_connected",
                        resumed = welcome.resumed,
                        session_id = %welcome.session_id,
                        control_plane = %shared.config.control_plane,
                        revision = session.view().revision().0,
                        "watch connected"
                    );
                }
                Action::Close(why) => return Ok(why.to_string()),
                Action::Warn(text) => tracing::warn!(event = "watch_warning", "{text}"),
            }
        }
        if session.is_ready() && !shared.is_ready() {
            shared.set_ready();
        }
        shared.set_alone(session.is_alone(shared.now()));
    }
}

/// The next message or timer; `None`: the stream ended.
async fn next(
    shared: &Shared,
    session: &mut ClientSession,
    incoming: &mut Streaming<WatchResponse>,
) -> Result<Option<Vec<Action>>, Status> {
    let now = shared.now();
    let until = session.next_timer().map_or(Duration::from_secs(60), |at| at.saturating_sub(now));
    tokio::select! {
        biased;
        message = incoming.message() => match message? {
            None => Ok(None),
            Some(message) => {
                shared.confirm();
                if let Some(ahead) = lkg::clock_offset_ms(&message, SystemTime::now()) {
                    shared.set_clock_offset_ms(ahead);
                }
                Ok(Some(session.received(message, shared.now())))
            }
        },
        () = sleep_until(Instant::now() + until) => Ok(Some(session.tick(shared.now()))),
    }
}

/// An error with its causes; tonic's own text alone says only "transport error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
