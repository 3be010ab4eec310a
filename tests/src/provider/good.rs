//! What a healthy provider answers, and its errors, in the dialect of the path.

use serde_json::{Value, json};

use super::script::Failure;

/// The pieces of content of a good answer.
pub(crate) const CONTENT: [&str; 4] = ["Hello", " from", " the", " provider"];

/// What was asked for.
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a http::Method,
    pub(crate) path: &'a str,
    pub(crate) body: &'a Value,
    pub(crate) model: &'a str,
    pub(crate) stream: bool,
}

/// A good body.
pub(crate) enum Body {
    /// In one piece.
    Plain {
        /// Its content type.
        content_type: &'static str,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Events, each with its blank line.
    Stream(Vec<String>),
    /// There is no such path.
    NoSuchPath,
}

impl Asked<'_> {
    /// Anthropic's dialect, rather than OpenAI's.
    pub(crate) fn anthropic(&self) -> bool {
        self.path.ends_with("/messages") || self.path.ends_with("/count_tokens")
    }

    /// The good answer.
    pub(crate) fn good(&self, content: &[String]) -> Body {
        let path = self.path;
        if path.ends_with("/chat/completions") {
            return self.chat(content);
        }
        if path.ends_with("/completions") {
            return self.completions(content);
        }
        if path.ends_with("/responses") {
            return self.responses(content);
        }
        if path.ends_with("/messages") {
            return self.messages(content);
        }
        if path.ends_with("/embeddings") {
            return plain(&self.embeddings());
        }
        if path.ends_with("/images/generations") {
            return plain(&json!({"created": 1, "data": [{"url": "http://127.0.0.1/image.png"}]}));
        }
        if path.ends_with("/audio/speech") {
            return Body::Plain { content_type: "audio/mpeg", bytes: b"ID3\x04not really music".to_vec() };
        }
        if path.ends_with("/audio/transcriptions") || path.ends_with("/audio/translations") {
            return plain(&json!({"text": content.concat()}));
        }
        if path.ends_with("/moderations") {
            return plain(
                &json!({"id": "modr-1", "model": self.model, "results": [{"flagged": false, "categories": {}, "category_scores": {}}]}),
            );
        }
        if path.ends_with("/rerank") {
            return plain(
                &json!({"id": "rerank-1", "model": self.model, "results": [{"index": 0, "relevance_score": 0.9}]}),
            );
        }
        if path.ends_with("/models") && self.method == http::Method::GET {
            let model = |id: &str| json!({"id": id, "object": "model", "created": 1, "owned_by": "fake"});
            return plain(
                &json!({"object": "list", "data": [model("mock-gpt-4o-mini"), model("mock-embed")]}),
            );
        }
        Body::NoSuchPath
    }

    fn chat(&self, content: &[String]) -> Body {
        let usage = json!({"prompt_tokens": 9, "completion_tokens": content.len(), "total_tokens": 9 + content.len()});
        let tool =
            self.body["tools"][0]["function"]["name"].as_str().filter(|_| self.body["tool_choice"] != "none");
        let finish = if tool.is_some() { "tool_calls" } else { "stop" };
        if !self.stream {
            let message = match tool {
                Some(name) => json!({"role": "assistant", "content": null, "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": name, "arguments": "{\"city\":\"Paris\"}"}}]}),
                None => json!({"role": "assistant", "content": content.concat()}),
            };
            return plain(
                &json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": self.model,
                "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage}),
            );
        }
        let chunk = |choices: Value, usage: Value| {
            data(
                &json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self.model,
                "choices": choices, "usage": usage}),
            )
        };
        let delta =
            |delta: Value, finish: Value| json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        let mut events =
            vec![chunk(delta(json!({"role": "assistant", "content": ""}), Value::Null), Value::Null)];
        match tool {
            Some(name) => {
                let call = |f: Value| json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": f}]});
                events.push(chunk(
                    delta(call(json!({"name": name, "arguments": ""})), Value::Null),
                    Value::Null,
                ));
                for part in ["{\"city\":", "\"Paris\"}"] {
                    let call = json!({"tool_calls": [{"index": 0, "function": {"arguments": part}}]});
                    events.push(chunk(delta(call, Value::Null), Value::Null));
                }
            }
            None => {
                events.extend(
                    content.iter().map(|c| chunk(delta(json!({"content": c}), Value::Null), Value::Null)),
                );
            }
        }
        events.push(chunk(delta(json!({}), json!(finish)), Value::Null));
        if self.body["stream_options"]["include_usage"] == true {
            events.push(chunk(json!([]), usage));
        }
        events.push("data: [DONE]\n\n".to_owned());
        Body::Stream(events)
    }

    fn completions(&self, content: &[String]) -> Body {
        let of = |text: &str, finish: Value| {
            json!({"id": "cmpl-1", "object": "text_completion", "created": 1, "model": self.model,
                "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": finish}]})
        };
        if !self.stream {
            let mut whole = of(&content.concat(), json!("stop"));
            whole["usage"] = json!({"prompt_tokens": 9, "completion_tokens": content.len(), "total_tokens": 9 + content.len()});
            return plain(&whole);
        }
        let mut events: Vec<String> = content.iter().map(|c| data(&of(c, Value::Null))).collect();
        events.push(data(&of("", json!("stop"))));
        events.push("data: [DONE]\n\n".to_owned());
        Body::Stream(events)
    }

    fn responses(&self, content: &[String]) -> Body {
        let text = content.concat();
        let message = json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}]});
        let response = |status: &str, output: Value, usage: Value| {
            json!({"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": self.model,
                "output": output, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "usage": usage,
                "error": null, "incomplete_details": null, "instructions": null, "metadata": {}})
        };
        let usage = json!({"input_tokens": 9, "output_tokens": content.len(), "total_tokens": 9 + content.len(),
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}});
        let whole = response("completed", json!([message]), usage);
        if !self.stream {
            return plain(&whole);
        }
        let mut seq = 0;
        let mut event = |kind: &str, mut body: Value| {
            body["type"] = json!(kind);
            body["sequence_number"] = json!(seq);
            seq += 1;
            named(kind, &body)
        };
        let item = json!({"type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant", "content": []});
        let at = json!({"item_id": "msg_1", "output_index": 0, "content_index": 0});
        let with = |key: &str, value: Value| {
            let mut body = at.clone();
            body[key] = value;
            body
        };
        let started = response("in_progress", json!([]), Value::Null);
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
        let mut events = vec![
            event("response.created", json!({"response": started})),
            event("response.in_progress", json!({"response": started})),
            event("response.output_item.added", json!({"output_index": 0, "item": item})),
            event("response.content_part.added", with("part", part(""))),
        ];
        for piece in content {
            let mut body = with("delta", json!(piece));
            body["logprobs"] = json!([]);
            events.push(event("response.output_text.delta", body));
        }
        let mut done = with("text", json!(text));
        done["logprobs"] = json!([]);
        events.push(event("response.output_text.done", done));
        events.push(event("response.content_part.done", with("part", part(&text))));
        events.push(event("response.output_item.done", json!({"output_index": 0, "item": message})));
        events.push(event("response.completed", json!({"response": whole})));
        Body::Stream(events)
    }

    fn messages(&self, content: &[String]) -> Body {
        let tool = self.body["tools"][0]["name"].as_str();
        let stop = if tool.is_some() { "tool_use" } else { "end_turn" };
        let block = match tool {
            Some(name) => {
                json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": {"city": "Paris"}})
            }
            None => json!({"type": "text", "text": content.concat()}),
        };
        let message = |blocks: Value, stop: Value, output: usize| {
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "content": blocks,
                "stop_reason": stop, "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": output}})
        };
        if !self.stream {
            return plain(&message(json!([block]), json!(stop), content.len()));
        }
        let start = match tool {
            Some(name) => json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}),
            None => json!({"type": "text", "text": ""}),
        };
        let mut events = vec![
            named(
                "message_start",
                &json!({"type": "message_start", "message": message(json!([]), Value::Null, 1)}),
            ),
            named(
                "content_block_start",
                &json!({"type": "content_block_start", "index": 0, "content_block": start}),
            ),
            named("ping", &json!({"type": "ping"})),
        ];
        let deltas: Vec<Value> = if tool.is_some() {
            ["{\"city\":", "\"Paris\"}"]
                .iter()
                .map(|p| json!({"type": "input_json_delta", "partial_json": p}))
                .collect()
        } else {
            content.iter().map(|c| json!({"type": "text_delta", "text": c})).collect()
        };
        for delta in deltas {
            events.push(named(
                "content_block_delta",
                &json!({"type": "content_block_delta", "index": 0, "delta": delta}),
            ));
        }
        events.push(named("content_block_stop", &json!({"type": "content_block_stop", "index": 0})));
        events.push(named("message_delta", &json!({"type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": content.len()}})));
        events.push(named("message_stop", &json!({"type": "message_stop"})));
        Body::Stream(events)
    }

    fn embeddings(&self) -> Value {
        let vector = [0.25_f32, -0.5, 0.75];
        let embedding = if self.body["encoding_format"] == "base64" {
            let bytes: Vec<u8> = vector.iter().flat_map(|v| v.to_le_bytes()).collect();
            json!(base64(&bytes))
        } else {
            json!(vector)
        };
        let count = self.body["input"].as_array().map_or(1, Vec::len);
        let data: Vec<Value> = (0..count)
            .map(|index| json!({"object": "embedding", "index": index, "embedding": embedding}))
            .collect();
        json!({"object": "list", "model": self.model, "data": data, "usage": {"prompt_tokens": 2, "total_tokens": 2}})
    }

    /// An error's status and body.
    pub(crate) fn failure(&self, failure: Failure) -> (u16, Value) {
        if self.anthropic() {
            let (status, kind, message) = match failure {
                Failure::InvalidApiKey => (401, "authentication_error", "invalid x-api-key"),
                Failure::BareUnauthorized => (401, "error", "no"),
                Failure::InsufficientQuota => (
                    400,
                    "invalid_request_error",
                    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
                ),
                Failure::RateLimit => (
                    429,
                    "rate_limit_error",
                    "This request would exceed your account's rate limit. Please try again later.",
                ),
                Failure::ModelNotFound => (404, "not_found_error", "model: unknown"),
                Failure::ContextLength => {
                    (400, "invalid_request_error", "prompt is too long: 200001 tokens > 200000 maximum")
                }
                Failure::BadParameter => (400, "invalid_request_error", "temperature: range: 0..1"),
                Failure::ServerError => (500, "api_error", "Internal server error"),
                Failure::Overloaded => (529, "overloaded_error", "Overloaded"),
            };
            return (status, json!({"type": "error", "error": {"type": kind, "message": message}}));
        }
        let (status, kind, code, message) = match failure {
            Failure::InvalidApiKey => (401, "invalid_request_error", json!("invalid_api_key"),
                "Incorrect API key provided: sk-****. You can find your API key at https://platform.openai.com/account/api-keys.".to_owned()),
            Failure::BareUnauthorized => (401, "error", Value::Null, "no".to_owned()),
            Failure::InsufficientQuota => (429, "insufficient_quota", json!("insufficient_quota"),
                "You exceeded your current quota, please check your plan and billing details.".to_owned()),
            Failure::RateLimit => (429, "requests", json!("rate_limit_exceeded"), "Rate limit reached for requests".to_owned()),
            Failure::ModelNotFound => (404, "invalid_request_error", json!("model_not_found"),
                format!("The model `{}` does not exist or you do not have access to it.", self.model)),
            Failure::ContextLength => (400, "invalid_request_error", json!("context_length_exceeded"),
                "This model's maximum context length is 128000 tokens.".to_owned()),
            Failure::BadParameter => (400, "invalid_request_error", json!("invalid_value"),
                "Invalid value for 'temperature': expected at most 2.".to_owned()),
            Failure::ServerError => (500, "server_error", Value::Null, "The server had an error while processing your request.".to_owned()),
            Failure::Overloaded => (503, "server_error", Value::Null, "The engine is currently overloaded, please try again later.".to_owned()),
        };
        (status, json!({"error": {"message": message, "type": kind, "param": null, "code": code}}))
    }
}

fn plain(body: &Value) -> Body {
    Body::Plain { content_type: "application/json", bytes: body.to_string().into_bytes() }
}

fn data(body: &Value) -> String {
    format!("data: {body}\n\n")
}

fn named(event: &str, body: &Value) -> String {
    format!("event: {event}\ndata: {body}\n\n")
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let n = chunk.iter().fold(0_usize, |n, b| (n << 8) | usize::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            out.push(if i <= chunk.len() { char::from(ALPHABET[(n >> (18 - 6 * i)) & 63]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_pads_like_rfc_4648() {
        for (plain, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
