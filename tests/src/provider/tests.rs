use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{
    Provider,
    record::{End, sha256},
    script::{Answer, Ending, Failure, KeyState, Pace, Rule},
};
use crate::http::Call;

const LIMIT: Duration = Duration::from_secs(10);

fn with_key(call: &Call, key: &str) -> Call {
    call.clone().header("authorization", &format!("Bearer {key}"))
}

#[tokio::test]
async fn a_valid_key_gets_good_answers_plain_and_streamed_in_both_dialects() -> Result<()> {
    let provider = Provider::start().await?;
    let plain = Call::chat("m").send(provider.addr()).await?;
    assert_eq!(plain.content(), "Hello from the provider");
    let stream = Call::chat_stream("m").send(provider.addr()).await?;
    assert_eq!(stream.content(), "Hello from the provider");
    assert!(stream.text().ends_with("data: [DONE]\n\n"), "{}", stream.text());
    let message = json!({"model": "m", "stream": true, "messages": []});
    let message = Call::json("/v1/messages", &message).send(provider.addr()).await?;
    assert!(
        message.text().ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
        "{}",
        message.text()
    );
    Ok(())
}

#[tokio::test]
async fn keys_die_and_are_forgiven_and_every_request_is_recorded() -> Result<()> {
    let provider = Provider::start().await?;
    let call = with_key(&Call::chat("m"), "sk-1");
    provider.key("sk-1", KeyState::Dead);
    let dead = call.send(provider.addr()).await?;
    assert_eq!((dead.status.as_u16(), dead.code().as_str()), (401, "invalid_api_key"));
    provider.key("sk-1", KeyState::Valid);
    assert_eq!(call.send(provider.addr()).await?.status, 200);
    let seen =
        provider.wait_until(LIMIT, |all| all.iter().all(|r| r.answer.end == Some(End::Complete))).await?;
    let statuses: Vec<_> = seen.iter().map(|r| (r.key.as_deref(), r.answer.status)).collect();
    assert_eq!(statuses, [(Some("sk-1"), Some(401)), (Some("sk-1"), Some(200))]);
    assert_eq!(seen[0].header("authorization"), Some("<key>"), "a secret in a recorded header");
    Ok(())
}

#[tokio::test]
async fn the_newest_rule_decides_until_it_is_used_up() -> Result<()> {
    let provider = Provider::start().await?;
    provider.rule(Rule::always(Answer::fail(Failure::ServerError)));
    provider.rule(Rule::for_key("sk-1", Answer::text(200, "text/html", "<html>")).times(1));
    let call = with_key(&Call::chat("m"), "sk-1");
    assert_eq!(call.send(provider.addr()).await?.text(), "<html>");
    assert_eq!(call.send(provider.addr()).await?.status, 500);
    provider.behave();
    assert_eq!(call.send(provider.addr()).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn what_was_written_of_a_stream_is_what_its_hash_says() -> Result<()> {
    let provider = Provider::start().await?;
    let mut rule = Rule::always(Answer::Good);
    rule.pace = Pace { bytes: Some(7), delay_ms: 0 };
    provider.rule(rule);
    let reply = Call::chat_stream("m").send(provider.addr()).await?;
    let seen = provider.wait_until(LIMIT, |all| all.iter().any(|r| r.answer.end.is_some())).await?;
    assert_eq!(seen[0].answer.sha256.as_deref(), Some(sha256(&reply.body).as_str()));
    assert!(seen[0].answer.pieces > 10, "{:?}", seen[0].answer);
    Ok(())
}

#[tokio::test]
async fn a_cut_breaks_the_body_and_a_hang_lasts_until_the_peer_leaves() -> Result<()> {
    let provider = Provider::start().await?;
    for then in [Ending::Cut, Ending::Reset] {
        provider.rule(Rule::always(Answer::Part { events: 2, then }).times(1));
        let reply = Call::chat_stream("m").send(provider.addr()).await?;
        assert!(reply.broken.is_some(), "{then:?} looked like a proper end: {}", reply.text());
    }
    provider.rule(Rule::always(Answer::Part { events: 1, then: Ending::Hang }));
    let mut open = Call::chat_stream("m").open(provider.addr()).await?;
    ensure!(open.piece().await?.is_some_and(|p| p.starts_with(b"data: ")), "no first event");
    drop(open);
    provider
        .wait_until(LIMIT, |all| all.last().is_some_and(|r| r.answer.end == Some(End::PeerClosed)))
        .await?;
    for answer in [Answer::Close, Answer::Reset] {
        provider.rule(Rule::always(answer.clone()).times(1));
        ensure!(Call::chat("m").send(provider.addr()).await.is_err(), "{answer:?} answered");
    }
    Ok(())
}

#[tokio::test]
async fn a_held_answer_comes_when_it_is_released_and_the_control_api_says_so() -> Result<()> {
    let provider = Provider::start().await?;
    let rule = json!({"hold": "late", "times": 1, "answer": {"kind": "fail", "error": "invalid_api_key"}});
    assert_eq!(Call::json("/control/rules", &rule).send(provider.addr()).await?.status, 200);
    let addr = provider.addr();
    let held = tokio::spawn(async move { Call::chat("m").send(addr).await });
    let seen = Call::get("/control/requests?wait=1").send(addr).await?;
    assert_eq!(seen.json()[0]["answer"]["status"], json!(null), "it was answered although held");
    Call::post("/control/release/late", "").send(addr).await?;
    assert_eq!(held.await??.status, 401);
    let wrong = Call::json("/control/rules", &json!({"anser": 1})).send(addr).await?;
    assert_eq!(wrong.status, 400, "an unknown field was taken: {}", wrong.text());
    Ok(())
}
