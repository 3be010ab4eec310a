//! A provider that answers as it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What was asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) key: String,
    pub(super) body: serde_json::Value,
}

type Script = dyn Fn(&Asked) -> (u16, String) + Send + Sync;

/// A provider on loopback, one request a connection.
pub(super) struct Provider {
    pub(super) url: String,
    script: Arc<Mutex<Box<Script>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// While true every answer is held back.
    pub(super) hold: watch::Sender<bool>,
}

impl Provider {
    pub(super) async fn new(script: impl Fn(&Asked) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (hold, held) = watch::channel(false);
        let script: Arc<Mutex<Box<Script>>> = Arc::new(Mutex::new(Box::new(script)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (with, log) = (script.clone(), asked.clone());
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(answer(socket, with.clone(), log.clone(), held.clone()));
            }
        });
        Self { url, script, asked, hold }
    }

    pub(super) async fn always(status: u16, body: &'static str) -> Self {
        Self::new(move |_| (status, body.to_owned())).await
    }

    pub(super) fn now_answers(&self, status: u16, body: &'static str) {
        *self.script.lock().unwrap() = Box::new(move |_| (status, body.to_owned()));
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) async fn was_asked(&self, times: usize) {
        let asked = async {
            while self.asked().len() < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), asked).await.expect("the provider is asked");
    }
}

async fn answer(
    mut socket: TcpStream,
    script: Arc<Mutex<Box<Script>>>,
    log: Arc<Mutex<Vec<Asked>>>,
    mut held: watch::Receiver<bool>,
) -> Option<()> {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = header(&head, "content-length").parse().unwrap_or(0);
        if bytes.len() >= end + 4 + length {
            break (head, end + 4);
        }
    };
    let asked = Asked {
        path: head.split(' ').nth(1)?.to_owned(),
        key: header(&head, "authorization").trim_start_matches("Bearer ").to_owned(),
        body: serde_json::from_slice(&bytes[body..]).unwrap_or_default(),
    };
    log.lock().unwrap().push(asked.clone());
    held.wait_for(|hold| !hold).await.ok()?;
    let (status, body) = (script.lock().unwrap())(&asked);
    let reply = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(reply.as_bytes()).await.ok()
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| line.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name));
    head.lines().find_map(value).map_or("", |(_, value)| value)
}
