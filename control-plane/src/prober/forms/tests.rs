use spareline_core::convert;
use spareline_proto::registry::v1 as pb;

use super::*;

fn first(provider: &str, model: &str, endpoints: &[pb::Endpoint], probe: pb::ProbeKind) -> String {
    let azure = provider == "azure_openai";
    let channel = pb::Channel {
        channel_id: 1,
        name: "one".into(),
        provider: provider.into(),
        base_url: "http://127.0.0.1:1/v1".into(),
        models: vec![pb::ModelEntry { model: model.into(), ..Default::default() }],
        endpoints: endpoints.iter().map(|e| *e as i32).collect(),
        options: Some(pb::ChannelOptions {
            probe: probe.into(),
            api_version: if azure { "2024-10-21".into() } else { String::new() },
            ..Default::default()
        }),
        ..Default::default()
    };
    let spec = convert::channel(&channel).unwrap();
    let forms = forms(&spec, &spec.models[0]);
    assert_eq!(forms.last(), Some(&Form::Models), "the list of models is always the last resort");
    match &forms[0] {
        Form::Models => "models".into(),
        Form::Request { endpoint, body, .. } => {
            let body: serde_json::Value = serde_json::from_slice(body).unwrap();
            assert_eq!(body["model"], model);
            endpoint.as_str().into()
        }
    }
}

#[test]
fn part8_probes_fit_the_channel() {
    use pb::Endpoint::*;
    use pb::ProbeKind;
    let auto = ProbeKind::Unspecified;
    for (provider, model, endpoints, probe, right) in [
        ("openai", "gpt-4o-mini", &[][..], auto, "chat_completions"),
        ("openai", "text-embedding-3-small", &[], auto, "embeddings"),
        ("openai", "whatever", &[Embeddings], auto, "embeddings"),
        ("openai", "dall-e-3", &[Images], auto, "models"),
        ("openai", "gpt-image-1", &[], auto, "models"),
        ("openai", "whisper-1", &[Audio], auto, "models"),
        ("openai", "tts-1", &[], auto, "models"),
        ("openai", "dall-e-3", &[Images], ProbeKind::Request, "images"),
        ("openai", "tts-1", &[Audio], ProbeKind::Request, "audio"),
        ("openai", "gpt-4o-mini", &[], ProbeKind::Models, "models"),
        ("openai", "omni-moderation-latest", &[Moderations], auto, "moderations"),
        ("openai", "o1-pro", &[Responses], auto, "responses"),
        ("openai_compatible", "rerank-1", &[Rerank], auto, "rerank"),
        ("openai_compatible", "llama", &[Completions], auto, "completions"),
        ("azure_openai", "gpt-4o", &[], auto, "chat_completions"),
        ("anthropic", "claude", &[], auto, "messages"),
    ] {
        assert_eq!(first(provider, model, endpoints, probe), right, "{provider} {model} {endpoints:?}");
    }
}

#[test]
fn part8_a_model_that_refuses_max_tokens_is_asked_otherwise() {
    let limits: Vec<_> = chat(Provider::OpenAi, "o3")
        .into_iter()
        .map(|form| match form {
            Form::Request { body, .. } => {
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                (body["max_tokens"].as_u64(), body["max_completion_tokens"].as_u64())
            }
            Form::Models => panic!("not among these"),
        })
        .collect();
    assert_eq!(limits, [(Some(1), None), (None, Some(16)), (None, None)]);
}
