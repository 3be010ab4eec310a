//! What went wrong on the wire, in the classifier's words.

use std::error::Error;
use std::io;

use spareline_core::classify::{Limit, Transport};

/// A fault before, or in the middle of, a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Wire(Transport),
    /// Our own egress proxy refused us (407 to CONNECT).
    EgressProxy,
}

/// Reads an error of the client library. Its text is never shown: it may hold the URL.
pub(crate) fn fault(error: &reqwest::Error) -> Fault {
    if error.is_connect() {
        return connect_fault(error);
    }
    if error.is_timeout() {
        return Fault::Wire(Transport::Timeout(Limit::Response));
    }
    if sources(error).filter_map(|e| e.downcast_ref::<hyper::Error>()).any(hyper::Error::is_parse) {
        return Fault::Wire(Transport::NotHttp);
    }
    Fault::Wire(Transport::Reset { sent: true })
}

fn connect_fault(error: &reqwest::Error) -> Fault {
    if error.is_timeout() {
        return Fault::Wire(Transport::Timeout(Limit::Connect));
    }
    if error.is_dns() {
        return Fault::Wire(Transport::Dns);
    }
    let mut kind = None;
    for source in sources(error) {
        if source.is::<rustls::Error>() {
            return Fault::Wire(Transport::Tls);
        }
        if let Some(io) = source.downcast_ref::<io::Error>() {
            // What an io error wraps is not among its sources.
            let mut io = io;
            loop {
                kind = Some(io.kind());
                let Some(inner) = io.get_ref() else { break };
                if inner.is::<rustls::Error>() {
                    return Fault::Wire(Transport::Tls);
                }
                let Some(next) = inner.downcast_ref::<io::Error>() else { break };
                io = next;
            }
        }
        let text = source.to_string();
        if text.contains("proxy authorization required") {
            return Fault::EgressProxy;
        }
        if text.contains("certificate") || text.contains("tls handshake") {
            return Fault::Wire(Transport::Tls);
        }
    }
    Fault::Wire(match kind {
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof) => {
            Transport::Reset { sent: false }
        }
        _ => Transport::Refused,
    })
}

/// Whether a request that used a pooled connection failed because that connection was already dead.
pub(crate) fn is_stale(error: &reqwest::Error) -> bool {
    if error.is_connect() || error.is_timeout() {
        return false;
    }
    sources(error).any(|source| {
        if let Some(hyper) = source.downcast_ref::<hyper::Error>() {
            return hyper.is_incomplete_message() || hyper.is_canceled() || hyper.is_closed();
        }
        source.downcast_ref::<io::Error>().is_some_and(|io| {
            matches!(
                io.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::NotConnected
                    | io::ErrorKind::UnexpectedEof
            )
        })
    })
}

fn sources<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}
