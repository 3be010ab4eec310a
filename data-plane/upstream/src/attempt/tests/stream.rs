//! Streams: both phases, over real sockets.

use std::time::Duration;

use http_body_util::BodyExt as _;
use spareline_core::classify::Limit;
use spareline_core::commit::Finish;
use spareline_core::{Class, Endpoint, Provider};

use crate::attempt::{Answer, CommitMode, Ending, Failed};
use crate::testing::{CHAT_STREAM, DONE, Peer, ROLE, STOP, Setup, USAGE, Upstream, delta, finish, outgoing};

/// What the upstream does after its pieces.
#[derive(Clone, Copy)]
enum Then {
    End,
    Cut,
    Hang,
}

async fn serve(mut peer: Peer, pieces: Vec<String>, then: Then) {
    while peer.request().await.is_some() {
        peer.stream_head().await;
        for piece in &pieces {
            peer.chunk(piece).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        match then {
            Then::End => peer.last_chunk().await,
            Then::Cut => return,
            Then::Hang => {
                peer.gone().await;
                return;
            }
        }
    }
}

async fn upstream(pieces: &[&str], then: Then) -> Upstream {
    let pieces: Vec<String> = pieces.iter().map(|&piece| piece.to_owned()).collect();
    Upstream::start(move |peer| serve(peer, pieces.clone(), then)).await
}

async fn run(pieces: &[&str], then: Then, change: impl FnOnce(&mut Setup)) -> Result<Answer, Box<Failed>> {
    let upstream = upstream(pieces, then).await;
    let mut setup = Setup::new(&upstream.url, CHAT_STREAM);
    change(&mut setup);
    setup.go().await
}

#[tokio::test]
async fn bytes_pass_untouched_and_end_at_the_terminal_event_whatever_the_upstream_does() {
    for then in [Then::End, Then::Cut, Then::Hang] {
        let text = [
            ": hello\n\n",
            ROLE,
            &delta("a\u{2028}b"),
            "data: malformed\n\n",
            &delta("c"),
            STOP,
            USAGE,
            DONE,
        ];
        let answer = run(&text, then, |_| {}).await.unwrap();
        assert!(answer.stream);
        assert_eq!(answer.headers["content-type"], "text/event-stream");
        assert_eq!(answer.headers["x-accel-buffering"], "no");
        let (body, end) = tokio::time::timeout(Duration::from_secs(1), finish(answer)).await.unwrap();
        assert_eq!(body, text.concat());
        assert_eq!((end.ending, end.finish), (Ending::Complete, Some(Finish::Stop)));
        assert_eq!((end.usage.input, end.usage.output, end.bytes), (Some(3), Some(5), body.len() as u64));
        assert!(end.verdict.is_none());
    }
}

#[tokio::test]
async fn whatever_comes_before_content_is_a_failure_nobody_sees() {
    let quota = "data: {\"error\":{\"message\":\"You exceeded your current quota\",\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\"}}\n\n";
    let busy = "data: {\"error\":{\"message\":\"The server had an error\",\"type\":\"server_error\"}}\n\n";
    let bare = quota.trim_start_matches("data: ").trim_end();
    let cases: [(&[&str], Then, Class); 10] = [
        (&[quota], Then::End, Class::Disable),
        // Not even an event, whatever the head says.
        (&[bare], Then::End, Class::Disable),
        (&["<html>oops</html>"], Then::End, Class::Retryable),
        (&[ROLE, busy], Then::Hang, Class::Retryable),
        (&[DONE], Then::End, Class::Retryable),
        (&[": ping\n\n", ": ping\n\n"], Then::End, Class::Retryable),
        (&[ROLE, STOP, DONE], Then::End, Class::Retryable),
        (&[], Then::End, Class::Retryable),
        (&["data: {\"id\":\"x"], Then::Cut, Class::Retryable),
        (&[ROLE], Then::Cut, Class::Retryable),
    ];
    for (number, (pieces, then, class)) in cases.into_iter().enumerate() {
        let failed = run(pieces, then, |_| {}).await.map(|_| ()).unwrap_err();
        assert_eq!(failed.verdict.class, class, "case {number}: {}", failed.verdict.reason());
        assert!(!failed.silent, "case {number}");
    }
}

#[tokio::test]
async fn an_error_event_that_is_the_requests_fault_is_passed_on_as_it_came() {
    let long = "data: {\"object\":\"error\",\"message\":\"maximum context length\",\"type\":\"BadRequestError\",\"code\":400}\n\n";
    let failed = run(&[long, DONE], Then::Hang, |_| {}).await.map(|_| ()).unwrap_err();
    assert_eq!(failed.verdict.class, Class::Transparent, "{}", failed.verdict.reason());
    let response = failed.response.unwrap();
    assert_eq!((response.status.as_u16(), &response.body[..]), (200, [long, DONE].concat().as_bytes()));
    let bare = long.trim_start_matches("data: ").trim_end();
    let failed = run(&[bare], Then::End, |_| {}).await.map(|_| ()).unwrap_err();
    assert_eq!(failed.verdict.class, Class::Transparent, "{}", failed.verdict.reason());
    let response = failed.response.unwrap();
    assert_eq!(response.headers["content-type"], "application/json");
    assert_eq!(&response.body[..], bare.as_bytes());
}

#[tokio::test]
async fn silence_before_content_ends_at_first_content_timeout() {
    for pieces in [&[][..], &[ROLE], &[": a\n\n", ": b\n\n"]] {
        let failed =
            run(pieces, Then::Hang, |setup| setup.limits.first_content = Some(Duration::from_millis(200)))
                .await
                .map(|_| ())
                .unwrap_err();
        assert_eq!(failed.limit, Some(Limit::FirstContent));
        assert_eq!(failed.verdict.detail.to_string(), "first_content_timeout");
    }
    let failed = run(&[ROLE], Then::Hang, |setup| {
        (setup.limits.first_content, setup.limits.response) = (None, Duration::from_millis(200));
    })
    .await
    .map(|_| ())
    .unwrap_err();
    assert_eq!(failed.limit, Some(Limit::Response));
    let upstream = Upstream::start(|mut peer| async move {
        peer.request().await;
        peer.gone().await;
    })
    .await;
    let mut setup = Setup::new(&upstream.url, CHAT_STREAM);
    setup.limits.first_content = Some(Duration::from_millis(200));
    let failed = setup.go().await.unwrap_err();
    assert!(failed.silent && failed.limit == Some(Limit::FirstContent));
}

#[tokio::test]
async fn a_refusal_without_content_is_an_answer() {
    let filtered =
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"content_filter\"}]}\n\n";
    let (body, end) = finish(run(&[ROLE, filtered, DONE], Then::End, |_| {}).await.unwrap()).await;
    assert_eq!(body, [ROLE, filtered, DONE].concat());
    assert_eq!((end.ending, end.finish), (Ending::Complete, Some(Finish::Refused)));
    let (_, end) = finish(run(&[ROLE, filtered], Then::End, |_| {}).await.unwrap()).await;
    assert_eq!(end.ending, Ending::Complete);
}

#[tokio::test]
async fn a_break_after_the_commit_is_told_once_in_the_callers_dialect_and_never_done() {
    let text = delta("a");
    for (pieces, then, ending, limit) in [
        (vec![text.as_str()], Then::Cut, Ending::Broken, None),
        (vec![&text], Then::Hang, Ending::Stalled, Some(Limit::Idle)),
        (vec![&text], Then::End, Ending::EndedWithoutFinish, None),
        (vec![&text, "data: {\"cho"], Then::Cut, Ending::Broken, None),
    ] {
        let answer =
            run(&pieces, then, |setup| setup.limits.idle = Duration::from_millis(200)).await.unwrap();
        let (body, end) = finish(answer).await;
        assert_eq!((end.ending, end.limit), (ending, limit));
        assert!(end.verdict.is_some_and(|verdict| verdict.class == Class::Retryable));
        let sent = pieces.concat();
        let event = body.strip_prefix(&sent).unwrap();
        assert_eq!(event.matches("stream_interrupted").count(), 1);
        assert!(event.trim_start().starts_with("data: {\"error\":") && event.ends_with("}\n\n"), "{event}");
        assert!(!body.contains("[DONE]"));
        assert_eq!(end.limit.is_some(), body.contains("idle_timeout"));
    }
}

#[tokio::test]
async fn other_dialects_get_their_own_error_event() {
    let message = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n";
    let answer = run(&[message], Then::Cut, |setup| {
        setup.target.provider = Provider::Anthropic;
        setup.request = outgoing(Endpoint::Messages, "/v1/messages", CHAT_STREAM);
    })
    .await
    .unwrap();
    let (body, _) = finish(answer).await;
    assert!(body.contains("event: error\ndata: {\"error\":{") && body.contains("api_error"), "{body}");
}

#[tokio::test]
async fn a_finish_reason_and_a_clean_end_is_complete_without_done() {
    let text = [&delta("a"), STOP];
    let (body, end) = finish(run(&text, Then::End, |_| {}).await.unwrap()).await;
    assert_eq!((body, end.ending), (text.concat(), Ending::Complete));
}

#[tokio::test]
async fn an_error_event_in_the_middle_passes_as_it_came_and_is_the_ending() {
    let busy = "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\",\"code\":\"server_error\"}}\n\n";
    for (last, then) in [(DONE, Then::Hang), ("", Then::End), ("", Then::Cut)] {
        let text = [&delta("a"), busy, last];
        let pieces: Vec<&str> = text.iter().copied().filter(|piece| !piece.is_empty()).collect();
        let (body, end) = finish(run(&pieces, then, |_| {}).await.unwrap()).await;
        assert_eq!((body, end.ending), (text.concat(), Ending::ErrorEvent));
        assert!(end.verdict.is_some());
    }
}

#[tokio::test]
async fn assured_streams_come_whole_or_not_at_all() {
    let assured = |setup: &mut Setup| {
        setup.commit = CommitMode::Assured;
        setup.limits.idle = Duration::from_millis(200);
    };
    let text = [ROLE, &delta("a"), &delta("b"), STOP, DONE];
    let (body, end) = finish(run(&text, Then::Hang, assured).await.unwrap()).await;
    assert_eq!((body, end.ending), (text.concat(), Ending::Complete));
    let (body, _) = finish(run(&[&delta("a"), STOP], Then::End, assured).await.unwrap()).await;
    assert_eq!(body, delta("a") + STOP);
    let busy = "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\n";
    for (last, then, limit) in [
        ("", Then::Cut, None),
        ("", Then::End, None),
        ("", Then::Hang, Some(Limit::Idle)),
        (busy, Then::End, None),
    ] {
        let text = [delta("a"), last.to_owned()];
        let pieces: Vec<&str> = text.iter().map(String::as_str).filter(|piece| !piece.is_empty()).collect();
        let failed = run(&pieces, then, assured).await.map(|_| ()).unwrap_err();
        assert_eq!((failed.verdict.class, failed.limit), (Class::Retryable, limit));
    }
}

#[tokio::test]
async fn commit_at_headers_passes_everything() {
    let answer = run(&[ROLE, DONE], Then::End, |setup| setup.commit = CommitMode::Headers).await.unwrap();
    let (body, end) = finish(answer).await;
    assert_eq!((body, end.ending), ([ROLE, DONE].concat(), Ending::Complete));
}

#[tokio::test]
async fn the_hold_is_bounded() {
    let role = ROLE.repeat(300);
    let (body, end) = finish(run(&[&role, &delta("a"), DONE], Then::End, |_| {}).await.unwrap()).await;
    assert_eq!((body.len(), end.ending), (role.len() + delta("a").len() + DONE.len(), Ending::Complete));
    let comment = format!(": {}\n\n", "x".repeat(600_000));
    let answer = run(&[&comment, &comment], Then::Hang, |_| {}).await.unwrap();
    drop(answer);
}

#[tokio::test]
async fn usage_that_only_we_asked_for_is_taken_out_again() {
    let text = [ROLE, &delta("a"), STOP, USAGE, DONE];
    let ask = |setup: &mut Setup| setup.request_usage = true;
    let (body, end) = finish(run(&text, Then::End, ask).await.unwrap()).await;
    assert_eq!(body, [ROLE, &delta("a"), STOP, DONE].concat());
    assert_eq!((end.usage.output, end.ending), (Some(5), Ending::Complete));
    // In one write, and cut anywhere.
    let whole = text.concat();
    for at in [1, 60, 150, whole.len() - 20, whole.len() - 3] {
        let (a, b) = whole.split_at(at);
        let (body, _) = finish(run(&[a, b], Then::End, ask).await.unwrap()).await;
        assert_eq!(body, [ROLE, &delta("a"), STOP, DONE].concat(), "cut at {at}");
    }
    let asked = r#"{"model":"gpt","stream":true,"stream_options":{"include_usage":true}}"#;
    let (body, _) = finish(
        run(&text, Then::End, |setup| {
            setup.request_usage = true;
            setup.request = outgoing(Endpoint::ChatCompletions, "/v1/chat/completions", asked);
        })
        .await
        .unwrap(),
    )
    .await;
    assert_eq!(body, whole);
}

#[tokio::test]
async fn an_upstream_that_refuses_to_be_asked_for_usage_costs_the_caller_nothing() {
    const REFUSED: &str =
        r#"{"error":{"message":"Unknown parameter: 'stream_options'.","code":"unknown_parameter"}}"#;
    let (tell, mut told) = tokio::sync::mpsc::channel(8);
    let upstream = Upstream::start(move |mut peer| {
        let tell = tell.clone();
        async move {
            while let Some(got) = peer.request().await {
                let asked = String::from_utf8(got.body).unwrap().contains("stream_options");
                tell.send(asked).await.unwrap();
                if asked {
                    peer.answer("400 Bad Request", "content-type: application/json\r\n", REFUSED).await;
                } else {
                    let text = [ROLE, &delta("a"), STOP, DONE].concat();
                    peer.answer("200 OK", "content-type: text/event-stream\r\n", text).await;
                }
            }
        }
    })
    .await;
    let mut setup = Setup::new(&upstream.url, CHAT_STREAM);
    setup.request_usage = true;
    for wanted in [&[true, false][..], &[false]] {
        assert_eq!(finish(setup.go().await.unwrap()).await.1.ending, Ending::Complete);
        for asked in wanted {
            assert_eq!(told.recv().await, Some(*asked));
        }
    }
    // What the caller asked for itself is refused to it.
    let asked = r#"{"model":"gpt","stream":true,"stream_options":{"include_usage":true}}"#;
    setup.request = outgoing(Endpoint::ChatCompletions, "/v1/chat/completions", asked);
    assert_eq!(setup.go().await.unwrap_err().response.unwrap().body, REFUSED);
    assert_eq!((told.recv().await, told.try_recv().ok()), (Some(true), None));
}

#[tokio::test]
async fn an_event_stream_under_another_name_is_still_one() {
    let upstream = Upstream::start(|mut peer| async move {
        peer.request().await;
        let text = [ROLE, &delta("a"), DONE].concat();
        peer.answer("200 OK", "content-type: application/json\r\n", text).await;
        peer.gone().await;
    })
    .await;
    let answer = Setup::new(&upstream.url, CHAT_STREAM).go().await.unwrap();
    assert!(answer.stream && answer.headers["content-type"] == "text/event-stream");
    assert_eq!(finish(answer).await.1.ending, Ending::Complete);
}

#[tokio::test]
async fn a_compressed_stream_is_decoded_on_the_way() {
    use std::io::Write as _;
    let upstream = Upstream::start(|mut peer| async move {
        peer.request().await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n";
        peer.send(head).await;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        for piece in [ROLE, &delta("a"), &delta("b"), DONE] {
            gzip.write_all(piece.as_bytes()).unwrap();
            gzip.flush().unwrap();
            peer.send(std::mem::take(gzip.get_mut())).await;
        }
        // The end of the encoding never comes.
        peer.gone().await;
    })
    .await;
    let answer = Setup::new(&upstream.url, CHAT_STREAM).go().await.unwrap();
    assert!(!answer.headers.contains_key("content-encoding"));
    let (body, end) = tokio::time::timeout(Duration::from_secs(2), finish(answer)).await.unwrap();
    assert_eq!((body, end.ending), ([ROLE, &delta("a"), &delta("b"), DONE].concat(), Ending::Complete));
}

#[tokio::test]
async fn the_caller_leaving_closes_the_upstream_at_once_and_blames_nobody() {
    let (tell, mut told) = tokio::sync::mpsc::channel(4);
    let upstream = Upstream::start(move |mut peer| {
        let tell = tell.clone();
        async move {
            peer.request().await;
            peer.stream_head().await;
            peer.chunk(&delta("a")).await;
            peer.gone().await;
            tell.send(()).await.unwrap();
        }
    })
    .await;
    let setup = Setup::new(&upstream.url, CHAT_STREAM);
    let mut answer = setup.go().await.unwrap();
    let (ended, end) = tokio::sync::oneshot::channel();
    answer.body.on_end(|end| ended.send(end).unwrap());
    answer.body.frame().await.unwrap().unwrap();
    drop(answer);
    tokio::time::timeout(Duration::from_secs(1), told.recv()).await.unwrap().unwrap();
    let end = end.await.unwrap();
    assert!(end.ending == Ending::CallerLeft && end.verdict.is_none());
}

#[tokio::test]
async fn an_interrupt_ends_a_stream_honestly() {
    let mut answer = run(&[&delta("a")], Then::Hang, |_| {}).await.unwrap();
    let interrupt = answer.body.interrupt_handle();
    let reading = tokio::spawn(finish(answer));
    tokio::time::sleep(Duration::from_millis(30)).await;
    interrupt.interrupt();
    let (body, end) = tokio::time::timeout(Duration::from_secs(1), reading).await.unwrap().unwrap();
    assert!(body.contains("stream_interrupted") && !body.contains("[DONE]"));
    assert!(end.ending == Ending::Broken && end.verdict.is_none());
}
