//! Identifiers, and the subjects that verdicts and statuses are about.

use std::sync::Arc;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A channel's id: server-assigned, positive, never reused.
    ChannelId
}
id! {
    /// A credential's id: server-assigned, positive, never reused.
    CredentialId
}
id! {
    /// A place in the registry's commit order; zero is before everything.
    Revision
}

/// What a verdict or a status is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// One upstream line.
    Channel(ChannelId),
    /// One key, wherever it is listed.
    Credential(CredentialId),
    /// One model on one channel, across groups.
    Ability {
        /// The channel that offers it.
        channel: ChannelId,
        /// As callers name it.
        model: Arc<str>,
        /// Only with this credential; `None`: with any.
        credential: Option<CredentialId>,
    },
}
