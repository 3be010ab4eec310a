//! The closed sets of words, both ways. `None`: unset, or a number that this build does not know.

use spareline_proto::registry::v1 as pb;

use crate::spec::{CredentialOrder, ProbeKind};
use crate::words::{Cause, Endpoint};

/// From the wire.
pub fn cause(wire: i32) -> Option<Cause> {
    Some(match pb::Cause::try_from(wire).ok()? {
        pb::Cause::Unspecified => return None,
        pb::Cause::Operator => Cause::Operator,
        pb::Cause::Credential => Cause::Credential,
        pb::Cause::Quota => Cause::Quota,
        pb::Cause::Throttled => Cause::Throttled,
        pb::Cause::Unhealthy => Cause::Unhealthy,
        pb::Cause::ModelUnavailable => Cause::ModelUnavailable,
    })
}

/// As it goes on the wire.
pub fn cause_ref(cause: Cause) -> pb::Cause {
    match cause {
        Cause::Operator => pb::Cause::Operator,
        Cause::Credential => pb::Cause::Credential,
        Cause::Quota => pb::Cause::Quota,
        Cause::Throttled => pb::Cause::Throttled,
        Cause::Unhealthy => pb::Cause::Unhealthy,
        Cause::ModelUnavailable => pb::Cause::ModelUnavailable,
    }
}

/// From the wire.
pub fn endpoint(wire: i32) -> Option<Endpoint> {
    Some(match pb::Endpoint::try_from(wire).ok()? {
        pb::Endpoint::Unspecified => return None,
        pb::Endpoint::ChatCompletions => Endpoint::ChatCompletions,
        pb::Endpoint::Completions => Endpoint::Completions,
        pb::Endpoint::Embeddings => Endpoint::Embeddings,
        pb::Endpoint::Responses => Endpoint::Responses,
        pb::Endpoint::Messages => Endpoint::Messages,
        pb::Endpoint::Images => Endpoint::Images,
        pb::Endpoint::Audio => Endpoint::Audio,
        pb::Endpoint::Moderations => Endpoint::Moderations,
        pb::Endpoint::Rerank => Endpoint::Rerank,
    })
}

/// As it goes on the wire.
pub fn endpoint_ref(endpoint: Endpoint) -> pb::Endpoint {
    match endpoint {
        Endpoint::ChatCompletions => pb::Endpoint::ChatCompletions,
        Endpoint::Completions => pb::Endpoint::Completions,
        Endpoint::Embeddings => pb::Endpoint::Embeddings,
        Endpoint::Responses => pb::Endpoint::Responses,
        Endpoint::Messages => pb::Endpoint::Messages,
        Endpoint::Images => pb::Endpoint::Images,
        Endpoint::Audio => pb::Endpoint::Audio,
        Endpoint::Moderations => pb::Endpoint::Moderations,
        Endpoint::Rerank => pb::Endpoint::Rerank,
    }
}

/// From the wire; unset is [`ProbeKind::Auto`].
pub fn probe_kind(wire: i32) -> Option<ProbeKind> {
    Some(match pb::ProbeKind::try_from(wire).ok()? {
        pb::ProbeKind::Unspecified => ProbeKind::Auto,
        pb::ProbeKind::Chat => ProbeKind::Chat,
        pb::ProbeKind::Embedding => ProbeKind::Embedding,
        pb::ProbeKind::Models => ProbeKind::Models,
        pb::ProbeKind::Request => ProbeKind::Request,
    })
}

/// From the wire; unset is [`CredentialOrder::Random`].
pub fn credential_order(wire: i32) -> Option<CredentialOrder> {
    Some(match pb::CredentialOrder::try_from(wire).ok()? {
        pb::CredentialOrder::Unspecified | pb::CredentialOrder::Random => CredentialOrder::Random,
        pb::CredentialOrder::Rank => CredentialOrder::Rank,
    })
}
