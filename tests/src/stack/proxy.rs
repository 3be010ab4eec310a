//! A sidecar's process, and what it says of itself.

use std::net::SocketAddr;

use anyhow::Result;
use spareline_proto::dataplane::v1::Position;

use crate::{
    http::Call,
    process::{Launch, Process},
};

/// A sidecar.
pub struct Proxy {
    /// Its id.
    pub id: String,
    /// The process.
    pub process: Process,
    /// Where callers are served.
    pub http: SocketAddr,
    /// Where its health and metrics are.
    pub admin: SocketAddr,
}

impl Proxy {
    /// Starts one on free ports and returns once it listens, ready or not.
    ///
    /// # Errors
    /// When it does not.
    pub async fn start(id: &str, control: SocketAddr, arguments: &[String]) -> Result<Self> {
        let control = format!("http://{control}");
        let own = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--proxy-id", id];
        let launch = Launch::product(id, "spareline-proxy")?.arguments(own);
        let launch =
            launch.arguments(["--control-plane", &control, "--log-format", "json"]).arguments(arguments);
        let process = launch.spawn()?;
        let http = process.listening("http_addr").await?;
        let admin = process.listening("admin_addr").await?;
        Ok(Self { id: id.to_owned(), process, http, admin })
    }

    /// What is in force there: epoch, revision, digest.
    ///
    /// # Errors
    /// When its admin port does not answer.
    pub async fn position(&self) -> Result<Position> {
        let page = Call::get("/debug/registry").send(self.admin).await?.json();
        let text = |key: &str| page[key].as_str().unwrap_or_default().to_owned();
        let digest = u64::from_str_radix(&text("digest"), 16)?;
        Ok(Position { epoch: text("epoch"), revision: page["revision"].as_i64().unwrap_or(-1), digest })
    }

    /// Whether it says that it is ready.
    ///
    /// # Errors
    /// When its admin port does not answer.
    pub async fn ready(&self) -> Result<bool> {
        Ok(Call::get("/readyz").send(self.admin).await?.status == http::StatusCode::OK)
    }
}
