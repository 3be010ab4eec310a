//! Enable, disable, and the log of who took out what.

use prost::Message as _;
use spareline_proto::admin::v1::*;
use spareline_proto::registry::v1 as pb;
use tonic::Status;

use super::{Admin, check_comment, check_text, page};
use crate::refuse::{Refusal, Violations, of_store};
use crate::store::{Enabled, EventFilter, Written};

impl Admin {
    pub(super) async fn enable(
        &self,
        actor: &str,
        request: EnableSubjectRequest,
    ) -> Result<EnableSubjectResponse, Status> {
        let (subject, comment) = checked(request.subject, request.comment)?;
        let written: Result<Written<Enabled>, Refusal> = self
            .store
            .write(actor, |tx| {
                Box::pin(async move {
                    let subject = tx.resolve(&subject).await?;
                    Ok(tx.enable(&subject, &comment).await?)
                })
            })
            .await;
        let Enabled { status, cleared, still_disabled } = written?.value;
        Ok(EnableSubjectResponse { status: Some(status), cleared, still_disabled })
    }

    pub(super) async fn disable(
        &self,
        actor: &str,
        request: DisableSubjectRequest,
    ) -> Result<DisableSubjectResponse, Status> {
        let (subject, comment) = checked(request.subject, request.comment)?;
        let written: Result<Written<pb::Status>, Refusal> = self
            .store
            .write(actor, |tx| {
                Box::pin(async move {
                    let subject = tx.resolve(&subject).await?;
                    Ok(tx.disable(&subject, &comment).await?)
                })
            })
            .await;
        Ok(DisableSubjectResponse { status: Some(written?.value) })
    }

    pub(super) async fn events(&self, request: ListEventsRequest) -> Result<ListEventsResponse, Status> {
        let size = page::size(request.page_size, page::ROWS)?;
        let question =
            ListEventsRequest { page_size: 0, page_token: String::new(), ..request.clone() }.encode_to_vec();
        let mut violations = Violations::default();
        let after = page::open(&request.page_token, "events", &question, &mut violations).to_owned();
        for (field, text) in [("channel", &request.channel), ("kind", &request.kind)] {
            check_text(field, text, &mut violations);
        }
        violations.done()?;
        let set = |text: String| (!text.is_empty()).then_some(text);
        let filter =
            EventFilter { channel: set(request.channel).map(|c| c.as_str().into()), kind: set(request.kind) };
        let found = self.store.events(&filter, size, &after).await.map_err(of_store)?;
        Ok(ListEventsResponse {
            events: found.items,
            next_page_token: page::seal(&found.next_page_token, "events", &question),
        })
    }
}

fn checked(subject: Option<SubjectName>, comment: String) -> Result<(SubjectName, String), Status> {
    let subject = subject.unwrap_or_default();
    let mut violations = Violations::default();
    check_comment(&comment, &mut violations);
    let set = |field: &Option<String>| field.as_ref().is_some_and(|f| !f.is_empty());
    check_text("subject.channel", &subject.channel, &mut violations);
    for (name, field) in [("credential", &subject.credential), ("model", &subject.model)] {
        check_text(&format!("subject.{name}"), field.as_deref().unwrap_or_default(), &mut violations);
        if field.as_ref().is_some_and(String::is_empty) {
            violations.add(format!("subject.{name}"), "is empty: leave it out, or name one");
        }
    }
    if subject.channel.is_empty() && (!set(&subject.credential) || set(&subject.model)) {
        violations.add("subject.channel", "is required: a channel's name or id");
    }
    violations.done()?;
    Ok((subject, comment))
}
