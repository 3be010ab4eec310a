//! Registries for tests and benches: plain wire messages, nothing else.

use std::sync::Arc;

use spareline_proto::registry::v1 as pb;
use spareline_proto::registry::v1::subject::Kind;

/// A channel `c{id}` that serves `m` to the group `default`, without a credential.
pub fn channel(id: i64) -> pb::Channel {
    pb::Channel {
        channel_id: id,
        name: format!("c{id}"),
        provider: "openai_compatible".to_owned(),
        base_url: format!("https://c{id}.example.com/v1"),
        models: vec![model("m")],
        spec_revision: id,
        ..Default::default()
    }
}

/// A model of that name.
pub fn model(name: &str) -> pb::ModelEntry {
    pb::ModelEntry { model: name.to_owned(), ..Default::default() }
}

/// A credential.
pub fn credential(id: i64) -> pb::Credential {
    pb::Credential {
        credential_id: id,
        secret: format!("sk-{id}"),
        fingerprint: format!("...{id}"),
        revision: id,
    }
}

/// A subject.
pub fn on_channel(id: i64) -> pb::Subject {
    pb::Subject { kind: Some(Kind::ChannelId(id)) }
}

/// A subject.
pub fn on_credential(id: i64) -> pb::Subject {
    pb::Subject { kind: Some(Kind::CredentialId(id)) }
}

/// A subject.
pub fn on_ability(channel: i64, model: &str, credential: Option<i64>) -> pb::Subject {
    let ability = pb::AbilityRef { channel_id: channel, model: model.to_owned(), credential_id: credential };
    pb::Subject { kind: Some(Kind::Ability(ability)) }
}

/// A status that takes its subject out.
pub fn out(subject: pb::Subject, cause: pb::Cause, revision: i64) -> pb::Status {
    pb::Status {
        subject: Some(subject),
        state: pb::ServingState::Disabled.into(),
        cause: cause.into(),
        reason: "because".to_owned(),
        revision,
        ..Default::default()
    }
}

/// A throttle from `from` to `to`, in seconds of the server's clock.
pub fn throttled(subject: pb::Subject, from: i64, to: i64, hinted: bool, revision: i64) -> pb::Status {
    pb::Status {
        disabled_at: Some(at(from)),
        retry_at: Some(at(to)),
        hinted,
        ..out(subject, pb::Cause::Throttled, revision)
    }
}

/// A status that says its subject is well.
pub fn active(subject: pb::Subject, revision: i64, fence_revision: i64) -> pb::Status {
    pb::Status {
        subject: Some(subject),
        state: pb::ServingState::Active.into(),
        revision,
        fence_revision,
        ..Default::default()
    }
}

/// A time of the server's clock.
pub fn at(seconds: i64) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds, nanos: 0 }
}

/// `channels` channels with a credential each, each serving ten of `channels / 100 * 10` models (at least ten), so
/// that a model has about a hundred channels.
pub fn fleet(channels: i64) -> (Vec<Arc<pb::Channel>>, Vec<Arc<pb::Credential>>) {
    let blocks = (channels / 100).max(1);
    let one = |id: i64| {
        let block = id % blocks;
        Arc::new(pb::Channel {
            models: (0..10).map(|m| model(&format!("model-{block}-{m}"))).collect(),
            priority: i32::try_from(id % 3).unwrap_or(0),
            weight: Some(u32::try_from(id % 7 + 1).unwrap_or(1)),
            credential_ids: vec![id],
            ..channel(id)
        })
    };
    ((1..=channels).map(one).collect(), (1..=channels).map(|id| Arc::new(credential(id))).collect())
}
