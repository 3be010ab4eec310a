//! Credentials: add, rotate, retire. They are immutable; a rotated key is a new one.

use spareline_core::Subject;
use spareline_core::secret::Secret;
use spareline_proto::admin::v1::*;
use tonic::{Code, Status};

use super::channels::without_secret;
use super::{Admin, Verified, channel_key, check_comment, check_secret, check_text, request_id};
use crate::refuse::{Refusal, Violations, invalid_field, of_store, refused};
use crate::store::{Request, Written};

impl Admin {
    pub(super) async fn add(
        &self,
        actor: &str,
        request: AddCredentialRequest,
    ) -> Result<AddCredentialResponse, Status> {
        let body = prost::Message::encode_to_vec(&AddCredentialRequest {
            request_id: String::new(),
            ..request.clone()
        });
        let AddCredentialRequest { channel, secret, verify, request_id: id, validate_only } = request;
        let mut violations = Violations::default();
        let id = request_id(&id, &mut violations);
        let key = channel_key("channel", &channel, &mut violations);
        check_secret("secret", &secret, &mut violations);
        violations.done()?;

        // Reads before the write, so that the provider is asked without holding the registry's lock.
        let channel = self.store.channel(&key).await.map_err(of_store)?.channel;
        if verify {
            match self.probing.verify(channel.clone(), Secret::new(secret.as_str())).await {
                Verified::Good => {}
                Verified::Rejected(why) => {
                    return Err(invalid_field("secret", format!("the provider rejects it: {why}")));
                }
                Verified::Unknown(why) => {
                    let message = format!("the secret could not be verified, nothing was stored: {why}");
                    return Err(refused(Code::Unavailable, "not_verified", message));
                }
            }
        }
        if validate_only {
            let equal = self.store.equal_credentials_at(&[secret], &channel).await.map_err(of_store)?;
            let equal_credential_id = equal.first().copied().unwrap_or_default();
            return Ok(AddCredentialResponse { credential: None, equal_credential_id });
        }
        let request = id.map(|id| Request { id, method: "AddCredential", body: &body });
        let written: Result<Written<AddCredentialResponse>, Refusal> = self
            .store
            .write_once(actor, request, |tx| {
                Box::pin(async move {
                    let new = tx.add_credential(&key, &secret).await?;
                    let credential = Some(without_secret(new.credential));
                    Ok(AddCredentialResponse { credential, equal_credential_id: 0 })
                })
            })
            .await;
        Ok(written?.value)
    }

    pub(super) async fn rotate(
        &self,
        actor: &str,
        request: RotateCredentialRequest,
    ) -> Result<RotateCredentialResponse, Status> {
        let body = prost::Message::encode_to_vec(&RotateCredentialRequest {
            request_id: String::new(),
            ..request.clone()
        });
        let RotateCredentialRequest { channel, secret, replaces, request_id: id, detached } = request;
        let mut violations = Violations::default();
        let id = request_id(&id, &mut violations);
        let key = channel_key("channel", &channel, &mut violations);
        check_secret("secret", &secret, &mut violations);
        for (i, credential) in replaces.iter().enumerate() {
            if *credential <= 0 {
                violations.add(format!("replaces[{i}]"), format!("{credential} is not a credential's id"));
            }
        }
        if detached && !replaces.is_empty() {
            violations.add(
                "replaces",
                "must be empty where `detached` is set: a detached credential replaces nothing",
            );
        }
        violations.done()?;
        let request = id.map(|id| Request { id, method: "RotateCredential", body: &body });
        let written: Result<Written<RotateCredentialResponse>, Refusal> = self
            .store
            .write_once(actor, request, |tx| {
                Box::pin(async move {
                    let new = tx.rotate_credential(&key, &secret, &replaces, detached).await?;
                    Ok(RotateCredentialResponse { credential: Some(without_secret(new.credential)) })
                })
            })
            .await;
        Ok(written?.value)
    }

    pub(super) async fn retire(
        &self,
        actor: &str,
        request: RetireCredentialRequest,
    ) -> Result<RetireCredentialResponse, Status> {
        let RetireCredentialRequest { subject, comment } = request;
        let mut violations = Violations::default();
        check_comment(&comment, &mut violations);
        let subject = subject.unwrap_or_default();
        if subject.credential.as_deref().unwrap_or_default().is_empty() {
            violations.add(
                "subject.credential",
                "is required: a credential's id, or its fingerprint beside a channel",
            );
        }
        check_text("subject.channel", &subject.channel, &mut violations);
        check_text("subject.credential", subject.credential.as_deref().unwrap_or_default(), &mut violations);
        if subject.model.is_some() {
            violations.add("subject.model", "must not be set: a credential is retired for all models");
        }
        violations.done()?;
        let written: Result<Written<()>, Refusal> = self
            .store
            .write(actor, |tx| {
                Box::pin(async move {
                    match tx.resolve(&subject).await? {
                        Subject::Credential(id) => Ok(tx.retire_credential(id, &comment).await?),
                        _ => Err(invalid_field("subject", "is not a credential").into()),
                    }
                })
            })
            .await;
        Ok(RetireCredentialResponse { revision: written?.revision })
    }
}
