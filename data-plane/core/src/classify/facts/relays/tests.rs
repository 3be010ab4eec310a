use super::*;

#[test]
fn what_is_quoted_lies_behind_the_relays_own_words() {
    for (text, inner) in [
        ("litellm.BadRequestError: OpenAIException - Budget has been exceeded!", "Budget has been exceeded!"),
        ("litellm.AuthenticationError: AuthenticationError: OpenAIException - No", "No"),
        (
            "litellm.BadRequestError: AnthropicException - b'{\"type\":1}'. Received",
            "{\"type\":1}'. Received",
        ),
        ("litellm.BadRequestError: You passed in model=x", "You passed in model=x"),
        ("Error from provider (Moonshot): no", "no"),
        ("Error from provider(429): no", "no"),
        ("Error from provider: Provider returned error", "Provider returned error"),
        ("Upstream error from Minimax: insufficient balance (1008)", "insufficient balance (1008)"),
        ("together-ai error: Unable to access", "Unable to access"),
        ("[nvidia/z-ai/glm4.7] [502]: fetch failed", "fetch failed"),
        ("[ollama/qwen3.6:27b] Provider error (reset after 30s)", "Provider error (reset after 30s)"),
        ("Error code: 401 - {'error': 'no'}", "{'error': 'no'}"),
        ("[400]: {\"message\":\"no\"}", "{\"message\":\"no\"}"),
        ("400: {'error': 'no'}", "{'error': 'no'}"),
        (
            "429 litellm.RateLimitError: AzureException - slow down",
            "litellm.RateLimitError: AzureException - slow down",
        ),
        ("401 Incorrect API key provided: sk-x", "Incorrect API key provided: sk-x"),
    ] {
        assert_eq!(quoted(text), Some(Quote { text: inner, foreign: true }), "{text}");
    }
    for (text, inner) in [("401 Unauthorized", "Unauthorized"), ("401: Invalid API key", "Invalid API key")] {
        assert_eq!(quoted(text), Some(Quote { text: inner, foreign: false }), "{text}");
    }
    for text in [
        "",
        "200 OK",
        "4290 tokens",
        "429",
        "[429] too many",
        "401.1 no",
        "litellm.",
        "[a/b] is too short - 'messages'",
        "['a/b'] [429]: x",
        "[{'type': 'string_type'}] [429]: x",
        "[x] [429]: y",
        "An Error from provider: x",
        "authentication error: invalid x-api-key",
        "The openai error: x",
        "Errors",
    ] {
        assert_eq!(quoted(text), None, "{text}");
    }
}

fn read(body: &str) -> Facts {
    Facts::read(&http::HeaderMap::new(), body.as_bytes())
}

#[test]
fn a_request_id_is_the_relays_and_so_are_some_types() {
    let body = |kind: &str| {
        format!(r#"{{"error":{{"message":"Invalid API key (request id: 2026)","type":{kind},"code":null}}}}"#)
    };
    for foreign in [r#""invalid_request_error""#, r#""api_error""#, r#""""#, "null"] {
        assert!(read(&body(foreign)).marked, "{foreign}");
    }
    for own in
        ["new_api_error", "one_api_error", "yunwu_api_error", "one_hub_error", "insufficient_user_quota"]
    {
        assert!(!read(&body(&format!("{own:?}"))).marked, "{own}");
    }
    assert!(!read(r#"{"error":{"message":"Invalid API key","type":"invalid_request_error"}}"#).marked);
}

#[test]
fn words_of_relays_and_wrapped_answers_are_passed_on() {
    for body in [
        r#"{"error":{"message":"no","type":"upstream_error"}}"#,
        r#"{"error":{"message":"no","details":{"upstreamStatus":412}}}"#,
        r#"{"error":{"message":"{\"error\":{\"message\":\"no\"}} (request id: 1)","type":"new_api_error"}}"#,
        r#"{"error":{"message":"[a/b] [401]: {\"error\":{\"message\":\"no\"}} (reset after 5s)"}}"#,
    ] {
        assert!(read(body).relayed, "{body}");
    }
    for body in [
        r#"{"error":{"message":"no","type":"api_error"}}"#,
        r#"{"error":{"message":"no","details":{"status":412}}}"#,
        r#"{"error":{"message":"{\"error\":{\"message\":\"no\"}}"}}"#,
    ] {
        assert!(!read(body).relayed, "{body}");
    }
}
