//! Channels as the picker and the attempt use them: validated once, compiled from the wire message, immutable.
//!
//! Only [`convert::channel`](crate::convert::channel) makes a [`ChannelSpec`], so one that exists is valid.
//! Secrets are not here: a [`Credential`] joins a spec in a [`Line`](crate::table::Line).

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use url::Url;

use crate::ids::{ChannelId, CredentialId, Revision};
use crate::limits::PartialLimits;
use crate::secret::Secret;
use crate::words::{Endpoint, Provider};

/// The group of channels and callers that name none.
pub const DEFAULT_GROUP: &str = "default";

/// One upstream line.
#[derive(Clone, Debug)]
pub struct ChannelSpec {
    /// Its id.
    pub id: ChannelId,
    /// What logs, metrics and operators call it.
    pub name: Arc<str>,
    /// The dialect.
    pub provider: Provider,
    /// Whose classifier rules apply: as written, else derived from the host; `None`: the generic ones.
    pub vendor: Option<Arc<str>>,
    /// http or https, without user, password or fragment, and without a secret in its query.
    pub base_url: Url,
    /// Never empty.
    pub groups: Vec<Arc<str>>,
    /// Never empty, names unique.
    pub models: Vec<Arc<ModelSpec>>,
    /// Higher layers are tried first.
    pub priority: i32,
    /// Share within a layer.
    pub weight: u32,
    /// Price relative to the list price; for whoever accounts for usage, nothing here consults it.
    pub multiplier: f64,
    /// Whether verdicts may disable it; `None`: as the global policy says.
    pub auto_disable: Option<bool>,
    /// Limits of its own.
    pub limits: PartialLimits,
    /// Selectors for rollouts.
    pub labels: BTreeMap<String, String>,
    /// The label `failure_domain`: a retry prefers another one within the layer.
    pub failure_domain: Option<Arc<str>>,
    /// By rank; empty: no credential is sent.
    pub credentials: Vec<CredentialId>,
    /// When this content became current.
    pub spec_revision: Revision,
    /// What differs by provider and network.
    pub options: Options,
    /// What it has, where a model does not say otherwise.
    pub endpoints: EndpointSet,
}

/// One model a channel serves.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// As callers name it.
    pub name: Arc<str>,
    /// As it is sent; the same as `name` where nothing else was said.
    pub upstream: Arc<str>,
    /// The model's own, else the channel's.
    pub priority: i32,
    /// The model's own, else the channel's.
    pub weight: u32,
    /// The model's own, else the channel's.
    pub limits: PartialLimits,
    /// The model's own, else the channel's.
    pub endpoints: EndpointSet,
}

/// What differs by provider and network.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Azure's `api-version`; always set on Azure channels, never elsewhere.
    pub api_version: Option<String>,
    /// OpenAI's organisation header.
    pub organization: Option<String>,
    /// OpenAI's project header.
    pub project: Option<String>,
    /// Sent with every request.
    pub headers: HeaderMap,
    /// The model to probe with.
    pub probe_model: Option<Arc<str>>,
    /// How to probe.
    pub probe: ProbeKind,
    /// An egress proxy; http or https, without user and password.
    pub proxy_url: Option<Url>,
    /// A PEM bundle to trust besides the system's.
    pub ca_pem: Option<Arc<str>>,
    /// Speak HTTP/2 upstream.
    pub http2: bool,
    /// Most connections at once; `None`: the proxy's default.
    pub max_connections: Option<u32>,
    /// In which order credentials are drawn.
    pub credential_order: CredentialOrder,
}

/// How a channel is probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeKind {
    /// What fits its endpoints.
    #[default]
    Auto,
    /// A chat completion of one token.
    Chat,
    /// An embedding of one word.
    Embedding,
    /// The list of models.
    Models,
    /// A real request of its kind, also where that costs.
    Request,
}

/// In which order a channel's credentials are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CredentialOrder {
    /// Each usable one with the same chance.
    #[default]
    Random,
    /// The first usable one.
    Rank,
}

/// One key, with its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// Its id.
    pub id: CredentialId,
    /// What is sent.
    pub secret: Secret,
    /// For humans.
    pub fingerprint: Arc<str>,
}

/// A set of endpoints.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EndpointSet(u16);

// === impl ChannelSpec ===

impl ChannelSpec {
    /// The entry of one model.
    pub fn model(&self, name: &str) -> Option<&Arc<ModelSpec>> {
        self.models.iter().find(|m| &*m.name == name)
    }

    /// The rank of a credential, from 1; `None` where the channel does not list it.
    pub fn rank(&self, credential: CredentialId) -> Option<usize> {
        self.credentials.iter().position(|c| *c == credential).map(|i| i + 1)
    }

    /// The rank as attempt lists show it: where the channel lists several.
    pub fn shown_rank(&self, credential: CredentialId) -> Option<usize> {
        (self.credentials.len() > 1).then(|| self.rank(credential)).flatten()
    }
}

// === impl EndpointSet ===

impl EndpointSet {
    /// Nothing.
    pub const EMPTY: Self = Self(0);

    /// These.
    pub const fn of(endpoints: &[Endpoint]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < endpoints.len() {
            bits |= 1 << endpoints[i] as u16;
            i += 1;
        }
        Self(bits)
    }

    /// What a provider usually has.
    pub const fn usual(provider: Provider) -> Self {
        use Endpoint::*;
        match provider {
            Provider::OpenAi => {
                Self::of(&[ChatCompletions, Completions, Embeddings, Responses, Images, Audio, Moderations])
            }
            Provider::OpenAiCompatible => Self::of(&[ChatCompletions, Completions, Embeddings]),
            Provider::AzureOpenAi => {
                Self::of(&[ChatCompletions, Completions, Embeddings, Responses, Images, Audio])
            }
            Provider::Anthropic => Self::of(&[Messages]),
        }
    }

    /// Whether it has this one; without one, whether it has any.
    pub fn has(self, endpoint: Option<Endpoint>) -> bool {
        match endpoint {
            Some(e) => self.0 & (1 << e as u16) != 0,
            None => self.0 != 0,
        }
    }

    /// Adds one.
    pub fn insert(&mut self, endpoint: Endpoint) {
        self.0 |= 1 << endpoint as u16;
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its members, in the order of the words.
    pub fn iter(self) -> impl Iterator<Item = Endpoint> {
        Endpoint::ALL.iter().copied().filter(move |e| self.has(Some(*e)))
    }
}

impl FromIterator<Endpoint> for EndpointSet {
    fn from_iter<I: IntoIterator<Item = Endpoint>>(endpoints: I) -> Self {
        let mut set = Self::EMPTY;
        endpoints.into_iter().for_each(|e| set.insert(e));
        set
    }
}

impl std::fmt::Debug for EndpointSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
