//! NOTIFY as a hint. LISTEN first, then load; poll every 5 s as a backstop.

use super::{Result, Store};

/// Why to look at the head again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Somebody committed this revision.
    Revision(i64),
    /// Notifications may have been lost.
    Lost,
}

/// A LISTEN on the registry's channel, on a connection of its own.
#[derive(Debug)]
pub struct Listener {
    pub(super) inner: sqlx::postgres::PgListener,
}

impl Store {
    /// Starts to listen.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn listen(&self) -> Result<Listener> {
        todo!()
    }
}

impl Listener {
    /// Waits for the next hint. Cancel-safe. It reconnects by itself; wrap it in a timeout of 5 s and re-read the head then
    /// too.
    ///
    /// # Errors
    /// `Unavailable` while the database is away: re-read after it too, and pause before calling again.
    pub async fn next(&mut self) -> Result<Hint> {
        let _ = &self.inner;
        todo!()
    }
}
