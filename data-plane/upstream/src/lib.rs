//! The only code that speaks to providers: connect, build the request in the provider's dialect, the attempt.
//!
//! One [`attempt()`] sends one request on one line (channel and credential) and judges what comes back, with the same
//! code for traffic and for probes. It never decides what follows from a failure, picks nothing and reports nothing.
//!
//! Whoever uses it installs the process-wide TLS provider first: [`install_tls`].

pub mod attempt;
pub mod base_url;
mod body;
pub mod budget;
pub mod clients;
mod dial;
mod direct;
mod error_event;
pub mod headers;
mod judge;
mod process;
pub mod request;
mod source;
pub mod target;
#[cfg(test)]
mod testing;
mod transport;

pub use attempt::{Answer, Attempt, Body, CommitMode, End, Ending, Failed, Limits, Rejected, attempt};
pub use budget::{Budget, Reservation};
pub use clients::{Clients, ClientsConfig, Line, LineError};
pub use error_event::STREAM_INTERRUPTED;
pub use process::raise_open_files;
pub use request::Outgoing;
pub use target::{Network, Target};

/// Installs the process-wide TLS provider; later calls do nothing.
pub fn install_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
