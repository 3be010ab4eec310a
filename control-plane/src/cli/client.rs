//! The control plane's admin API, as the subcommands use it.

use std::collections::BTreeMap;
use std::time::Duration;

use spareline_proto::admin::v1::channel_admin_service_client::ChannelAdminServiceClient;
use spareline_proto::admin::v1::policy_admin_service_client::PolicyAdminServiceClient;
use spareline_proto::admin::v1::rollout_service_client::RolloutServiceClient;
use spareline_proto::admin::v1::{ChannelView, GetChannelRequest, ListChannelsRequest, ListPoliciesRequest};
use spareline_proto::registry::v1::{Channel, Credential, Policy};
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use super::Failure;

/// How long one call may take.
const CALL: Duration = Duration::from_secs(60);

/// The services over one connection.
pub(super) struct Client {
    pub(super) channels: ChannelAdminServiceClient<tonic::transport::Channel>,
    pub(super) policies: PolicyAdminServiceClient<tonic::transport::Channel>,
    pub(super) rollouts: RolloutServiceClient<tonic::transport::Channel>,
}

/// The registry as it is.
#[derive(Default)]
pub(super) struct Registry {
    /// By name.
    pub(super) channels: BTreeMap<String, Channel>,
    /// Of channels, by credential id.
    pub(super) fingerprints: BTreeMap<i64, String>,
    /// By group.
    pub(super) policies: BTreeMap<String, Policy>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// A URL that is none, or nobody there.
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        let endpoint = Endpoint::from_shared(url.to_owned())
            .map_err(|_| {
                Failure::Usage(format!("--admin: `{url}` is not a URL such as http://127.0.0.1:7700"))
            })?
            .connect_timeout(Duration::from_secs(5))
            .timeout(CALL);
        let connection = endpoint.connect().await.map_err(|why| Failure::Unreachable {
            url: url.to_owned(),
            why: std::error::Error::source(&why).map_or_else(|| why.to_string(), ToString::to_string),
        })?;
        Ok(Self {
            channels: ChannelAdminServiceClient::new(connection.clone()).max_decoding_message_size(64 << 20),
            policies: PolicyAdminServiceClient::new(connection.clone()).max_decoding_message_size(64 << 20),
            rollouts: RolloutServiceClient::new(connection).max_decoding_message_size(64 << 20),
        })
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// What the control plane answers.
    pub(super) async fn registry(&mut self) -> Result<Registry, Failure> {
        let mut registry = Registry::default();
        let mut page_token = String::new();
        loop {
            let request =
                ListChannelsRequest { page_size: 500, page_token, ..ListChannelsRequest::default() };
            let page =
                self.channels.list_channels(request).await.map_err(refused("list channels"))?.into_inner();
            for channel in page.channels.into_iter().filter_map(|ChannelView { channel, .. }| channel) {
                registry.channels.insert(channel.name.clone(), channel);
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        let policies =
            self.policies.list_policies(ListPoliciesRequest {}).await.map_err(refused("list policies"))?;
        registry.policies =
            policies.into_inner().policies.into_iter().map(|p| (p.group.clone(), p)).collect();
        Ok(registry)
    }

    /// Reads the fingerprints of all listed credentials.
    ///
    /// # Errors
    /// What the control plane answers.
    pub(super) async fn fingerprints(&mut self, registry: &mut Registry) -> Result<(), Failure> {
        for channel in registry.channels.values() {
            if channel.credential_ids.iter().all(|id| registry.fingerprints.contains_key(id)) {
                continue;
            }
            let request = GetChannelRequest { channel: channel.channel_id.to_string() };
            match self.channels.get_channel(request).await {
                Ok(answer) => {
                    for Credential { credential_id, fingerprint, .. } in answer.into_inner().credentials {
                        registry.fingerprints.insert(credential_id, fingerprint);
                    }
                }
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => return Err(refused("read a channel")(status)),
            }
        }
        Ok(())
    }
}

/// A refusal, with what was tried.
pub(super) fn refused(what: &str) -> impl Fn(Status) -> Failure {
    move |status| Failure::Refused { what: what.to_owned(), status: Box::new(status) }
}
