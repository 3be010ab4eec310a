//! NOTIFY as a hint. LISTEN first, then load; poll every 5 s as a backstop.

use sqlx::postgres::PgListener;

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
    inner: PgListener,
}

impl Store {
    /// Starts to listen. Load only after this has returned, or a change in between goes unnoticed until the next poll.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn listen(&self) -> Result<Listener> {
        // A pool of one: the listener keeps its connection, and takes none from the others.
        let pool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(self.options.acquire_timeout)
            .connect_lazy_with(self.options.connect.clone().application_name("spareline-listen"));
        let mut inner = PgListener::connect_with(&pool).await?;
        inner.listen("registry").await?;
        Ok(Listener { inner })
    }
}

impl Listener {
    /// Waits for the next hint. Cancel-safe. It reconnects by itself; wrap it in a timeout of 5 s and re-read the head then
    /// too.
    ///
    /// # Errors
    /// `Unavailable` while the database is away: re-read after it too (the reconnect that follows is silent), and pause before
    /// calling again.
    pub async fn next(&mut self) -> Result<Hint> {
        match self.inner.try_recv().await? {
            Some(notice) => Ok(notice.payload().parse().map_or(Hint::Lost, Hint::Revision)),
            None => Ok(Hint::Lost),
        }
    }
}
