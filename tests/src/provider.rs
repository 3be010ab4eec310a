//! A model provider that does as it is told.
//!
//! It answers OpenAI's and Anthropic's APIs well by default, and as badly as its [`script`] says. Every request is
//! kept in a [`record`]. Tests start it in their own process with [`Provider::start`]; the binary `fake-provider`
//! serves the same thing with the control API of [`control`] under `/control`.
//!
//! It never checks what it is asked: it is not a validator of requests, only a witness.

mod control;
mod good;
pub mod record;
pub mod script;
mod serve;
#[cfg(test)]
mod tests;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use spareline_proto::registry::v1 as registry;
use tokio::{net::TcpListener, task::JoinHandle};

use record::{Record, Witness};
use script::{KeyState, Rule, Script};

/// A running provider; it ends when dropped.
pub struct Provider {
    addr: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

/// What connections share.
pub(crate) struct State {
    pub(crate) script: Script,
    pub(crate) witness: Witness,
    /// Idle keep-alive connections are closed after this.
    pub(crate) idle_close: Option<Duration>,
}

/// How to start a [`Provider`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Where to listen; unset: a free port of 127.0.0.1.
    pub listen: Option<SocketAddr>,
    /// Close idle keep-alive connections after this long; unset: never.
    pub idle_close: Option<Duration>,
}

impl Provider {
    /// Starts one on a free port of 127.0.0.1.
    pub async fn start() -> Result<Self> {
        Self::start_with(Options::default()).await
    }

    /// Starts one as told.
    pub async fn start_with(options: Options) -> Result<Self> {
        let listen = options.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        let addr = listener.local_addr()?;
        let state = Arc::new(State {
            script: Script::default(),
            witness: Witness::default(),
            idle_close: options.idle_close,
        });
        let task = tokio::spawn(serve::accept(listener, Arc::clone(&state)));
        Ok(Self { addr, state, task })
    }

    /// Where it listens.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What a channel's `base_url` should be.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.addr)
    }

    /// A channel to it, serving one model in group `default`.
    pub fn channel(&self, name: &str, model: &str) -> registry::Channel {
        registry::Channel {
            name: name.to_owned(),
            provider: "openai".to_owned(),
            base_url: self.base_url(),
            models: vec![registry::ModelEntry { model: model.to_owned(), ..Default::default() }],
            ..Default::default()
        }
    }

    /// Adds a rule; the newest rule that matches decides.
    pub fn rule(&self, rule: Rule) {
        self.state.script.add(rule);
    }

    /// Forgets all rules and key states, and releases what is held.
    pub fn behave(&self) {
        self.state.script.clear();
    }

    /// Says what a key is worth from now on.
    pub fn key(&self, key: &str, state: KeyState) {
        self.state.script.set_key(key, state);
    }

    /// Lets the answers held under `name` go, and those still to come.
    pub fn release(&self, name: &str) {
        self.state.script.release(name);
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Record> {
        self.state.witness.all()
    }

    /// The requests that came with a key.
    pub fn requests_of(&self, key: &str) -> Vec<Record> {
        self.requests().into_iter().filter(|r| r.key.as_deref() == Some(key)).collect()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.state.witness.forget();
    }

    /// Waits until the recorded requests are as wanted, and returns them.
    ///
    /// # Errors
    /// When that does not happen within `limit`; the message lists what was seen.
    pub async fn wait_until(
        &self,
        limit: Duration,
        wanted: impl Fn(&[Record]) -> bool,
    ) -> Result<Vec<Record>> {
        self.state.witness.wait_until(limit, wanted).await
    }

    /// Serves until the future ends, as the binary does.
    pub async fn finished(mut self) {
        let _ = (&mut self.task).await;
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.state.script.clear();
        self.task.abort();
    }
}
