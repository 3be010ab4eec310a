//! Subjects, both ways.

use std::sync::Arc;

use spareline_proto::registry::v1 as pb;
use spareline_proto::registry::v1::subject::Kind;

use crate::ids::{ChannelId, CredentialId, Subject};

/// From the wire; `None` where it names nothing: no kind, an id that is not positive, an ability without a model.
pub fn subject(wire: &pb::Subject) -> Option<Subject> {
    let channel = |id: i64| (id > 0).then_some(ChannelId(id));
    let credential = |id: i64| (id > 0).then_some(CredentialId(id));
    Some(match wire.kind.as_ref()? {
        Kind::ChannelId(id) => Subject::Channel(channel(*id)?),
        Kind::CredentialId(id) => Subject::Credential(credential(*id)?),
        Kind::Ability(ability) if ability.model.is_empty() => return None,
        Kind::Ability(ability) => Subject::Ability {
            channel: channel(ability.channel_id)?,
            model: Arc::from(ability.model.as_str()),
            credential: match ability.credential_id {
                Some(id) => Some(credential(id)?),
                None => None,
            },
        },
    })
}

/// As it goes on the wire.
pub fn subject_ref(subject: &Subject) -> pb::Subject {
    let kind = match subject {
        Subject::Channel(id) => Kind::ChannelId(id.0),
        Subject::Credential(id) => Kind::CredentialId(id.0),
        Subject::Ability { channel, model, credential } => Kind::Ability(pb::AbilityRef {
            channel_id: channel.0,
            model: model.to_string(),
            credential_id: credential.map(|c| c.0),
        }),
    };
    pb::Subject { kind: Some(kind) }
}
