//! Sockets and HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::AppError;
use super::gate::Gate;

/// How often an idle connection is asked for a sign of life, and how long it may take.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(15));
/// Connections that may wait to be accepted: a whole fleet comes back at once after a restart.
const BACKLOG: u32 = 4096;
/// Calls at once over one connection.
const STREAMS: u32 = 200;

/// A taken address.
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    socket: TcpListener,
}

impl Listener {
    /// Takes it.
    pub(super) fn bind(key: &'static str, address: SocketAddr) -> Result<Self, AppError> {
        let bind = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // A port that was in use a moment ago can be taken again at once.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let socket = socket.listen(BACKLOG)?;
            Ok(Self { address: socket.local_addr()?, socket })
        };
        bind().map_err(|source| AppError::Listen { key, address, source })
    }
}

/// Serves one listener until `stop`, then lets its calls end.
pub(super) async fn serve(listener: Listener, gate: Gate, stop: CancellationToken) -> Result<(), AppError> {
    let incoming = TcpIncoming::from(listener.socket).with_nodelay(Some(true));
    Server::builder()
        // For `/metrics` and the like; calls are HTTP/2.
        .accept_http1(gate.has_pages())
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .max_concurrent_streams(STREAMS)
        // A replica that was stopped finds every call that was given up meanwhile at once: no attack, and no reason to end the
        // connection of those who still wait.
        .http2_max_pending_accept_reset_streams(Some(STREAMS as usize))
        .serve_with_incoming_shutdown(gate, incoming, stop.cancelled_owned())
        .await?;
    Ok(())
}
