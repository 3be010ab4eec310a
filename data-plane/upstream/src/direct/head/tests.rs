use bytes::Bytes;
use http::Request;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::direct::chunks::Next;

/// An answer as it was read: its head in short, its body, and whether the body ended there.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    keep: bool,
    body: Vec<u8>,
    ended: bool,
    left: Vec<u8>,
}

/// `None`: the head is not whole.
fn read<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, asked: &Method) -> Result<Option<Read>, NotHttp> {
    let mut came = BytesMut::new();
    let mut pieces = pieces.into_iter();
    let mut head = loop {
        match take(&mut came, asked)? {
            Some(head) => break head,
            None => match pieces.next() {
                Some(piece) => came.extend_from_slice(piece),
                None => return Ok(None),
            },
        }
    };
    let (mut body, mut ended) = (Vec::new(), false);
    loop {
        ended |= head.extent.ends_here(&mut came);
        match head.extent.next(&mut came) {
            Next::Data(bytes) => {
                assert!(!ended && !bytes.is_empty());
                body.extend_from_slice(&bytes);
            }
            Next::End => {
                ended = true;
                break;
            }
            Next::Bad => return Err(NotHttp),
            Next::More => match pieces.next() {
                Some(piece) => came.extend_from_slice(piece),
                None => break,
            },
        }
    }
    pieces.for_each(|piece| came.extend_from_slice(piece));
    let headers =
        head.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect();
    let status = head.status.as_u16();
    Ok(Some(Read { status, headers, keep: head.keep, body, ended, left: came.to_vec() }))
}

#[test]
fn a_request_is_written_as_the_client_library_does() {
    let text = |method: Method, uri: &str, length| {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("X-One", "1")
            .header("content-length", "77")
            .header("transfer-encoding", "chunked")
            .header("x-two", HeaderValue::from_bytes(b"\xc3\xa4").unwrap())
            .header("x-one", "again")
            .header("host", "there:1");
        let mut text = Vec::new();
        encode(&request.body(()).unwrap().into_parts().0, length, &mut text);
        String::from_utf8(text).unwrap()
    };
    let headers = "x-one: 1\r\nx-one: again\r\nx-two: ä\r\nhost: there:1\r\n";
    assert_eq!(
        text(Method::POST, "/v1/chat?a=b", 12),
        format!("POST /v1/chat?a=b HTTP/1.1\r\n{headers}content-length: 12\r\n\r\n")
    );
    assert_eq!(
        text(Method::POST, "/", 0),
        format!("POST / HTTP/1.1\r\n{headers}content-length: 0\r\n\r\n"),
        "a method that means a body says that there is none"
    );
    assert_eq!(text(Method::GET, "/v1/models", 0), format!("GET /v1/models HTTP/1.1\r\n{headers}\r\n"));
    assert_eq!(
        text(Method::DELETE, "/x", 2),
        format!("DELETE /x HTTP/1.1\r\n{headers}content-length: 2\r\n\r\n")
    );
}

#[test]
fn a_head_says_how_far_the_body_goes_and_what_becomes_of_the_connection() {
    let post = Method::POST;
    // What follows the status, the body as it is read, whether it ended, whether the connection stays, what is left.
    let wire = "5\r\nhello\r\n0\r\n\r\nmore";
    for (head, body, ended, keep, left) in [
        ("1.1 200 OK\r\nContent-Length: 3\r\n", "5\r\n", true, true, "hello\r\n0\r\n\r\nmore"),
        ("1.1 200 OK\r\ncontent-length: 0\r\n", "", true, true, wire),
        ("1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 3, 03\r\n", "5\r\n", true, true, &wire[3..]),
        ("1.1 200\r\ncontent-length: 99\r\n", wire, false, true, ""),
        ("1.1 200 OK\r\ntransfer-encoding: chunked\r\n", "hello", true, true, "more"),
        ("1.1 200 OK\r\nTransfer-Encoding:gzip , Chunked\r\n", "hello", true, true, "more"),
        (
            "1.1 200 OK\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
            "hello",
            true,
            true,
            "more",
        ),
        ("1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n", "hello", true, false, "more"),
        ("1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n", "hello", true, false, "more"),
        ("1.1 200 OK\r\ntransfer-encoding: chunked, gzip\r\n", wire, false, true, ""),
        ("1.1 200 OK\r\ntransfer-encoding: gzip\r\ncontent-length: 3\r\n", wire, false, false, ""),
        ("1.1 200 OK\r\n", wire, false, true, ""),
        ("1.1 204 None\r\ncontent-length: 3\r\n", "", true, true, wire),
        ("1.1 304 Same\r\ntransfer-encoding: chunked\r\n", "", true, true, wire),
        ("1.1 200 OK\r\nconnection: Keep-Alive, CLOSE\r\ncontent-length: 0\r\n", "", true, false, wire),
        (
            "1.1 200 OK\r\nconnection: close\r\nconnection: keep-alive\r\ncontent-length: 0\r\n",
            "",
            true,
            false,
            wire,
        ),
        ("1.1 200 OK\r\nconnection: closed\r\ncontent-length: 0\r\n", "", true, true, wire),
        ("1.0 200 OK\r\ncontent-length: 0\r\n", "", true, false, wire),
        ("1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 0\r\n", "", true, true, wire),
        ("1.0 200 OK\r\n", wire, false, false, ""),
    ] {
        let text = format!("HTTP/{head}\r\n{wire}");
        let read = read([text.as_bytes()], &post).unwrap().unwrap();
        assert_eq!(
            (String::from_utf8(read.body).unwrap().as_str(), read.ended, read.keep),
            (body, ended, keep),
            "{head}"
        );
        assert_eq!(String::from_utf8(read.left).unwrap(), left, "{head}");
    }
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n";
    let read = read([&head[..]], &Method::HEAD).unwrap().unwrap();
    assert!(read.ended && read.keep, "an answer to HEAD tells of a body that does not come");
}

#[test]
fn what_is_no_head_is_told_and_not_guessed_at() {
    let good = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nx: y\r\n\r\nabc";
    for (from, to) in [
        ("HTTP/1.1", "HTTP/2.0"),
        ("HTTP/1.1", "HTTP/1.2"),
        ("HTTP/1.1", "SSH-2.0"),
        ("HTTP/1.1", "{\"error\""),
        ("200", "99"),
        ("200", "2x0"),
        ("200", "101"),
        ("200 OK\r\n", "200 OK\r\n x: folded\r\n"),
        ("x: y", "x: y\r\n folded"),
        ("x: y", "x : y"),
        ("x: y", "x"),
        ("x: y", ": y"),
        ("x: y", "x: \0"),
        ("x: y", "x: \x7f"),
        ("x: y", "content-length: 4"),
        ("x: y", "content-length: x"),
        (": 3", ": -3"),
        (": 3", ": +3"),
        (": 3", ": 0x3"),
        (": 3", ": 3,"),
        (": 3", ": 3, 4"),
        (": 3", ":"),
        (": 3", ": 18446744073709551614"),
        (": 3", ": 18446744073709551616"),
    ] {
        assert!(good.contains(from), "{from}");
        let text = good.replacen(from, to, 1);
        assert_eq!(read([text.as_bytes()], &Method::GET), Err(NotHttp), "{text:?}");
    }
    let chunks_in_1_0 = b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(read([&chunks_in_1_0[..]], &Method::GET), Err(NotHttp));
    for (length, good) in [(LONGEST, true), (LONGEST + 1, false)] {
        let text = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(length - 24));
        assert_eq!((text.len(), read([text.as_bytes()], &Method::GET).is_ok()), (length, good));
    }
    for (headers, good) in [(MAX_HEADERS, true), (MAX_HEADERS + 1, false)] {
        let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(headers));
        assert_eq!(read([text.as_bytes()], &Method::GET).is_ok(), good);
    }
}

#[test]
fn heads_that_only_inform_are_passed_over() {
    let early =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\ncontent-length: 7\r\n\r\n";
    let text = format!("{early}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi");
    for cut in 0..=text.len() {
        let (one, two) = text.as_bytes().split_at(cut);
        let read = read([one, two], &Method::POST).unwrap().unwrap();
        assert_eq!((read.status, &read.body[..], read.ended, read.headers.len()), (200, &b"hi"[..], true, 1));
    }
    assert_eq!(read([early.as_bytes()], &Method::POST), Ok(None));
}

/// An answer as some server might send it, and the body that it carries.
fn answers() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let header = ("[a-zA-Z][a-zA-Z0-9_-]{0,20}", "[ -~\u{e0}-\u{ff}\t]{0,40}");
    let framing = prop_oneof![Just("length"), Just("chunks"), Just("close")];
    let data = vec(vec(any::<u8>(), 1..300), 0..6);
    let parts = (0usize..3, any::<bool>(), 200u16..600, vec(header, 0..30), framing, data, any::<bool>());
    parts.prop_map(|(early, old, status, headers, framing, data, trailer)| {
        let mut text = b"HTTP/1.1 102 Processing\r\n\r\n".repeat(early);
        let old = old && framing != "chunks";
        text.extend(format!("HTTP/1.{} {status} Reason\r\n", u8::from(!old)).bytes());
        for (name, value) in headers {
            let framed = ["connection", "content-length", "transfer-encoding"];
            if !framed.contains(&name.to_ascii_lowercase().as_str()) {
                text.extend(format!("{name}: {value}\r\n").bytes());
            }
        }
        let body = data.concat();
        if matches!(status, 204 | 304) {
            text.extend(b"\r\n");
            return (text, Vec::new());
        }
        match framing {
            "length" => text.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes()),
            "chunks" => text.extend(b"Transfer-Encoding: chunked\r\n\r\n"),
            _ => text.extend(b"\r\n"),
        }
        if framing == "chunks" {
            for chunk in &data {
                text.extend(format!("{:X}\r\n", chunk.len()).bytes());
                text.extend(chunk);
                text.extend(b"\r\n");
            }
            text.extend(if trailer { &b"0\r\nx-trailer: yes\r\n\r\n"[..] } else { b"0\r\n\r\n" });
        } else {
            text.extend(&body);
        }
        (text, body)
    })
}

proptest! {
    #[test]
    fn however_an_answer_is_cut_it_reads_the_same(
        (text, body) in answers(),
        cuts in vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let whole = read([&text[..]], &Method::POST).unwrap().unwrap();
        prop_assert_eq!(&whole.body, &body);
        prop_assert!(whole.left.is_empty());
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]);
        prop_assert_eq!(read(pieces, &Method::POST), Ok(Some(whole)));
    }

    #[test]
    fn no_bytes_whatever_upset_the_reader(bytes in vec(any::<u8>(), 0..400), keep in 0usize..80) {
        let good = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
        let _ = read([&good[..keep], &bytes], &Method::POST);
    }
}

#[test]
fn a_value_keeps_what_was_read_and_no_more() {
    let mut came = BytesMut::from(&b"HTTP/1.1 200 OK\r\nx: secret\r\ny:\r\ncontent-length: 2\r\n\r\nhi"[..]);
    let head = take(&mut came, &Method::GET).unwrap().unwrap();
    assert_eq!((head.headers["x"].as_bytes(), head.headers["y"].as_bytes()), (&b"secret"[..], &b""[..]));
    assert_eq!(Bytes::from(came), "hi");
}
