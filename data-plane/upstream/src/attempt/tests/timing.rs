//! Long silences and slow streams, in paused time, over bodies without a socket.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use spareline_core::classify::Limit;
use tokio::time::{Instant, sleep};

use crate::attempt::timer::Timer;
use crate::attempt::{Answer, CommitMode, Ending, Failed, Run};
use crate::source::Incoming;
use crate::testing::{CHAT, CHAT_STREAM, DONE, ROLE, STOP, Setup, delta, finish};

/// Pieces, each after its pause; then an end, or silence for ever.
pub(super) async fn judge<P: Into<Bytes> + Send + 'static>(
    setup: &Setup,
    kind: &str,
    pieces: Vec<(u64, P)>,
    ends: bool,
) -> Result<Answer, Box<Failed>> {
    let stream = futures_util::stream::unfold((pieces.into_iter(), ends), |(mut pieces, ends)| async move {
        match pieces.next() {
            Some((seconds, piece)) => {
                sleep(Duration::from_secs(seconds)).await;
                Some((Ok::<Bytes, std::io::Error>(piece.into()), (pieces, ends)))
            }
            None if ends => None,
            None => std::future::pending().await,
        }
    });
    let response = http::Response::builder()
        .header("content-type", kind)
        .body(Incoming::Full(reqwest::Body::wrap_stream(stream)))
        .unwrap();
    let line = setup.line();
    let started = Instant::now();
    let permit = line.permit().await.unwrap();
    let attempt = setup.attempt(&line);
    let timer = Timer::phase_one(started, &attempt.limits, attempt.request.stream);
    Run::new(&attempt, started).received(response, false, permit, timer).await
}

fn setup(body: &'static str) -> Setup {
    let mut setup = Setup::new("http://127.0.0.1:1", body);
    setup.limits.first_content = Some(Duration::from_secs(120));
    setup.limits.response = Duration::from_secs(600);
    setup.limits.idle = Duration::from_secs(180);
    setup
}

#[tokio::test(start_paused = true)]
async fn a_fifteen_minute_stream_a_thinking_model_and_a_nine_minute_answer_complete() {
    let mut pieces: Vec<_> = (0..900).map(|_| (1, delta("a"))).collect();
    pieces.push((0, STOP.to_owned() + DONE));
    let answer = judge(&setup(CHAT_STREAM), "text/event-stream", pieces, false).await.unwrap();
    assert_eq!(finish(answer).await.1.ending, Ending::Complete);

    let thinking = vec![(0, ROLE.to_owned()), (100, delta("a")), (170, delta("b")), (1, DONE.to_owned())];
    let answer = judge(&setup(CHAT_STREAM), "text/event-stream", thinking, false).await.unwrap();
    assert_eq!(answer.first_content.as_secs(), 100);
    assert_eq!(finish(answer).await.1.ending, Ending::Complete);

    let good = r#"{"choices":[{"index":0,"message":{"content":"hi"}}]}"#.to_owned();
    let answer = judge(&setup(CHAT), "application/json", vec![(540, good.clone())], true).await.unwrap();
    assert_eq!(finish(answer).await.0, good);
}

#[tokio::test(start_paused = true)]
async fn each_limit_fires_when_it_should() {
    let began = Instant::now();
    let comments = (0..1000).map(|_| (1, ": ping\n\n".to_owned())).collect();
    let failed = judge(&setup(CHAT_STREAM), "text/event-stream", comments, false).await.unwrap_err();
    assert_eq!((failed.limit, began.elapsed().as_secs()), (Some(Limit::FirstContent), 120));

    let began = Instant::now();
    let failed = judge(&setup(CHAT), "application/json", vec![(1, "{".to_owned())], false).await.unwrap_err();
    assert_eq!((failed.limit, began.elapsed().as_secs()), (Some(Limit::Response), 600));

    let pieces = vec![(0, delta("a")), (170, ": ping\n\n".to_owned()), (170, ": ping\n\n".to_owned())];
    let answer = judge(&setup(CHAT_STREAM), "text/event-stream", pieces, false).await.unwrap();
    let began = Instant::now();
    let (body, end) = finish(answer).await;
    assert_eq!((end.ending, end.limit), (Ending::Stalled, Some(Limit::Idle)));
    assert_eq!(began.elapsed().as_secs(), 170 + 170 + 180, "comments count as bytes");
    assert!(body.contains("idle_timeout"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_finished_but_does_not_end_is_ended_soon() {
    let began = Instant::now();
    let pieces = vec![(0, delta("a")), (0, STOP.to_owned())];
    let answer = judge(&setup(CHAT_STREAM), "text/event-stream", pieces, false).await.unwrap();
    let (body, end) = finish(answer).await;
    assert_eq!((body, end.ending), (delta("a") + STOP, Ending::Complete));
    assert!(began.elapsed() <= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn an_assured_stream_that_has_finished_is_committed_soon() {
    let mut setup = setup(CHAT_STREAM);
    setup.commit = CommitMode::Assured;
    let began = Instant::now();
    let pieces = vec![(1, delta("a")), (100, delta("b")), (1, STOP.to_owned())];
    let answer = judge(&setup, "text/event-stream", pieces.clone(), false).await.unwrap();
    assert!(began.elapsed() <= Duration::from_secs(106));
    assert_eq!(finish(answer).await.0, pieces.into_iter().map(|(_, piece)| piece).collect::<String>());
    let failed = judge(&setup, "text/event-stream", vec![(1, delta("a"))], false).await.unwrap_err();
    assert_eq!(failed.limit, Some(Limit::Idle));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_reads_late_does_not_make_the_upstream_look_silent() {
    let pieces = vec![(0, delta("a")), (1, delta("b")), (1, delta("c")), (1, DONE.to_owned())];
    let mut answer = judge(&setup(CHAT_STREAM), "text/event-stream", pieces, false).await.unwrap();
    answer.body.frame().await.unwrap().unwrap();
    answer.body.frame().await.unwrap().unwrap();
    sleep(Duration::from_secs(1000)).await;
    assert_eq!(finish(answer).await.1.ending, Ending::Complete);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_phase_one_only() {
    let mut setup = setup(CHAT_STREAM);
    setup.limits.deadline = Some(Duration::from_secs(10));
    let failed = judge(&setup, "text/event-stream", vec![(20, delta("a"))], false).await.unwrap_err();
    assert_eq!(failed.limit, Some(Limit::Deadline));
    let pieces = vec![(5, delta("a")), (30, delta("b")), (0, DONE.to_owned())];
    let answer = judge(&setup, "text/event-stream", pieces, false).await.unwrap();
    assert_eq!(finish(answer).await.1.ending, Ending::Complete);
}
