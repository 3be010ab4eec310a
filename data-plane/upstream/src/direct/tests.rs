use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A server that gives every request the same answer, and says how many connections it had.
async fn server(answer: Vec<u8>, per_connection: usize) -> (Uri, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(socket, answer.clone(), per_connection));
        }
    });
    (uri, count)
}

async fn serve(mut socket: TcpStream, answer: Vec<u8>, requests: usize) {
    for _ in 0..requests {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = socket.read_u8().await else { return };
            head.push(byte);
        }
        socket.write_all(&answer).await.unwrap();
    }
    // Quietly: the answer has promised to go on.
    tokio::time::sleep(Duration::from_millis(200)).await;
}

fn client() -> Direct {
    Direct::new(Duration::from_secs(5), Duration::from_secs(15), 8)
}

fn get() -> Request<Full<Bytes>> {
    Request::get("/").body(Full::default()).unwrap()
}

async fn whole(client: &Direct, uri: &Uri) -> (Bytes, bool) {
    let (answer, dialed) = client.request(uri, get()).await;
    (answer.unwrap().into_body().collect().await.unwrap().to_bytes(), dialed)
}

#[tokio::test]
async fn a_connection_is_used_again_and_one_that_was_closed_goes_by_itself() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi".to_vec();
    let (uri, count) = server(answer, 3).await;
    let client = client();
    let mut dialed = Vec::new();
    for _ in 0..3 {
        dialed.push(whole(&client, &uri).await.1);
    }
    assert_eq!((dialed, count.load(Ordering::Relaxed)), (vec![true, false, false], 1));
    let spot = client.spot(uri.authority().unwrap().as_str());
    assert!(!spot.is_empty());
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if spot.is_empty() {
            break;
        }
    }
    assert!(spot.is_empty(), "closed at the other end, and still here");
    assert_eq!(whole(&client, &uri).await, (Bytes::from("hi"), true));
}

#[tokio::test]
async fn an_answer_in_more_pieces_than_a_task_may_take_at_once_arrives_whole() {
    const PIECES: usize = 2000;
    let mut answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    answer.extend(b"1\r\nx\r\n".repeat(PIECES));
    answer.extend(b"0\r\n\r\n");
    let (uri, _) = server(answer, 10).await;
    let client = client();
    for _ in 0..5 {
        let whole = tokio::time::timeout(Duration::from_secs(20), whole(&client, &uri)).await.unwrap();
        assert_eq!(whole.0.len(), PIECES);
    }
}

#[tokio::test]
async fn an_answer_that_is_dropped_half_read_takes_its_connection_with_it() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_vec();
    let (uri, count) = server(answer, 10).await;
    let client = client();
    for n in 1..=2 {
        let mut body = client.request(&uri, get()).await.0.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
        drop(body);
        assert!(client.spot(uri.authority().unwrap().as_str()).is_empty());
        assert_eq!(count.load(Ordering::Relaxed), n);
    }
}

#[tokio::test]
async fn an_answer_without_a_body_gives_its_connection_back_unread() {
    let (uri, count) = server(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), 10).await;
    let client = client();
    for _ in 0..3 {
        drop(client.request(&uri, get()).await.0.unwrap());
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
}
