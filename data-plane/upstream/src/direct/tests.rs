use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body::Body as _;
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

fn get() -> Request<Bytes> {
    Request::get("/").body(Bytes::new()).unwrap()
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

/// What came since the runtime last looked is known all the same.
#[tokio::test]
async fn an_answer_that_nobody_asked_for_is_no_ones() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let (go, going) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        for n in 0..2 {
            let (mut socket, _) = listener.accept().unwrap();
            socket.read_exact(&mut [0; 4]).unwrap();
            socket.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{n}").as_bytes()).unwrap();
            going.recv().unwrap();
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil");
            drop(socket);
        }
    });
    let client = client();
    assert_eq!(whole(&client, &uri).await, (Bytes::from("0"), true));
    assert!(!client.spot(uri.authority().unwrap().as_str()).is_empty());
    go.send(()).unwrap();
    // Not the runtime's sleep: it sees nothing meanwhile.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(whole(&client, &uri).await, (Bytes::from("1"), true));
    go.send(()).unwrap();
    server.join().unwrap();
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

#[tokio::test]
async fn a_stream_gives_its_connection_back_at_its_end() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = format!("{head}9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n").into_bytes();
    let (uri, count) = server(answer, 3).await;
    let client = client();
    for n in 0..3 {
        let (answer, dialed) = client.request(&uri, post(Bytes::new())).await;
        assert_eq!(answer.unwrap().into_body().collect().await.unwrap().to_bytes(), "data: 1\n\ndata: 2\n\n");
        assert_eq!(dialed, n == 0);
    }
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

/// Each answer is read up to its last piece of data, and dropped.
#[tokio::test]
async fn a_connection_is_back_before_the_caller_has_the_end() {
    for (answer, over, waits) in [
        ("content-length: 2\r\n\r\nhi", true, true),
        ("transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", true, true),
        ("content-length: 2\r\n\r\nhi!", true, false),
        ("content-length: 2\r\nconnection: close\r\n\r\nhi", true, false),
        ("content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", true, false),
        ("transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n", true, false),
        ("\r\nhi", false, false),
    ] {
        let (uri, _) = server(format!("HTTP/1.1 200 OK\r\n{answer}").into_bytes(), 2).await;
        let client = client();
        let mut body = client.request(&uri, get()).await.0.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "hi", "{answer}");
        assert_eq!(body.is_end_stream(), over, "{answer}");
        drop(body);
        assert_eq!(!client.spot(uri.authority().unwrap().as_str()).is_empty(), waits, "{answer}");
    }
}

/// Answers one connection after another by what `serve` does, which closes it at its end.
async fn scripted<F, R>(serve: F) -> Uri
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket));
        }
    });
    uri
}

#[tokio::test]
async fn an_answer_that_is_cut_is_broken_wherever_it_is_cut() {
    let client = client();
    for (text, head) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", 38),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 47),
    ] {
        for cut in 0..=text.len() {
            let uri = scripted(move |mut socket| async move {
                socket.read_u8().await.unwrap();
                socket.write_all(&text.as_bytes()[..cut]).await.unwrap();
                // Not with a reset, which unread bytes would mean.
                socket.shutdown().await.unwrap();
                while socket.read_u8().await.is_ok() {}
            })
            .await;
            let answer = client.request(&uri, get()).await.0;
            match answer {
                Err(Error::Gone(_)) => assert_eq!(cut, 0),
                Err(Error::Cut(_)) => assert!((1..head).contains(&cut), "{cut}"),
                Err(error) => panic!("cut at {cut}: {error}"),
                Ok(answer) => {
                    assert!(cut >= head, "{cut}");
                    let whole = answer.into_body().collect().await;
                    assert_eq!(whole.is_ok(), cut == text.len(), "{cut}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_body_without_an_extent_goes_until_the_end_of_the_connection() {
    let uri = scripted(|mut socket| async move {
        socket.read_u8().await.unwrap();
        socket.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        socket.write_all(b", world").await.unwrap();
        socket.shutdown().await.unwrap();
        while socket.read_u8().await.is_ok() {}
    })
    .await;
    let client = client();
    for _ in 0..2 {
        assert_eq!(whole(&client, &uri).await, (Bytes::from("hello, world"), true));
    }
}

fn post(body: Bytes) -> Request<Bytes> {
    Request::post("/").body(body).unwrap()
}

/// More than all buffers between two sockets hold.
fn large() -> Bytes {
    Bytes::from(vec![b'x'; 32 << 20])
}

#[tokio::test]
async fn a_refusal_in_the_middle_of_a_large_body_arrives() {
    const REFUSAL: &[u8] = b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\nconnection: close\r\n\r\nlarge";
    // Then nothing more is read; or the connection is closed with bytes unread, which is a reset.
    for reset in [false, true] {
        let uri = scripted(move |mut socket| async move {
            socket.read_exact(&mut [0; 4096]).await.unwrap();
            socket.write_all(REFUSAL).await.unwrap();
            if !reset {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        })
        .await;
        let client = client();
        for _ in 0..10 {
            let (answer, dialed) = client.request(&uri, post(large())).await;
            let answer = answer.unwrap();
            assert_eq!((answer.status(), dialed), (http::StatusCode::PAYLOAD_TOO_LARGE, true));
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "large");
        }
        assert!(client.spot(uri.authority().unwrap().as_str()).is_empty());
    }
    // Without a word about the connection: it cannot be used again all the same.
    let uri = scripted(|mut socket| async move {
        socket.read_exact(&mut [0; 4096]).await.unwrap();
        socket.write_all(b"HTTP/1.1 429 Slow\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    })
    .await;
    let client = client();
    for _ in 0..2 {
        let (answer, dialed) = client.request(&uri, post(large())).await;
        assert_eq!((answer.unwrap().status().as_u16(), dialed), (429, true));
    }
}

#[tokio::test]
async fn an_upstream_that_answers_before_it_reads_does_not_stop_either_end() {
    let uri = scripted(|mut socket| async move {
        for _ in 0..2 {
            let body = large();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            socket.read_u8().await.unwrap();
            socket.write_all(head.as_bytes()).await.unwrap();
            socket.write_all(&body[..body.len() - 1]).await.unwrap();
            let mut left = body.len() as u64;
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                seen.push(socket.read_u8().await.unwrap());
            }
            let mut sink = vec![0; 1 << 20];
            while left > 0 {
                left -= socket.read(&mut sink).await.unwrap() as u64;
            }
            socket.write_all(b"x").await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    })
    .await;
    let client = client();
    for n in 0..2 {
        let exchange = async {
            let (answer, dialed) = client.request(&uri, post(large())).await;
            assert_eq!(dialed, n == 0, "all of the request has gone: the connection is as good as new");
            answer.unwrap().into_body().collect().await.unwrap().to_bytes()
        };
        let body = tokio::time::timeout(Duration::from_secs(30), exchange).await.unwrap();
        assert_eq!(body.len(), large().len());
    }
}

#[tokio::test]
async fn a_connection_that_dies_without_a_word_is_told_from_one_that_had_begun() {
    for (sends, reset) in
        [("", false), ("", true), ("HTTP/1.1 100 Continue\r\n\r\n", false), ("HTTP/1.1", true)]
    {
        let uri = scripted(move |mut socket| async move {
            socket.read_u8().await.unwrap();
            socket.write_all(sends.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            if reset {
                socket.set_zero_linger().unwrap();
            } else {
                socket.shutdown().await.unwrap();
                while socket.read_u8().await.is_ok() {}
            }
        })
        .await;
        let error = client().request(&uri, get()).await.0.unwrap_err();
        assert_eq!(matches!(error, Error::Gone(_)), sends.is_empty(), "{error}");
        assert_eq!(matches!(error, Error::Cut(_)), !sends.is_empty(), "{error}");
    }
}

#[tokio::test]
async fn a_head_without_an_end_is_not_read_for_ever() {
    for line in ["x: y\r\n", "HTTP/1.1 100 Go on\r\n\r\n", "y"] {
        let uri = scripted(move |mut socket| async move {
            let _ = socket.write_all(if line.len() > 10 { b"" } else { b"HTTP/1.1 200 OK\r\nx: " }).await;
            let lines = line.repeat(1000);
            while socket.write_all(lines.as_bytes()).await.is_ok() {}
        })
        .await;
        let answer = tokio::time::timeout(Duration::from_secs(20), client().request(&uri, get())).await;
        assert!(matches!(answer.unwrap().0, Err(Error::NotHttp)), "{line}");
    }
}

#[tokio::test]
async fn an_exchange_that_is_dropped_closes_its_connection() {
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let uri = scripted(move |mut socket| {
        let tell = tell.clone();
        async move {
            socket.read_u8().await.unwrap();
            tell.send("asked").await.unwrap();
            while socket.read_u8().await.is_ok() {}
            tell.send("gone").await.unwrap();
        }
    })
    .await;
    let client = client();
    tokio::select! {
        _ = client.request(&uri, get()) => panic!("it cannot end"),
        word = told.recv() => assert_eq!(word, Some("asked")),
    }
    assert_eq!(told.recv().await, Some("gone"));
}
