//! Paths and endpoints that are not there, scopes a key lacks for one of them, and objects of the caller's that are
//! unknown: nobody is to be disabled for these.

use super::{Find, Rule, rule};
use crate::classify::facts::{Facts, Place, Shape};
use crate::words::Class;

pub(super) static RULES: &[Rule] = &[
    rule(
        "endpoint.path",
        Find::Start(&[
            "Invalid URL (",
            "Invalid URL$",
            "Unknown request URL",
            "Unrecognized request URL",
            "Not Found$",
            "404 Not Found$",
            "404 NOT_FOUND$",
            "404 page not found",
            "404: Not Found$",
            "File Not Found$",
            "Page not found",
            "Path not found",
            "Route not found",
            "Route * not found",
            "Endpoint not found",
            "Endpoint * not found",
            "API endpoint not found",
            "No such endpoint",
            "Unknown endpoint",
            "Unexpected endpoint or method",
            "no Route matched with those values",
            "No route for that URI",
            "No route matches",
            "Could not route to",
            "Cannot POST ",
            "Cannot GET ",
            "Resource not found$",
            "The requested resource was not found$",
            "The requested URL",
            "The requested endpoint",
            "url.not_found",
            "没找到对象",
        ]),
        Class::EndpointMissing,
    )
    .on(&[(0, 299), (400, 400), (404, 405), (500, 501)]),
    rule(
        "endpoint.path_code",
        Find::Codes(&[
            "unknown_url",
            "invalid_url_path",
            "url.not_found",
            "route_not_found",
            "not_supported_error",
            "unsupported_api_for_model",
        ]),
        Class::EndpointMissing,
    ),
    rule("endpoint.cloudflare", Find::Numbers(Place::Errors, &["7000", "7003"]), Class::EndpointMissing),
    rule("endpoint.zhipu", Find::Numbers(Place::Error, &["1221", "1222"]), Class::EndpointMissing)
        .of(&["zhipu"]),
    rule("endpoint.baidu", Find::Numbers(Place::ErrorCode, &["3"]), Class::EndpointMissing),
    rule(
        "endpoint.model_lives_elsewhere",
        Find::Start(&[
            "This is not a * model",
            "This is a chat model and not supported",
            "This model is only supported in",
            "This model is not supported in the",
            "This model is not supported by * API",
            "This model is not supported by the * API",
            "This model does not support the * endpoint",
            "This model does not support the * API",
            "The requested model * cannot be used with",
            "The model * does not support the * endpoint",
            "Model * does not support the * endpoint",
            "Model * does not support * endpoint",
            "The model * does not support /",
            "Model * does not support /",
            "This model does not support /",
            "The model does not support…API",
            "The model * is not supported on this endpoint",
            "The model * is not supported in the",
            "The model * is not supported with the * API",
            "Model * is not supported on this endpoint",
            "Model * is not supported by * API",
            "Model * is not supported by the * API",
            "Image generation is not enabled for",
            "Video generation is not enabled for",
            "Speech generation is not enabled for",
            "model * is not accessible via the",
            "current user api does not support",
            "You are not allowed to generate embeddings",
            "* does not support chat",
            "* does not support generate",
            "* does not support embeddings",
            "* does not support embed$",
            "The requested operation is unsupported",
            "该供应商不支持 Responses",
            "该供应商不支持 Messages",
            "该供应商不支持 /",
            "该渠道不支持 /",
            "该模型不支持 /",
            "当前模型不支持 /",
            "This server does not support",
            "The server does not support",
        ]),
        Class::EndpointMissing,
    )
    .on(&[(0, 299), (400, 499), (500, 501)]),
    rule(
        "endpoint.scope",
        Find::Codes(&["missing_scope", "insufficient_scope", "missing_scopes"]),
        Class::EndpointMissing,
    ),
    rule(
        "endpoint.scope_text",
        Find::Start(&["You have insufficient permissions for this operation", "Missing scopes"]),
        Class::EndpointMissing,
    )
    .on(&[(0, 299), (400, 403)]),
    rule("object.named", Find::If(names_object), Class::Transparent).on(&[(0, 299), (404, 404), (410, 410)]),
    rule(
        "object.no_access",
        Find::Start(&["CachedContent not found", "You do not have permission to access the File"]),
        Class::Transparent,
    )
    .on(&[(0, 299), (400, 404)]),
    rule(
        "object.code",
        Find::Codes(&[
            "previous_response_not_found",
            "response_not_found",
            "file_not_found",
            "batch_not_found",
            "thread_not_found",
            "conversation_not_found",
            "item_not_found",
            "task_not_found",
            "task_not_exist",
            "vector_store_not_found",
            "container_not_found",
            "upload_not_found",
            "assistant_not_found",
        ]),
        Class::Transparent,
    ),
];

/// What callers own at a provider.
const OBJECTS: &[&str] = &[
    "file",
    "files",
    "response",
    "responses",
    "batch",
    "batches",
    "thread",
    "assistant",
    "run",
    "message",
    "vector_store",
    "vector",
    "conversation",
    "item",
    "container",
    "upload",
    "fine",
    "fine-tuning",
    "fine-tune",
    "finetune",
    "job",
    "task",
    "cached",
    "cachedcontent",
    "prompt",
    "video",
    "image",
    "dataset",
    "collection",
    "session",
    "eval",
    "skill",
    "document",
    "object",
    "event",
    "voice",
];

/// What an operator has set up, and no caller owns.
const OURS: &[&str] = &["model", "models", "deployment", "engine", "endpoint", "endpoints"];

const PARAMS: &[&str] = &[
    "id",
    "file_id",
    "fine_tune_id",
    "response_id",
    "previous_response_id",
    "batch_id",
    "thread_id",
    "input_file_id",
    "training_file",
    "conversation",
    "vector_store_id",
    "video_id",
];

/// A code that says so: `fine_tune_not_found`.
fn named_by_code(facts: &Facts) -> bool {
    facts.codes.iter().any(|code| {
        let object = code.text.strip_suffix("_not_found").map(|object| object.split('_').collect::<Vec<_>>());
        object.is_some_and(|words| {
            words.iter().any(|word| OBJECTS.contains(word)) && !words.iter().any(|word| OURS.contains(word))
        })
    })
}

/// A message whose first words name an object of the caller's and no model: "No such File object: file-x".
fn names_object(facts: &Facts, _status: u16) -> bool {
    if facts.shape != Shape::Json {
        return false;
    }
    if PARAMS.contains(&facts.param.as_str()) || named_by_code(facts) {
        return true;
    }
    let message = facts.first_message();
    let mut words =
        message.split([' ', ':', '\'', '"', '`', '.', ',']).filter(|word| !word.is_empty()).take(7);
    let (mut object, mut missing) = (false, false);
    let lower = message.get(..message.len().min(200)).unwrap_or(message).to_ascii_lowercase();
    for word in words.by_ref() {
        let word = word.to_ascii_lowercase();
        if OURS.contains(&word.as_str()) {
            return false;
        }
        object |= OBJECTS.contains(&word.as_str());
    }
    for phrase in [
        "not found",
        "no such",
        "does not exist",
        "not exist",
        "could not find",
        "couldn't find",
        "no file",
        "unknown",
    ] {
        missing |= lower.contains(phrase);
    }
    missing |= lower.starts_with("no ") && lower.contains(" found");
    object && missing
}
