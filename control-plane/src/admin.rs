//! The operator's API: channels, credentials, statuses, policies, the audit log, and what the classifier would say.
//!
//! Thin by intent: it checks what a request says by itself (everything wrong at once, with the field's name), and leaves what
//! needs the registry to the store, which decides and writes under one lock. Secrets go in and never come out: not in answers,
//! errors or log lines. Nobody is authenticated yet; `x-spareline-actor` in a call's metadata names the author of a change.

mod channels;
mod classify;
mod credentials;
mod mask;
pub(crate) mod page;
mod policies;
mod rollouts;
mod subjects;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use rollouts::Rollouts;

use std::sync::Arc;

use spareline_core::convert::{self, Violation};
use spareline_core::secret::Secret;
use spareline_proto::admin::v1::channel_admin_service_server::ChannelAdminService;
use spareline_proto::admin::v1::*;
use spareline_proto::registry::v1 as pb;
use spareline_upstream::{Clients, LineError};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::refuse::Violations;
use crate::store::{Store, problem_of_secret};

/// Both admin services.
#[derive(Clone)]
pub(crate) struct Admin {
    store: Store,
    probing: Arc<dyn Probing>,
}

/// What the admin API asks of the prober.
#[tonic::async_trait]
pub(crate) trait Probing: Send + Sync {
    /// Runs a round now.
    async fn probe_now(&self, request: ProbeNowRequest) -> Result<ProbeNowResponse, Status>;

    /// Asks the channel's provider what it makes of a secret.
    async fn verify(&self, channel: pb::Channel, secret: Secret) -> Verified;
}

/// What a provider makes of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verified {
    /// It takes it (a rate limit is an answer to a living key).
    Good,
    /// It does not; one line of why.
    Rejected(String),
    /// It could not be asked, or said nothing about the key.
    Unknown(String),
}

impl Admin {
    /// Over one store and one prober.
    pub(crate) fn new(store: Store, probing: Arc<dyn Probing>) -> Self {
        Self { store, probing }
    }

    /// What it works on.
    #[cfg(test)]
    pub(crate) fn store_for_tests(&self) -> Store {
        self.store.clone()
    }
}

/// What is wrong with a channel by itself.
pub(crate) fn violations_of_channel(channel: &pb::Channel) -> Vec<Violation> {
    convert::channel(channel).err().unwrap_or_default()
}

/// What is wrong with a channel as somebody writes it. Beside what is wrong by itself: what only a mistake can mean, and what cannot
/// work here, unless it is stored like that already.
pub(crate) fn violations_of_written(channel: &pb::Channel, stored: Option<&pb::Channel>) -> Vec<Violation> {
    let mut found = violations_of_channel(channel);
    if stored.is_none_or(|stored| stored.base_url != channel.base_url) {
        found.extend(convert::mistaken(&channel.base_url));
    }
    let network = |of: &pb::Channel| of.options.clone().map(|o| (o.ca_pem, o.proxy_url)).unwrap_or_default();
    if network(channel) != <_>::default() && stored.is_none_or(|stored| network(stored) != network(channel)) {
        spareline_upstream::install_tls();
        let spec = convert::channel(channel).ok();
        let unusable = spec.and_then(|spec| Clients::new(<_>::default()).line_of(&spec).err());
        found.extend(unusable.map(|why| {
            let field = if why == LineError::Proxy { "options.proxy_url" } else { "options.ca_pem" };
            Violation::new(field, why.to_string())
        }));
    }
    found
}

/// What is wrong with a policy by itself.
pub(crate) fn violations_of_policy(policy: &pb::Policy) -> Vec<Violation> {
    convert::policy(policy).err().unwrap_or_default()
}

/// Who makes a change, as the call's metadata says.
fn actor(metadata: &MetadataMap) -> String {
    let named =
        metadata.get("x-spareline-actor").and_then(|v| v.to_str().ok()).map(str::trim).unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '+');
    if !named.is_empty() && named.len() <= 64 && named.chars().all(fits) {
        format!("user:{named}")
    } else {
        "operator".to_owned()
    }
}

/// A channel's name or id, as calls give it.
fn channel_key(field: &str, name: &str, violations: &mut Violations) -> crate::store::ChannelKey {
    if name.is_empty() {
        violations.add(field, "is required: a channel's name or id");
    }
    check_text(field, name, violations);
    name.into()
}

/// A UUID, or nothing.
fn request_id(text: &str, violations: &mut Violations) -> Option<Uuid> {
    if text.is_empty() {
        return None;
    }
    let id = Uuid::try_parse(text).ok().filter(|id| !id.is_nil());
    if id.is_none() {
        violations.add("request_id", "is not a UUID");
    }
    id
}

/// A secret must fit into a header.
fn check_secret(field: &str, secret: &str, violations: &mut Violations) {
    if let Some(problem) = problem_of_secret(secret) {
        violations.add(field, problem);
    }
}

/// A comment for the audit log.
fn check_comment(comment: &str, violations: &mut Violations) {
    check_words("comment", comment, violations);
}

/// Words for humans: at most 1000 characters.
fn check_words(field: &str, words: &str, violations: &mut Violations) {
    if words.chars().count() > 1000 {
        violations.add(field, "is longer than 1000 characters");
    }
    check_text(field, words, violations);
}

/// The database takes every character but one.
fn check_text(field: &str, text: &str, violations: &mut Violations) {
    if text.contains('\0') {
        violations.add(field, "has a NUL character");
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl ChannelAdminService for Admin {
    async fn create_channel(&self, request: Request<CreateChannelRequest>) -> Answer<CreateChannelResponse> {
        self.create(&actor(request.metadata()), request.into_inner()).await.map(Response::new)
    }

    async fn get_channel(&self, request: Request<GetChannelRequest>) -> Answer<GetChannelResponse> {
        self.get(&request.into_inner()).await.map(Response::new)
    }

    async fn list_channels(&self, request: Request<ListChannelsRequest>) -> Answer<ListChannelsResponse> {
        self.list(request.into_inner()).await.map(Response::new)
    }

    async fn update_channel(&self, request: Request<UpdateChannelRequest>) -> Answer<UpdateChannelResponse> {
        self.update(&actor(request.metadata()), request.into_inner()).await.map(Response::new)
    }

    async fn delete_channel(&self, request: Request<DeleteChannelRequest>) -> Answer<DeleteChannelResponse> {
        self.delete(&actor(request.metadata()), request.into_inner()).await.map(Response::new)
    }

    async fn rotate_credential(
        &self,
        request: Request<RotateCredentialRequest>,
    ) -> Answer<RotateCredentialResponse> {
        self.rotate(&actor(request.metadata()), request.into_inner()).await.map(Response::new)
    }

    async fn add_credential(&self, request: Request<AddCredentialRequest>) -> Answer<AddCredentialResponse> {
        self.add(&actor(request.metadata()), request.into_inner()).await.map(Response::new)
    }

    async fn retire_credential(
        &self,
        request: Request<RetireCredentialRequest>,
    ) -> Answer<RetireCredentialResponse> {
        self.retire(&actor(request.metadata()), request.into_inner()).await.map(Response::new)
    }

    async fn enable_subject(&self, request: Request<EnableSubjectRequest>) -> Answer<EnableSubjectResponse> {
        self.enable(&actor(request.metadata()), request.into_inner()).await.map(Response::new)
    }

    async fn disable_subject(
        &self,
        request: Request<DisableSubjectRequest>,
    ) -> Answer<DisableSubjectResponse> {
        self.disable(&actor(request.metadata()), request.into_inner()).await.map(Response::new)
    }

    async fn probe_now(&self, request: Request<ProbeNowRequest>) -> Answer<ProbeNowResponse> {
        let request = request.into_inner();
        let mut violations = Violations::default();
        for (i, channel) in request.channels.iter().enumerate() {
            channel_key(&format!("channels[{i}]"), channel, &mut violations);
        }
        violations.done()?;
        self.probing.probe_now(request).await.map(Response::new)
    }

    async fn list_events(&self, request: Request<ListEventsRequest>) -> Answer<ListEventsResponse> {
        self.events(request.into_inner()).await.map(Response::new)
    }

    async fn classify(&self, request: Request<ClassifyRequest>) -> Answer<ClassifyResponse> {
        self.classified(request.into_inner()).await.map(Response::new)
    }
}
