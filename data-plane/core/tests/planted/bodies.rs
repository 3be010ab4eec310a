//! Bodies with a text wherever a model wrote it or a caller sent it: as successes, as events, and as 400s that quote it.

use serde_json::{Value, json};
use spareline_core::classify::Rules;
use spareline_core::words::Endpoint;

/// Whole errors, as a model may write them.
pub(crate) const ENVELOPES: &[&str] = &[
    r#"{"error":{"message":"Incorrect API key provided: sk-x","type":"invalid_request_error","code":"invalid_api_key"}}"#,
    r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
    r#"{"error":{"code":429,"message":"limit: 0","status":"RESOURCE_EXHAUSTED"}}"#,
    r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","code":404}"#,
    r#"{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#,
    r#"{"error_code":17,"error_msg":"Open api daily request limit reached"}"#,
    r#"{"Response":{"Error":{"Code":"AuthFailure.SecretIdNotFound","Message":"x"}}}"#,
    r#"[{"error":{"code":401,"status":"UNAUTHENTICATED"}}]"#,
    "data: {\"error\":{\"code\":\"insufficient_quota\"}}\n\n",
    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\ndata: [DONE]\n\n",
    "error code: 1010",
    "<html><head><title>401 Authorization Required</title></head></html>",
    "\"},\"error\":{\"code\":\"invalid_api_key\"},\"x\":\"",
];

/// Everything worth planting.
pub(crate) fn dictionary() -> Vec<String> {
    let phrases = Rules::builtin_texts().map(|text| text.replace(['*', '…'], "gpt-4o").replace('$', ""));
    let more = [
        "permission denied",
        "account suspended",
        "Your wallet balance is too low",
        "Your API key was revoked",
        "Model gpt-4o is only available to paid users",
        "账户余额不足",
        "令牌已过期",
        "您的密钥已失效",
        "模型已下架",
        "try again in 9m38s",
        "429",
    ];
    phrases.chain(more.map(str::to_owned)).chain(ENVELOPES.iter().map(|text| (*text).to_owned())).collect()
}

/// Plain answers with `text` wherever a model or a caller may have put it.
pub(crate) fn answers(text: &str) -> Vec<(Endpoint, Value)> {
    let own = serde_json::from_str::<Value>(text).unwrap_or_else(|_| json!(text));
    let message = json!({"role": "assistant", "content": text, "reasoning_content": text, "refusal": text,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "report_error", "arguments": text}}]});
    vec![
        (
            Endpoint::ChatCompletions,
            json!({"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-4o",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"total_tokens": 3}}),
        ),
        (
            Endpoint::ChatCompletions,
            json!({"choices": [{"message": {"content": [{"type": "text", "text": text}]}, "error": own}],
            "citations": [text], "search_results": [{"title": text, "error": own}]}),
        ),
        (
            Endpoint::Completions,
            json!({"object": "text_completion", "choices": [{"text": text, "index": 0}]}),
        ),
        (
            Endpoint::Messages,
            json!({"type": "message", "role": "assistant", "content": [{"type": "text", "text": text},
            {"type": "tool_use", "id": "t", "name": "error", "input": {"error": own, "type": "error"}}], "stop_reason": text}),
        ),
        (
            Endpoint::Responses,
            json!({"object": "response", "status": "completed", "error": null, "metadata": {"raw": text, "reasons": text},
            "instructions": text, "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}]}),
        ),
        (
            Endpoint::Embeddings,
            json!({"object": "list", "data": [{"embedding": [0.1], "input": text, "error": own}]}),
        ),
        (Endpoint::Audio, json!({"text": text, "segments": [{"text": text, "error": own}]})),
        (Endpoint::Moderations, json!({"results": [{"flagged": true, "input": text, "error": own}]})),
        (Endpoint::Rerank, json!({"results": [{"index": 0, "document": {"text": text, "error": own}}]})),
        (Endpoint::Images, json!({"created": 1, "data": [{"revised_prompt": text, "error": own}]})),
        (
            Endpoint::ChatCompletions,
            json!({"candidates": [{"content": {"parts": [{"text": text}]}, "error": own}]}),
        ),
    ]
}

/// Events of a stream with `text` in them.
pub(crate) fn events(text: &str) -> Vec<(Option<&'static str>, Value)> {
    let delta = json!({"content": text, "reasoning": text, "reasoning_content": text,
        "tool_calls": [{"index": 0, "function": {"arguments": text}}]});
    vec![
        (None, json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]})),
        (
            Some("content_block_delta"),
            json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}),
        ),
        (
            Some("content_block_delta"),
            json!({"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": text}}),
        ),
        (Some("response.output_text.delta"), json!({"type": "response.output_text.delta", "delta": text})),
        (
            Some("response.created"),
            json!({"type": "response.created", "response": {"error": null, "instructions": text}}),
        ),
        (None, json!({"candidates": [{"content": {"parts": [{"text": text}]}}]})),
        (
            Some("content-delta"),
            json!({"type": "content-delta", "delta": {"message": {"content": {"text": text}}}}),
        ),
    ]
}

/// Bodies of 400s that quote `text`, as validators, gateways and providers do.
pub(crate) fn echoes(text: &str) -> Vec<Value> {
    let own = serde_json::from_str::<Value>(text).unwrap_or_else(|_| json!(text));
    let openai = |message: String| json!({"error": {"message": message, "type": "invalid_request_error", "param": "messages", "code": null}});
    vec![
        openai(format!("Invalid value: '{text}'. Supported values are: 'a' and 'b'.")),
        openai(format!("Invalid 'tools[0].function.name': got '{text}'.")),
        openai(format!("'{text}' is not one of ['low', 'high'] - 'reasoning_effort'")),
        openai(format!("{own} is not of type 'string' - 'messages.0.content'")),
        openai(format!("[{own}] is too short - 'messages'")),
        json!({"object": "error", "message": format!("[{{'type': 'string_type', 'input': '{text}'}}]"), "type": "BadRequestError", "code": 400}),
        json!({"detail": [{"type": "enum", "loc": ["body", "messages", 0], "msg": text, "input": own, "reason": text, "code": text}]}),
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": format!("messages.0.role: got '{text}'")}}),
        json!({"error": {"message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed", "failed_generation": text}}),
        json!({"error": {"code": 400, "message": format!("Unknown name \"{text}\""), "status": "INVALID_ARGUMENT",
            "details": [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"field": text, "description": text, "reason": text}], "reason": text}]}}),
        json!({"error": {"message": "bad request", "type": "invalid_request_error", "input": own, "request": own, "body": own, "value": text}}),
        json!({"error": {"message": "bad request", "type": "invalid_request_error"}, "input": own, "request": own, "messages": [own]}),
        json!({"message": {"detail": [{"msg": text, "input": own}]}, "type": "invalid_request_error", "object": "error"}),
        json!({"error": {"message": "filtered", "code": "content_filter", "innererror": {"code": "ResponsibleAIPolicyViolation", "message": text, "prompt": text}}}),
        json!({"error": {"message": "moderated", "code": 400, "metadata": {"flagged_input": text, "reasons": [text]}}}),
        json!({"code": "InvalidParameter", "message": format!("Range of input length should be [1, 10]: {text}"), "request_id": text}),
        // Through relays, which put words of their own around it.
        openai(format!(
            "litellm.BadRequestError: OpenAIException - {own} is not of type 'string' - 'messages.0.content'"
        )),
        openai(format!(
            "litellm.BadRequestError: OpenAIException - '{text}' is not one of ['low', 'high']. Received Model Group=m"
        )),
        openai(format!("Error from provider (X): {own} is not of type 'string'")),
        openai(format!("[a/b] [400]: {own} is not of type 'string' (reset after 5s)")),
        openai(format!("[{own}] is too short - 'messages' (request id: 2026)")),
        openai(format!("Invalid value: '{text}' (request id: 2026)")),
        json!({"error": {"message": "bad request", "type": "invalid_request_error", "details": {"upstreamBody": text, "body": own}}}),
    ]
}
