//! The table of presets, cell by cell: what a caller gets, after how many attempts, and what the fleet believes afterwards.

use anyhow::{Context as _, Result};
use spareline_proto::{
    admin::v1::UpdatePolicyRequest,
    registry::v1::{Cause, Channel, Policy, ServingState},
};
use spareline_tests::{
    http::Call,
    provider::script::{Answer, Rule},
    stack::{SOON, Stack},
};

/// What the caller gets, after how many attempts, and why something is out afterwards.
type Cell = (u16, usize, Option<Cause>);

/// A row: its name, what the first channel answers (no status: nothing listens there), the cells of `availability`,
/// `conservative` and `layered`.
type Row = (&'static str, u16, &'static str, [Cell; 3]);

const SWITCH: Cell = (200, 2, None);
const KEY: Option<Cause> = Some(Cause::Credential);

const ROWS: [Row; 14] = [
    ("network", 0, "", [SWITCH; 3]),
    ("s500", 500, r#"{"error":{"message":"x"}}"#, [SWITCH; 3]),
    ("s504", 504, r#"{"error":{"message":"x"}}"#, [SWITCH, SWITCH, (504, 1, None)]),
    ("s524", 524, "x", [SWITCH, SWITCH, (524, 1, None)]),
    ("unparsable", 200, "<html></html>", [SWITCH, SWITCH, (200, 1, None)]),
    ("throttle", 429, "{}", [(200, 2, Some(Cause::Throttled)), (429, 1, None), SWITCH]),
    (
        "dead-key",
        401,
        r#"{"error":{"message":"Incorrect API key provided: x","code":"invalid_api_key"}}"#,
        [(200, 2, KEY), (502, 1, None), (200, 2, KEY)],
    ),
    (
        "no-money",
        402,
        r#"{"error":{"message":"Insufficient Balance","code":"insufficient_balance"}}"#,
        [(200, 2, Some(Cause::Quota)), (502, 1, None), (200, 2, Some(Cause::Quota))],
    ),
    (
        "closed",
        403,
        r#"{"error":{"message":"The account is deactivated","code":"account_deactivated"}}"#,
        [(200, 2, KEY), (502, 1, None), (200, 2, KEY)],
    ),
    (
        "model",
        404,
        r#"{"error":{"message":"The model `x` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#,
        [(200, 2, Some(Cause::ModelUnavailable)), (404, 1, None), (404, 1, None)],
    ),
    ("s408", 408, "", [SWITCH, (408, 1, None), (408, 1, None)]),
    ("s307", 307, "", [SWITCH, (307, 1, None), SWITCH]),
    ("s418", 418, r#"{"error":{"message":"tea"}}"#, [(418, 1, None); 3]),
    ("s400", 400, r#"{"error":{"message":"bad thing","type":"invalid_request_error"}}"#, [(400, 1, None); 3]),
];

#[tokio::test]
async fn verdicts_part8_each_cell_of_the_preset_table() -> Result<()> {
    let stack = Stack::small().await?;
    for (column, preset) in ["availability", "conservative", "layered"].into_iter().enumerate() {
        let policy = Policy { preset: preset.to_owned(), ..Default::default() };
        let update_mask = Some(prost_types::FieldMask { paths: vec!["preset".to_owned()] });
        let change = UpdatePolicyRequest { policy: Some(policy), update_mask, ..Default::default() };
        stack.control.policies()?.update_policy(change).await?;
        for (row, status, body, _) in ROWS {
            pair(&stack, &format!("{preset}-{row}"), "openai", status, body).await?;
        }
        let bad = r#"{"type":"error","error":{"type":"invalid_request_error","message":"tools.0: bad"}}"#;
        pair(&stack, &format!("{preset}-anthropic"), "anthropic", 400, bad).await?;
        stack.settled().await?;
        for (row, _, _, cells) in ROWS {
            let model = format!("{preset}-{row}");
            let (status, attempts, cause) = *cells.get(column).context("three presets")?;
            let reply = stack.send(&Call::chat(&model)).await?;
            let tried = reply.attempts().split(", ").count();
            assert_eq!((reply.status.as_u16(), tried), (status, attempts), "{model}: {}", reply.attempts());
            let first = format!("{model}-first");
            if cause.is_none() {
                assert_eq!(out(&stack, &first).await?, None, "{model}");
                continue;
            }
            let found = |v: &spareline_proto::admin::v1::ChannelView| cause_of(v) == cause;
            stack.wait_for_view(&first, SOON, found).await.context(model)?;
        }
        let body = serde_json::json!({
            "model": format!("{preset}-anthropic"), "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]
        });
        let reply = stack.send(&Call::json("/v1/messages", &body)).await?;
        let wanted = if preset == "layered" { 200 } else { 400 };
        assert_eq!(reply.status, wanted, "{preset}: {}", reply.attempts());
    }
    for (preset, row) in [("conservative", "dead-key"), ("conservative", "throttle"), ("layered", "throttle")]
    {
        assert_eq!(
            out(&stack, &format!("{preset}-{row}-first")).await?,
            None,
            "{preset} {row} counts nowhere"
        );
    }
    Ok(())
}

/// Two channels of one model, the first of which answers this.
async fn pair(stack: &Stack, model: &str, provider: &str, status: u16, body: &str) -> Result<()> {
    let channel = |name: String, priority| Channel {
        provider: provider.to_owned(),
        priority,
        ..stack.channel(&name, model)
    };
    let mut first = channel(format!("{model}-first"), 2);
    if status == 0 {
        first.base_url = "http://127.0.0.1:9/v1".to_owned();
    } else {
        let kind = if body.starts_with('<') { "text/html" } else { "application/json" };
        let key = format!("sk-{model}-first");
        stack.provider.rule(Rule::for_key(&key, Answer::text(status, kind, body)));
    }
    stack.create(first, &[&format!("sk-{model}-first")]).await?;
    stack.create(channel(format!("{model}-second"), 1), &[&format!("sk-{model}-second")]).await?;
    Ok(())
}

async fn out(stack: &Stack, channel: &str) -> Result<Option<Cause>> {
    Ok(cause_of(&stack.view(channel).await?))
}

/// Why anything of a channel is out.
fn cause_of(view: &spareline_proto::admin::v1::ChannelView) -> Option<Cause> {
    view.statuses
        .iter()
        .find(|s| s.state() != ServingState::Active)
        .map(spareline_proto::registry::v1::Status::cause)
}
