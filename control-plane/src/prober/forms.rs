//! What a probe asks: the requests that tell whether a channel's line is alive, the most telling first.
//!
//! Pure. A form is a caller's request as the proxy would get it; the same code as traffic turns it into the provider's.
//! Forms exist because models disagree about parameters: when one is refused for its parameters, the next is tried.
//! Never a paid generation of pictures or sound, unless the channel says `probe: request`.

use bytes::Bytes;
use serde_json::json;
use spareline_core::spec::{ChannelSpec, EndpointSet, ModelSpec, ProbeKind};
use spareline_core::{Endpoint, Provider};

/// One request to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A real request, as small as it gets.
    Request {
        /// What is asked for.
        endpoint: Endpoint,
        /// Beneath the endpoint's path, for the families that have several.
        path: &'static str,
        /// The body a caller would send, `model` included.
        body: Bytes,
    },
    /// `GET /models`: free, and tells whether the key is accepted, not whether money is left.
    Models,
}

/// The forms to try on one model, in order; never empty.
pub(crate) fn forms(spec: &ChannelSpec, model: &ModelSpec) -> Vec<Form> {
    let endpoints = model.endpoints;
    let kind = spec.options.probe;
    let mut forms = match kind {
        ProbeKind::Models => Vec::new(),
        ProbeKind::Chat => chat(spec.provider, &model.name),
        ProbeKind::Embedding => vec![embedding(&model.name)],
        ProbeKind::Auto | ProbeKind::Request => usual(spec.provider, endpoints, &model.name, kind),
    };
    forms.push(Form::Models);
    forms
}

/// What fits the model's endpoints; the cheapest that is a real request comes first.
fn usual(provider: Provider, endpoints: EndpointSet, model: &str, kind: ProbeKind) -> Vec<Form> {
    let has = |endpoint| endpoints.has(Some(endpoint));
    if has(Endpoint::Messages) && provider == Provider::Anthropic {
        return vec![messages(model)];
    }
    // A channel with the usual set has no way to say that a model embeds, so the name is asked too. A wrong guess
    // costs one more form: the other one follows.
    if has(Endpoint::Embeddings) && (!has(Endpoint::ChatCompletions) || embeds(model)) {
        let mut forms = vec![embedding(model)];
        if has(Endpoint::ChatCompletions) {
            forms.extend(chat(provider, model));
        }
        return forms;
    }
    if has(Endpoint::ChatCompletions) && !draws_or_speaks(model) {
        return chat(provider, model);
    }
    if has(Endpoint::Messages) {
        return vec![messages(model)];
    }
    if has(Endpoint::Responses) && !draws_or_speaks(model) {
        return vec![
            request(Endpoint::Responses, "", json!({"model": model, "input": "hi", "max_output_tokens": 16})),
            request(Endpoint::Responses, "", json!({"model": model, "input": "hi"})),
        ];
    }
    if has(Endpoint::Completions) && !draws_or_speaks(model) {
        return vec![request(
            Endpoint::Completions,
            "",
            json!({"model": model, "prompt": "hi", "max_tokens": 1}),
        )];
    }
    if has(Endpoint::Moderations) && !has(Endpoint::Images) && !has(Endpoint::Audio) {
        return vec![request(Endpoint::Moderations, "", json!({"model": model, "input": "hi"}))];
    }
    if has(Endpoint::Rerank) {
        let body = json!({"model": model, "query": "hi", "documents": ["hi"], "top_n": 1});
        return vec![request(Endpoint::Rerank, "", body)];
    }
    if kind != ProbeKind::Request {
        return Vec::new();
    }
    if has(Endpoint::Audio) && (speaks(model) || !has(Endpoint::Images)) {
        let body = json!({"model": model, "input": "hi", "voice": "alloy"});
        return vec![request(Endpoint::Audio, "/speech", body)];
    }
    let body = json!({"model": model, "prompt": "a dot", "n": 1});
    vec![request(Endpoint::Images, "/generations", body)]
}

fn chat(provider: Provider, model: &str) -> Vec<Form> {
    if provider == Provider::Anthropic {
        return vec![messages(model)];
    }
    let messages = json!([{"role": "user", "content": "hi"}]);
    let ask = |limit: Option<(&str, u32)>| {
        let mut body = json!({"model": model, "messages": messages});
        if let Some((name, tokens)) = limit {
            body[name] = tokens.into();
        }
        request(Endpoint::ChatCompletions, "", body)
    };
    // Reasoning models refuse `max_tokens`, and call a limit of 1 too small.
    vec![ask(Some(("max_tokens", 1))), ask(Some(("max_completion_tokens", 16))), ask(None)]
}

fn messages(model: &str) -> Form {
    let body = json!({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]});
    request(Endpoint::Messages, "", body)
}

fn embedding(model: &str) -> Form {
    request(Endpoint::Embeddings, "", json!({"model": model, "input": "hi"}))
}

fn request(endpoint: Endpoint, path: &'static str, body: serde_json::Value) -> Form {
    Form::Request { endpoint, path, body: body.to_string().into() }
}

fn embeds(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    ["embed", "bge-", "gte-", "e5-"].iter().any(|part| model.contains(part))
}

fn draws_or_speaks(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    let draws = ["dall-e", "gpt-image", "imagen", "flux", "stable-diffusion", "sora", "veo-"];
    draws.iter().any(|part| model.contains(part)) || speaks(&model)
}

fn speaks(model: &str) -> bool {
    let model = model.to_ascii_lowercase();
    ["tts", "whisper", "transcribe"].iter().any(|part| model.contains(part))
}

#[cfg(test)]
mod tests;
