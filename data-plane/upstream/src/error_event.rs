//! The one error event that ends a broken stream, in the caller's dialect. Never a `[DONE]`.

use bytes::Bytes;
use serde_json::json;
use spareline_core::Endpoint;

/// The code of every interrupted stream.
pub const STREAM_INTERRUPTED: &str = "stream_interrupted";

/// The event. `mid_event`: the bytes so far end inside an event, which has to be closed first. `events` seen so far number
/// the next one where the dialect numbers them.
pub(crate) fn error_event(endpoint: Option<Endpoint>, message: &str, mid_event: bool, events: u32) -> Bytes {
    let mut out = String::with_capacity(256);
    if mid_event {
        out.push_str("\n\n");
    }
    let error = json!({
        "message": message, "type": "upstream_error", "code": STREAM_INTERRUPTED, "param": null,
    });
    match endpoint {
        Some(Endpoint::Messages) => {
            out.push_str("event: error\ndata: ");
            let error = json!({"type": "api_error", "message": format!("{STREAM_INTERRUPTED}: {message}")});
            out.push_str(&json!({"type": "error", "error": error}).to_string());
        }
        Some(Endpoint::Responses) => {
            out.push_str("event: error\ndata: ");
            let event = json!({
                "type": "error", "sequence_number": events, "code": STREAM_INTERRUPTED, "message": message,
                "param": null, "error": error,
            });
            out.push_str(&event.to_string());
        }
        _ => {
            out.push_str("data: ");
            out.push_str(&json!({"error": error}).to_string());
        }
    }
    out.push_str("\n\n");
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_its_own_and_none_says_done() {
        for endpoint in
            [None, Some(Endpoint::ChatCompletions), Some(Endpoint::Messages), Some(Endpoint::Responses)]
        {
            let event = error_event(endpoint, "it \"broke\"\nhere", true, 7);
            let text = std::str::from_utf8(&event).unwrap();
            assert!(text.starts_with("\n\n") && text.ends_with("\n\n") && !text.contains("[DONE]"));
            let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            let json: serde_json::Value = serde_json::from_str(data).unwrap();
            assert!(json["error"]["message"].as_str().unwrap().contains("it \"broke\"\nhere"));
            match endpoint {
                Some(Endpoint::Messages) => assert_eq!(json["error"]["type"], "api_error"),
                Some(Endpoint::Responses) => assert_eq!(json["sequence_number"], 7),
                _ => assert_eq!(json["error"]["code"], STREAM_INTERRUPTED),
            }
            assert_eq!(
                text.contains("event: error\n"),
                matches!(endpoint, Some(Endpoint::Messages | Endpoint::Responses))
            );
        }
    }
}
