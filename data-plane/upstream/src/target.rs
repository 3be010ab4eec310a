//! What of a channel matters for speaking to it.

use std::fmt;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use spareline_core::spec::ChannelSpec;
use spareline_core::{ChannelId, Provider};
use url::Url;

/// One channel, as far as requests to it go. Made once per version of a channel, not per request.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its id.
    pub channel: ChannelId,
    /// Changes whenever anything else here does: the channel's spec revision.
    pub revision: i64,
    /// The dialect to speak.
    pub provider: Provider,
    /// Whose classifier rules apply.
    pub vendor: Option<Arc<str>>,
    /// http or https, without userinfo; path prefix and query are kept (see [`crate::base_url`]).
    pub base_url: Url,
    /// Azure's `api-version`.
    pub api_version: Option<Arc<str>>,
    /// OpenAI's organisation header.
    pub organization: Option<Arc<str>>,
    /// OpenAI's project header.
    pub project: Option<Arc<str>>,
    /// Sent with every request, in place of the caller's of the same name; never a credential header.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How to get there.
    pub network: Network,
}

/// What makes two channels differ in network. Channels that do not differ share a pool.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Network {
    /// An egress proxy: http, https or socks5 URL; may carry userinfo, so it is never printed.
    pub proxy_url: Option<Arc<str>>,
    /// PEM bundle to trust besides the system's.
    pub ca_pem: Option<Arc<str>>,
    /// Speak HTTP/2: by ALPN over TLS, by prior knowledge without.
    pub http2: bool,
    /// Most requests at once on this channel (with HTTP/1.1: connections); `None`: [`crate::ClientsConfig`]'s default.
    pub max_connections: Option<u32>,
}

impl From<&ChannelSpec> for Target {
    fn from(spec: &ChannelSpec) -> Self {
        let options = &spec.options;
        let text = |text: &Option<String>| text.as_deref().map(Arc::from);
        Self {
            channel: spec.id,
            revision: spec.spec_revision.0,
            provider: spec.provider,
            vendor: spec.vendor.clone(),
            base_url: spec.base_url.clone(),
            api_version: text(&options.api_version),
            organization: text(&options.organization),
            project: text(&options.project),
            headers: options.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            network: Network {
                proxy_url: options.proxy_url.as_ref().map(|url| url.as_str().into()),
                ca_pem: options.ca_pem.clone(),
                http2: options.http2,
                max_connections: options.max_connections,
            },
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("proxy_url", &self.proxy_url.as_ref().map(|_| "<redacted>"))
            .field("ca_pem", &self.ca_pem.is_some())
            .field("http2", &self.http2)
            .field("max_connections", &self.max_connections)
            .finish()
    }
}
