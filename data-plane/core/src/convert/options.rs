//! What differs by provider and network; a field that the provider does not know is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use spareline_proto::registry::v1 as pb;

use super::check::Check;
use super::urls::web_url;
use super::{credential_order, probe_kind};
use crate::spec::Options;
use crate::words::Provider;

const MAX_CA_PEM: usize = 256 * 1024;
const MAX_CONNECTIONS: u32 = 100_000;
const MAX_HEADERS: usize = 64;
const MAX_HEADER: usize = 4096;

/// Headers that carry credentials: ours to set, from a [`Credential`](crate::spec::Credential) alone.
const CREDENTIAL_HEADERS: [&str; 8] = [
    "authorization",
    "x-api-key",
    "api-key",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-goog-api-key",
    "x-amz-security-token",
];

/// Headers that belong to one connection or to how a message is framed: the client's to set.
const TRANSPORT_HEADERS: [&str; 13] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
    "content-type",
    "accept-encoding",
    "expect",
];

pub(super) fn options(check: &mut Check, wire: &pb::Channel, provider: Option<Provider>) -> Options {
    let empty = pb::ChannelOptions::default();
    let o = wire.options.as_ref().unwrap_or(&empty);
    if let Some(provider) = provider {
        foreign(check, o, provider);
    }
    for (field, value) in
        [("api_version", &o.api_version), ("organization", &o.organization), ("project", &o.project)]
    {
        if !value.is_empty() {
            check.text(format_args!("options.{field}"), value, 128);
            if !value.bytes().all(|b| (0x20..0x7f).contains(&b)) {
                check.add(format!("options.{field}"), "must be printable ASCII");
            }
        }
    }
    if !o.vendor.is_empty() {
        check.word("options.vendor", &o.vendor, "_-.", 63);
    }
    if !o.probe_model.is_empty() && !wire.models.iter().any(|m| m.model == o.probe_model) {
        check.add("options.probe_model", "must be one of the channel's models");
    }
    if !o.ca_pem.is_empty()
        && (o.ca_pem.len() > MAX_CA_PEM || !o.ca_pem.contains("-----BEGIN CERTIFICATE-----"))
    {
        check.add("options.ca_pem", "must be PEM certificates, at most 256 KiB");
    }
    if o.max_connections > MAX_CONNECTIONS {
        check.add("options.max_connections", "must be at most 100000");
    }
    let probe = probe_kind(o.probe).unwrap_or_else(|| {
        check.add("options.probe", "is not a kind of probe that this build knows");
        Default::default()
    });
    let credential_order = credential_order(o.credential_order).unwrap_or_else(|| {
        check.add("options.credential_order", "is not an order that this build knows");
        Default::default()
    });
    let proxy_url =
        if o.proxy_url.is_empty() { None } else { web_url(check, "options.proxy_url", &o.proxy_url) };
    let text = |s: &str| (!s.is_empty()).then(|| s.to_owned());
    Options {
        api_version: text(&o.api_version),
        organization: text(&o.organization),
        project: text(&o.project),
        headers: headers(check, &o.headers),
        probe_model: text(&o.probe_model).map(Arc::from),
        probe,
        proxy_url,
        ca_pem: text(&o.ca_pem).map(Arc::from),
        http2: o.http2,
        max_connections: (o.max_connections > 0).then_some(o.max_connections),
        credential_order,
    }
}

fn foreign(check: &mut Check, o: &pb::ChannelOptions, provider: Provider) {
    let azure = provider == Provider::AzureOpenAi;
    let openai = provider == Provider::OpenAi;
    if azure && o.api_version.is_empty() {
        check.add("options.api_version", "is required for azure_openai");
    }
    let fields = [
        ("api_version", &o.api_version, azure),
        ("organization", &o.organization, openai),
        ("project", &o.project, openai),
    ];
    for (field, value, known) in fields {
        if !value.is_empty() && !known {
            check.add(format!("options.{field}"), format!("is unknown to {provider}"));
        }
    }
}

fn headers(check: &mut Check, wire: &BTreeMap<String, String>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if wire.len() > MAX_HEADERS {
        check.add("options.headers", format!("must be at most {MAX_HEADERS}"));
    }
    for (name, value) in wire {
        let field = format!("options.headers[{name:?}]");
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name.as_str()), HeaderValue::from_str(value))
        else {
            check.add(field, "is not a valid header");
            continue;
        };
        if value.len() > MAX_HEADER {
            check.add(field, format!("must be at most {MAX_HEADER} bytes"));
        } else if is_credential_header(name.as_str()) {
            check.add(field, "may not name a credential header: add a credential instead");
        } else if TRANSPORT_HEADERS.contains(&name.as_str()) {
            check.add(field, "may not name a header of the connection or of the message's framing");
        } else if headers.insert(name, value).is_some() {
            check.add(field, "is named twice");
        }
    }
    headers
}

/// Whether a header carries a credential.
pub(super) fn is_credential_header(name: &str) -> bool {
    CREDENTIAL_HEADERS.contains(&name)
}
