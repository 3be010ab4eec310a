//! A scripted provider, a registry built from wire messages, and a proxy in this process: enough to see what a caller
//! sees, without a control plane.
#![allow(dead_code, unreachable_pub)]

pub mod provider;
pub mod registry;

use std::{net::SocketAddr, sync::Arc, time::Duration};

pub use provider::{Provider, Reply};
pub use registry::{Registry, channel};
use spareline_proxy::{
    app::{Proxy, Stop},
    config::Config,
    log::{Logger, Sink},
    state::Shared,
};

/// A proxy of this process.
pub struct Running {
    pub http: SocketAddr,
    pub admin: SocketAddr,
    pub shared: Arc<Shared>,
    pub stop: Stop,
    pub logs: Lines,
    pub ended: tokio::task::JoinHandle<()>,
    _guard: spareline_proxy::log::Guard,
}

/// What was logged by hand: one JSON object per request.
#[derive(Clone, Default)]
pub struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Those so far.
    pub fn all(&self) -> Vec<serde_json::Value> {
        let bytes = self.0.lock().unwrap().clone();
        bytes
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice(l).unwrap())
            .collect()
    }

    /// Waits until there are that many.
    pub async fn wait_for(&self, count: usize) -> Vec<serde_json::Value> {
        for _ in 0..500 {
            let all = self.all();
            if all.len() >= count {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{count} log lines did not come: {:#?}", self.all());
    }
}

/// A configuration on free ports, with changes.
pub fn config(change: impl FnOnce(&mut Config)) -> Config {
    let toml = "listen = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'\nworkers = 2\nproxy_id = 'test'\n\
                control_plane = 'http://127.0.0.1:1'\ndrain_timeout = '2s'";
    use figment::providers::Format as _;
    let figment = figment::Figment::new().merge(figment::providers::Toml::string(toml));
    let mut config = Config::from_figment(figment).unwrap();
    change(&mut config);
    config
}

/// Starts a proxy on that registry.
pub async fn start(registry: Registry) -> Running {
    start_with(registry, config(|_| {})).await
}

/// Starts a proxy on that registry, configured.
pub async fn start_with(registry: Registry, config: Config) -> Running {
    let running = start_empty(config);
    running.shared.publish(Arc::new(registry.view()));
    running
}

/// Starts a proxy without a registry.
pub fn start_empty(config: Config) -> Running {
    let logs = Lines::default();
    let (sink, guard) = Sink::start(Box::new(logs.clone()));
    let proxy = Proxy::bind(config, Logger::new(sink, true, true)).unwrap();
    let (http, admin, shared) = (proxy.http_addr(), proxy.admin_addr(), proxy.shared().clone());
    let stop = Stop::default();
    let running = stop.clone();
    let ended = tokio::spawn(async move { proxy.run(running).await.unwrap() });
    Running { http, admin, shared, stop, logs, ended, _guard: guard }
}

/// A client that does nothing by itself.
pub fn client() -> reqwest::Client {
    spareline_upstream::install_tls();
    reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

impl Running {
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &str) -> Seen {
        self.send(
            client().post(self.url(path)).header("content-type", "application/json").body(body.to_owned()),
        )
        .await
    }

    /// A plain chat completion of `m`.
    pub async fn chat(&self) -> Seen {
        self.post("/v1/chat/completions", CHAT).await
    }

    /// A streamed chat completion of `m`.
    pub async fn stream(&self) -> Seen {
        self.post("/v1/chat/completions", STREAM).await
    }

    pub async fn get(&self, path: &str) -> Seen {
        self.send(client().get(self.url(path))).await
    }

    pub async fn admin(&self, path: &str) -> Seen {
        self.send(client().get(format!("http://{}{path}", self.admin))).await
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Seen {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = response.bytes().await.map_err(|e| e.to_string());
        Seen { status, headers, body }
    }
}

pub const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
pub const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// What the caller saw.
#[derive(Debug)]
pub struct Seen {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Result<bytes::Bytes, String>,
}

impl Seen {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    pub fn attempts(&self) -> &str {
        self.header("x-spareline-attempts")
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.body.as_ref().unwrap()).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(self.body.as_ref().unwrap()).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}
