use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;
use crate::http::io::Guarded;

/// Whatever is sent to it; `None` in place of bytes: it fails.
struct Pieces(mpsc::Receiver<Option<Bytes>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = ready!(self.0.poll_recv(cx));
        Poll::Ready(piece.map(|piece| piece.map(Frame::data).ok_or(BodyError)))
    }
}

struct Caller {
    socket: TcpStream,
    send: mpsc::Sender<Option<Bytes>>,
    connection: Arc<Connection>,
}

/// A caller whose request was taken, and who is answered with what is sent.
async fn caller(write_timeout: Duration) -> Caller {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let connection = Connection::new(write_timeout);
    let io = TokioIo::new(Guarded::new(accepted, connection.clone(), Duration::from_secs(5)));
    let (send, pieces) = mpsc::channel(4);
    let (taken, shared) = (Arc::new(std::sync::Mutex::new(Some(Pieces(pieces)))), connection.clone());
    tokio::spawn(async move {
        let service = service_fn(move |_: Request<Incoming>| {
            let body = Through::new(taken.lock().unwrap().take().unwrap(), shared.clone());
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    });
    socket.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    Caller { socket, send, connection }
}

/// Reads until the bytes end so.
async fn read_until(socket: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while !seen.ends_with(end) {
        let n =
            tokio::time::timeout(Duration::from_secs(10), socket.read(&mut buffer)).await.unwrap().unwrap();
        assert_ne!(n, 0, "closed after {} bytes", seen.len());
        seen.extend_from_slice(&buffer[..n]);
    }
    seen
}

/// The data of a whole answer.
fn data(answer: &[u8]) -> Vec<u8> {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let (mut rest, mut data) = (&answer[head + 4..], Vec::new());
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        let chunk = &rest[line + 2..];
        data.extend_from_slice(&chunk[..size]);
        assert_eq!(&chunk[size..size + 2], b"\r\n");
        rest = &chunk[size + 2..];
        if size == 0 {
            assert!(rest.is_empty(), "nothing comes behind the end");
            return data;
        }
    }
}

#[tokio::test]
async fn every_byte_arrives_in_order_however_it_comes() {
    for seed in 0..12_usize {
        let mut it = caller(Duration::from_secs(60)).await;
        let sizes = [1, 15, 16, 250, 4095, 4096, 70_000, 1 << 20];
        let pieces: Vec<Bytes> = (0..40)
            .map(|n| vec![b'a' + (n % 26) as u8; sizes[(n * 7 + seed * 5) % sizes.len()]].into())
            .collect();
        let want = pieces.concat();
        let send = it.send;
        tokio::spawn(async move {
            for (n, piece) in pieces.into_iter().enumerate() {
                send.send(Some(piece)).await.unwrap();
                if (n + seed) % 3 == 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        });
        if seed % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        let answer = read_until(&mut it.socket, b"\r\n0\r\n\r\n").await;
        assert!(data(&answer) == want, "seed {seed}");
    }
}

#[tokio::test]
async fn an_event_goes_out_at_once_and_an_empty_piece_ends_nothing() {
    let mut it = caller(Duration::from_secs(60)).await;
    for n in 0..4 {
        it.send.send(Some(Bytes::new())).await.unwrap();
        it.send.send(Some(format!("data: {n}\n\n").into())).await.unwrap();
        let came = read_until(&mut it.socket, format!("data: {n}\n\n\r\n").as_bytes()).await;
        assert_eq!(n == 0, came.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    drop(it.send);
    assert_eq!(read_until(&mut it.socket, b"\r\n").await, b"0\r\n\r\n");
}

#[tokio::test]
async fn a_body_that_fails_has_no_end() {
    let mut it = caller(Duration::from_secs(60)).await;
    it.send.send(Some("one".into())).await.unwrap();
    read_until(&mut it.socket, b"one\r\n").await;
    it.send.send(Some("two".into())).await.unwrap();
    it.send.send(None).await.unwrap();
    let mut rest = Vec::new();
    it.socket.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty() || rest == b"3\r\ntwo\r\n", "{rest:?}");
}

#[tokio::test]
async fn a_caller_that_takes_nothing_is_given_up() {
    let it = caller(Duration::from_millis(300)).await;
    let mut sent = 0;
    // Until the sockets' buffers are full, and the body is dropped.
    while it.send.send(Some(vec![b'x'; 64 << 10].into())).await.is_ok() {
        sent += 1;
        assert!(sent < 10_000);
    }
    assert!(it.connection.stalled());
}
