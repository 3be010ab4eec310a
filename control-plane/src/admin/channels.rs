//! Channels: create, read, list, change, remove.

use prost::Message as _;
use spareline_core::Provider;
use spareline_core::spec::DEFAULT_GROUP;
use spareline_proto::admin::v1::*;
use spareline_proto::registry::v1 as pb;
use time::OffsetDateTime;
use tonic::{Code, Status};

use super::{Admin, channel_key, check_secret, check_text, mask, page, request_id, violations_of_written};
use crate::decide;
use crate::refuse::{Refusal, Violations, invalid_field, of_store};
use crate::store::{ChannelFilter, ChannelKey, Page, Request, Written};

/// Fields that the server sets.
pub(super) const FIXED: &[&str] = &["channel_id", "spec_revision", "etag"];

impl Admin {
    pub(super) async fn create(
        &self,
        actor: &str,
        request: CreateChannelRequest,
    ) -> Result<CreateChannelResponse, Status> {
        let body = prost::Message::encode_to_vec(&CreateChannelRequest {
            request_id: String::new(),
            ..request.clone()
        });
        let CreateChannelRequest { channel, secrets, request_id: id, validate_only } = request;
        let mut violations = Violations::default();
        let id = request_id(&id, &mut violations);
        let Some(channel) = channel else {
            violations.add("channel", "is required");
            violations.done()?;
            return Err(invalid_field("channel", "is required"));
        };
        violations.extend("channel", violations_of_written(&channel, None));
        for (i, secret) in secrets.iter().enumerate() {
            let field = format!("secrets[{i}]");
            check_secret(&field, secret, &mut violations);
            if secrets.iter().take(i).any(|earlier| earlier == secret) {
                violations.add(field, "is given twice");
            }
        }
        violations.done()?;
        let channel = filled_in(channel);
        if validate_only {
            return self.check_new(actor, channel, secrets).await;
        }
        let request = id.map(|id| Request { id, method: "CreateChannel", body: &body });
        let written: Result<Written<CreateChannelResponse>, Refusal> = self
            .store
            .write_once(actor, request, |tx| {
                Box::pin(async move {
                    let channel = tx.create_channel(channel, &secrets).await?;
                    Ok(CreateChannelResponse { channel: Some(channel), equal_credential_ids: Vec::new() })
                })
            })
            .await;
        Ok(written?.value)
    }

    /// `validate_only`: what would be stored, and which secrets are known.
    async fn check_new(
        &self,
        actor: &str,
        channel: pb::Channel,
        secrets: Vec<String>,
    ) -> Result<CreateChannelResponse, Status> {
        let written: Result<Written<pb::Channel>, Refusal> = self
            .store
            .write(actor, |tx| {
                Box::pin(async move {
                    tx.dry_run();
                    Ok(tx.create_channel(channel, &[]).await?)
                })
            })
            .await;
        let mut channel = written?.value;
        // Nothing was stored: what it would have been called does not exist.
        (channel.channel_id, channel.spec_revision) = (0, 0);
        channel.etag.clear();
        let equal_credential_ids =
            self.store.equal_credentials_at(&secrets, &channel).await.map_err(of_store)?;
        Ok(CreateChannelResponse { channel: Some(channel), equal_credential_ids })
    }

    pub(super) async fn get(&self, request: &GetChannelRequest) -> Result<GetChannelResponse, Status> {
        let mut violations = Violations::default();
        let key = channel_key("channel", &request.channel, &mut violations);
        violations.done()?;
        let found = self.store.channel(&key).await.map_err(of_store)?;
        let view = decide::channel_view(&found, self.now().await?);
        let credentials = found.credentials.into_iter().map(without_secret).collect();
        Ok(GetChannelResponse { channel: Some(view), credentials })
    }

    pub(super) async fn list(&self, request: ListChannelsRequest) -> Result<ListChannelsResponse, Status> {
        let size = page::size(request.page_size, page::ROWS)?;
        let mut violations = Violations::default();
        let state = pb::ServingState::try_from(request.state);
        if state.is_err() {
            violations.add("state", "is not a state");
        }
        if !request.provider.is_empty()
            && let Err(why) = request.provider.parse::<Provider>()
        {
            violations.add("provider", why.to_string());
        }
        for (field, text) in [("model", &request.model), ("group", &request.group)] {
            check_text(field, text, &mut violations);
        }
        let question = ListChannelsRequest { page_size: 0, page_token: String::new(), ..request.clone() }
            .encode_to_vec();
        let after = page::open(&request.page_token, "channels", &question, &mut violations);
        violations.done()?;
        let set = |text: String| (!text.is_empty()).then_some(text);
        let filter = ChannelFilter {
            model: set(request.model),
            group: set(request.group),
            provider: set(request.provider),
            state: state.ok().filter(|s| *s != pb::ServingState::Unspecified),
        };
        let found: Page<decide::Channel> =
            self.store.channels(&filter, size, after).await.map_err(of_store)?;
        let now = self.now().await?;
        Ok(ListChannelsResponse {
            channels: found.items.iter().map(|channel| decide::channel_view(channel, now)).collect(),
            next_page_token: page::seal(&found.next_page_token, "channels", &question),
            revision: found.revision,
        })
    }

    /// By the database's clock: the one that times were written by.
    async fn now(&self) -> Result<OffsetDateTime, Status> {
        self.store.ping().await.map_err(of_store)
    }

    pub(super) async fn update(
        &self,
        actor: &str,
        request: UpdateChannelRequest,
    ) -> Result<UpdateChannelResponse, Status> {
        let UpdateChannelRequest { channel, update_mask, validate_only } = request;
        let Some(wanted) = channel else { return Err(invalid_field("channel", "is required")) };
        let mut violations = Violations::default();
        check_text("channel.name", &wanted.name, &mut violations);
        violations.done()?;
        let key = match (wanted.channel_id, wanted.name.as_str()) {
            (1.., _) => ChannelKey::Id(wanted.channel_id),
            (0, name) if !name.is_empty() => ChannelKey::Name(name.to_owned()),
            _ => return Err(invalid_field("channel.name", "is required: a name, or channel_id")),
        };
        let written: Result<Written<pb::Channel>, Refusal> = self
            .store
            .write(actor, |tx| {
                Box::pin(async move {
                    if validate_only {
                        tx.dry_run();
                    }
                    let current = tx.channel(&key).await?;
                    let mut violations = Violations::default();
                    let renames = update_mask.as_ref().is_some_and(|m| names(m, "name"));
                    if !renames && !wanted.name.is_empty() && wanted.name != current.name {
                        let problem = format!("channel {} is {:?}", current.channel_id, current.name);
                        violations.add(
                            "channel.name",
                            format!("{problem}; to rename it, name the field in update_mask"),
                        );
                    }
                    let mut next =
                        mask::apply(&current, &wanted, update_mask.as_ref(), FIXED, &mut violations)?;
                    next = filled_in(next);
                    violations.extend("channel", violations_of_written(&next, Some(&current)));
                    violations.done()?;
                    next.channel_id = current.channel_id;
                    next.etag = wanted.etag;
                    Ok(tx.update_channel(next).await?)
                })
            })
            .await;
        Ok(UpdateChannelResponse { channel: Some(written?.value) })
    }

    pub(super) async fn delete(
        &self,
        actor: &str,
        request: DeleteChannelRequest,
    ) -> Result<DeleteChannelResponse, Status> {
        let mut violations = Violations::default();
        let key = channel_key("channel", &request.channel, &mut violations);
        violations.done()?;
        let etag = request.etag;
        let written: Result<Written<()>, Refusal> = self
            .store
            .write(actor, |tx| Box::pin(async move { Ok(tx.delete_channel(&key, &etag).await?) }))
            .await;
        match written.map_err(Status::from) {
            Ok(written) => Ok(DeleteChannelResponse { revision: written.revision }),
            Err(status) if request.allow_missing && status.code() == Code::NotFound => {
                let head = self.store.head().await.map_err(of_store)?;
                Ok(DeleteChannelResponse { revision: head.revision })
            }
            Err(status) => Err(status),
        }
    }
}

/// Whether a mask names a field, or all of them.
fn names(mask: &prost_types::FieldMask, field: &str) -> bool {
    mask.paths.iter().any(|path| path == field || path == "*")
}

/// What is left out is written out, so that whoever reads it need not know.
pub(super) fn filled_in(mut channel: pb::Channel) -> pb::Channel {
    if channel.groups.is_empty() {
        channel.groups.push(DEFAULT_GROUP.to_owned());
    }
    channel
}

/// A credential never leaves with its secret.
pub(super) fn without_secret(mut credential: pb::Credential) -> pb::Credential {
    credential.secret.clear();
    credential
}
