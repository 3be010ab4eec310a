//! What a method and a path ask for. Pure; bodies are not looked at here.

use http::{HeaderMap, Method, header};
use spareline_core::Endpoint;

use super::error::Dialect;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A model's endpoint, or (`None`) another `/v1` path that names a model in its body.
    Model {
        /// Which endpoint.
        endpoint: Option<Endpoint>,
        /// The path below `/v1/`, without slashes at its ends.
        path: String,
    },
    /// An object some account stores.
    Stored {
        /// The path below `/v1/`.
        path: String,
    },
    /// The list of models.
    Models,
    /// One model.
    OneModel(String),
    /// A browser asking what it may do.
    Preflight,
    /// A WebSocket.
    Upgrade,
    /// The path is known, the method is not; the ones it has.
    WrongMethod(&'static str),
    /// Nothing of ours.
    Unknown,
}

/// Where each endpoint lives below `/v1/`.
const ENDPOINTS: &[(&str, Endpoint)] = &[
    ("chat/completions", Endpoint::ChatCompletions),
    ("completions", Endpoint::Completions),
    ("embeddings", Endpoint::Embeddings),
    ("responses", Endpoint::Responses),
    ("responses/compact", Endpoint::Responses),
    ("responses/input_tokens", Endpoint::Responses),
    ("messages", Endpoint::Messages),
    ("messages/count_tokens", Endpoint::Messages),
    ("images/generations", Endpoint::Images),
    ("images/edits", Endpoint::Images),
    ("images/variations", Endpoint::Images),
    ("audio/speech", Endpoint::Audio),
    ("audio/transcriptions", Endpoint::Audio),
    ("audio/translations", Endpoint::Audio),
    ("moderations", Endpoint::Moderations),
    ("rerank", Endpoint::Rerank),
];

/// First segments below `/v1/` whose objects live in one account.
const STORES: &[&str] = &[
    "files",
    "batches",
    "threads",
    "uploads",
    "assistants",
    "vector_stores",
    "conversations",
    "containers",
    "fine_tuning",
    "evals",
];

/// Reads method, path and headers. A trailing slash means nothing, a doubled `/v1` and a missing one are forgiven for
/// the paths we know.
pub fn route(method: &Method, path: &str, headers: &HeaderMap) -> Route {
    if headers.get(header::UPGRADE).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return Route::Upgrade;
    }
    if method == Method::OPTIONS {
        return Route::Preflight;
    }
    let path = path.trim_matches('/');
    let (versioned, rest) = match path.strip_prefix("v1/") {
        Some(rest) => (true, rest.strip_prefix("v1/").unwrap_or(rest)),
        None => (false, path),
    };
    // Doubled slashes come of joining by hand; they are forgiven for the paths we know.
    let collapsed = collapsed(rest);
    let rest = match &collapsed {
        Some(known) if ENDPOINTS.iter().any(|(path, _)| path == known) => known,
        _ => rest,
    };
    let reads = method == Method::GET || method == Method::HEAD;
    let endpoint = ENDPOINTS.iter().find(|(known, _)| *known == rest).map(|(_, endpoint)| *endpoint);
    if let Some(endpoint) = endpoint {
        if method == Method::POST {
            return Route::Model { endpoint: Some(endpoint), path: rest.to_owned() };
        }
        // Lists of stored answers.
        if reads && matches!(rest, "chat/completions" | "responses") {
            return Route::Stored { path: rest.to_owned() };
        }
        return Route::WrongMethod("POST");
    }
    if rest == "models" {
        return if reads { Route::Models } else { Route::WrongMethod("GET, HEAD") };
    }
    if let Some(id) = rest.strip_prefix("models/") {
        return if reads { Route::OneModel(decode(id)) } else { Route::WrongMethod("GET, HEAD") };
    }
    if !versioned || rest.is_empty() || climbs(rest) {
        return Route::Unknown;
    }
    let first = rest.split('/').next().unwrap_or_default();
    let stored = STORES.contains(&first)
        || ["responses/", "chat/completions/", "messages/batches"].iter().any(|p| rest.starts_with(p))
        || (first == "videos" && method != Method::POST);
    if stored {
        Route::Stored { path: rest.to_owned() }
    } else if reads || method == Method::DELETE {
        Route::Unknown
    } else {
        Route::Model { endpoint: None, path: rest.to_owned() }
    }
}

/// Without empty segments, where there are any.
fn collapsed(path: &str) -> Option<String> {
    (path.starts_with('/') || path.contains("//"))
        .then(|| path.split('/').filter(|segment| !segment.is_empty()).collect::<Vec<_>>().join("/"))
}

/// Whether a server could read dot segments in it, however they are written, or a backslash for a slash.
fn climbs(path: &str) -> bool {
    let decoded = decode(path);
    decoded.contains('\\')
        || decoded.split('/').any(|segment| matches!(segment.split(';').next(), Some("." | "..")))
}

/// The dialect a path is spoken in.
pub fn dialect(path: &str) -> Dialect {
    let rest = path.trim_start_matches('/').trim_start_matches("v1/").trim_start_matches('/');
    if rest.starts_with("messages") { Dialect::Anthropic } else { Dialect::OpenAi }
}

/// Percent-decoding; what is not valid stays as it is.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: Method, path: &str) -> Route {
        route(&method, path, &HeaderMap::new())
    }

    #[test]
    fn part9_every_endpoint_has_its_path() {
        for (path, endpoint) in ENDPOINTS {
            for written in [
                format!("/v1/{path}"),
                format!("/v1/{path}/"),
                format!("/v1/v1/{path}"),
                format!("/{path}"),
                format!("/v1//{path}"),
            ] {
                let expected = Route::Model { endpoint: Some(*endpoint), path: (*path).to_owned() };
                assert_eq!(of(Method::POST, &written), expected, "{written}");
            }
            assert_eq!(of(Method::DELETE, &format!("/v1/{path}")), Route::WrongMethod("POST"));
        }
    }

    #[test]
    fn stored_objects_models_and_unknown_paths() {
        for path in [
            "responses/resp_1",
            "responses/resp_1/input_items",
            "files",
            "batches/b",
            "threads/t/runs",
            "videos/v",
        ] {
            assert_eq!(
                of(Method::GET, &format!("/v1/{path}")),
                Route::Stored { path: path.into() },
                "{path}"
            );
        }
        assert_eq!(of(Method::POST, "/v1/files"), Route::Stored { path: "files".into() });
        assert_eq!(of(Method::GET, "/v1/models/"), Route::Models);
        assert_eq!(of(Method::GET, "/v1/models/meta/llama%2F3"), Route::OneModel("meta/llama/3".into()));
        assert_eq!(of(Method::POST, "/v1/ocr"), Route::Model { endpoint: None, path: "ocr".into() });
        assert_eq!(of(Method::GET, "/v1/ocr"), Route::Unknown);
        assert_eq!(of(Method::POST, "/ocr"), Route::Unknown);
        let climbing =
            ["x/%2e%2e/y", "x/..%2fy", "x/..%2F..%2fy", "x/..;a=b/y", "x\\..\\y", "x/%5c/y", "files/..%5Cy"];
        for path in climbing {
            assert_eq!(of(Method::POST, &format!("/v1/{path}")), Route::Unknown, "{path}");
        }
        assert_eq!(of(Method::POST, "/v1/x..y/z"), Route::Model { endpoint: None, path: "x..y/z".into() });
        assert_eq!(of(Method::GET, "/"), Route::Unknown);
        assert_eq!(of(Method::OPTIONS, "/v1/models"), Route::Preflight);
    }

    #[test]
    fn websockets_are_seen_before_anything_else() {
        let mut headers = HeaderMap::new();
        headers.insert(header::UPGRADE, "WebSocket".parse().unwrap());
        assert_eq!(route(&Method::GET, "/v1/realtime", &headers), Route::Upgrade);
    }
}
