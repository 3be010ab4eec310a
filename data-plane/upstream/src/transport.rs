//! What went wrong on the wire, in the classifier's words.

use std::error::Error as StdError;
use std::io;

use spareline_core::classify::{Limit, Transport};

use crate::direct;

/// A fault before, or in the middle of, a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Wire(Transport),
    /// Our own egress proxy refused us (407 to CONNECT).
    EgressProxy,
}

/// An error of one of the clients. Its text is never shown: it may hold the URL.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the request failed")]
    Full(#[from] reqwest::Error),
    #[error("the request failed")]
    Direct(#[from] direct::Error),
}

impl Error {
    /// What went wrong.
    pub(crate) fn fault(&self) -> Fault {
        if self.is_connect() {
            return connect_fault(self);
        }
        // That a connection went silent, as the system or a ping finds out, is none of our limits.
        broken(self)
    }

    /// Whether a request that used a pooled connection failed because that connection was already dead.
    pub(crate) fn is_stale(&self) -> bool {
        match self {
            Self::Full(error) => !error.is_connect() && !error.is_timeout() && sources(error).any(is_gone),
            Self::Direct(error) => matches!(error, direct::Error::Gone(io) if is_gone(io)),
        }
    }

    fn is_connect(&self) -> bool {
        match self {
            Self::Full(error) => error.is_connect(),
            Self::Direct(error) => matches!(error, direct::Error::Connect(_)),
        }
    }

    fn is_timeout(&self) -> bool {
        match self {
            Self::Full(error) => error.is_timeout(),
            Self::Direct(_) => sources(self)
                .filter_map(|e| e.downcast_ref::<io::Error>())
                .any(|e| e.kind() == io::ErrorKind::TimedOut),
        }
    }

    fn is_dns(&self) -> bool {
        match self {
            Self::Full(error) => error.is_dns(),
            // The connector's own type is private.
            Self::Direct(_) => sources(self).any(|e| e.to_string().starts_with("dns error")),
        }
    }
}

fn broken(error: &Error) -> Fault {
    let not_http = match error {
        Error::Full(error) => {
            sources(error).filter_map(|e| e.downcast_ref::<hyper::Error>()).any(hyper::Error::is_parse)
        }
        Error::Direct(error) => matches!(error, direct::Error::NotHttp),
    };
    Fault::Wire(if not_http { Transport::NotHttp } else { Transport::Reset { sent: true } })
}

fn connect_fault(error: &Error) -> Fault {
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

/// Whether an error says that the other end is no longer there.
fn is_gone(error: &(dyn StdError + 'static)) -> bool {
    if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
        return hyper.is_incomplete_message() || hyper.is_canceled() || hyper.is_closed();
    }
    error.downcast_ref::<io::Error>().is_some_and(|io| {
        matches!(
            io.kind(),
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::NotConnected
                | io::ErrorKind::UnexpectedEof
        )
    })
}

pub(crate) fn sources<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_connection_is_a_broken_one_and_no_limit_of_ours() {
        let silent = || io::Error::from(io::ErrorKind::TimedOut);
        let gone = Error::Direct(direct::Error::Gone(silent()));
        assert_eq!(gone.fault(), Fault::Wire(Transport::Reset { sent: true }));
        assert!(!gone.is_stale(), "nobody knows what became of the request");
        let connect = Error::Direct(direct::Error::Connect(silent().into()));
        assert_eq!(connect.fault(), Fault::Wire(Transport::Timeout(Limit::Connect)));
    }
}
