//! How a channel's base URL and the path of a call are joined. One rule, for what people write:
//!
//! 1. Trailing slashes of the base do not matter; neither does a whole endpoint path at its end
//!    (`…/v1/chat/completions` reads as `…/v1`), which is refused where somebody writes it and works where it is stored.
//! 2. Calls are made to `/v1/REST`. Where the base's path has a version segment (`v1`, `v4`, `v1beta`) the `/v1` of the call is
//!    dropped: `host/api/paas/v4` gives `host/api/paas/v4/chat/completions`. Otherwise it stays:
//!    `host` gives `host/v1/chat/completions`, `host/openai` gives `host/openai/v1/chat/completions`.
//! 3. Azure: `host`, `host/openai` and `host/prefix` give `…/openai/deployments/NAME/REST?api-version=V` (paths without
//!    a deployment, such as `responses` and `models`, `…/openai/REST?api-version=V`); a base that ends in `/openai/v1`
//!    follows rule 2, and `api-version` is sent there only where it is `preview` or `latest`.
//! 4. The base's query comes first, then the call's without credentials, then `api-version`.
//!
//! Paths with dot segments are refused: our key goes nowhere but below the base.

#[cfg(test)]
mod tests;

use spareline_core::convert::{is_version, without_endpoint};
use url::Url;

/// A base URL, taken apart once per channel.
#[derive(Clone, Debug)]
pub struct Base {
    /// Scheme, authority and path, without a slash at the end.
    prefix: String,
    query: Option<String>,
    versioned: bool,
    azure: Option<Azure>,
}

#[derive(Clone, Debug)]
struct Azure {
    api_version: Option<String>,
    /// `…/openai/v1`: deployments are named in the body.
    v1: bool,
}

/// Query parameters by which some upstreams take a credential.
const CREDENTIALS: [&str; 8] =
    ["key", "api_key", "api-key", "apikey", "access_token", "token", "x-api-key", "subscription-key"];

// === impl Base ===

impl Base {
    /// For every provider but Azure.
    pub fn new(url: &Url) -> Self {
        let mut path = url.path().trim_end_matches('/');
        if let Some(shorter) = without_endpoint(path) {
            path = shorter.trim_end_matches('/');
        }
        Self {
            prefix: format!("{}{path}", url.origin().ascii_serialization()),
            query: url.query().filter(|query| !query.is_empty()).map(str::to_owned),
            versioned: path.split('/').any(is_version),
            azure: None,
        }
    }

    /// For Azure.
    pub fn azure(url: &Url, api_version: Option<&str>) -> Self {
        let mut base = Self::new(url);
        let v1 = base.prefix.ends_with("/openai/v1");
        if !v1 && !base.prefix.ends_with("/openai") && !base.prefix.contains("/openai/deployments/") {
            base.prefix.push_str("/openai");
        }
        let api_version =
            api_version.filter(|version| !v1 || matches!(*version, "preview" | "latest")).map(str::to_owned);
        base.azure = Some(Azure { api_version, v1 });
        base
    }

    /// The URL of a call to `path` (beginning with `/v1/`). `deployment` is what Azure puts into the path.
    ///
    /// `None`: the path has dot segments, or makes no URL.
    pub fn join(&self, path: &str, query: Option<&str>, deployment: Option<&str>) -> Option<Url> {
        if path.split('/').any(is_dots) {
            return None;
        }
        let rest = path.strip_prefix("/v1").filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let rest = rest.unwrap_or(path);
        let mut url = String::with_capacity(self.prefix.len() + path.len() + 64);
        url.push_str(&self.prefix);
        match &self.azure {
            Some(azure) if !azure.v1 => {
                if let Some(name) = deployment
                    .filter(|_| has_deployment(rest) && !self.prefix.contains("/openai/deployments/"))
                {
                    url.push_str("/deployments/");
                    push_encoded(&mut url, name);
                }
            }
            _ if !self.versioned && rest.len() < path.len() => url.push_str("/v1"),
            _ => {}
        }
        url.push_str(rest);
        let mut mark = '?';
        let mut add = |part: &str| {
            url.push(mark);
            url.push_str(part);
            mark = '&';
        };
        if let Some(query) = &self.query {
            add(query);
        }
        for part in query.unwrap_or_default().split('&') {
            let name = part.split('=').next().unwrap_or_default();
            if !part.is_empty() && !self.replaces(name) {
                add(part);
            }
        }
        if let Some(version) = self.azure.as_ref().and_then(|azure| azure.api_version.as_deref())
            && !self.query.as_ref().is_some_and(|query| query.contains("api-version="))
        {
            add(&format!("api-version={version}"));
        }
        let mut url = Url::parse(&url).ok()?;
        url.set_fragment(None);
        Some(url)
    }

    /// Query parameters of a caller's that do not go up: credentials, and what the channel says itself.
    fn replaces(&self, name: &str) -> bool {
        let decoded = percent_decoded(name);
        CREDENTIALS.iter().any(|credential| decoded.eq_ignore_ascii_case(credential))
            || (self.azure.is_some() && decoded == "api-version")
    }
}

fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/");
    let dots = plain.split('/').any(|part| matches!(part.split(';').next(), Some("." | "..")));
    dots || plain.contains('\\') || plain.contains("%5c")
}

/// Whether Azure serves a path below a deployment.
fn has_deployment(rest: &str) -> bool {
    ["/chat/", "/completions", "/embeddings", "/images/", "/audio/"]
        .iter()
        .any(|begin| rest.starts_with(begin))
}

/// One path segment.
fn push_encoded(out: &mut String, segment: &str) {
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

fn percent_decoded(name: &str) -> std::borrow::Cow<'_, str> {
    if !name.contains('%') {
        return name.into();
    }
    let pair = format!("{name}=");
    let decoded = url::form_urlencoded::parse(pair.as_bytes()).next().map(|(name, _)| name.into_owned());
    decoded.unwrap_or_default().into()
}
