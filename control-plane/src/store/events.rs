//! The audit log, which is also what replicas follow.

use serde_json::Value;
use spareline_core::{Subject, convert};
use spareline_proto::admin::v1 as admin;
use time::OffsetDateTime;

use super::rows::{self, Key};
use super::{ChannelKey, Page, Result, Store, StoreError, Tx};

/// Plain filters; unset means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// About this channel, or something beneath it.
    pub channel: Option<ChannelKey>,
    /// Of this kind.
    pub kind: Option<String>,
}

/// The item an event changed: what a follower reads again.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Channel(i64),
    Credential(i64),
    Status(Subject),
    Policy(String),
    /// A rollout: followers read all that last, whenever anything happens.
    Rollout,
    /// Nothing changed: an alert. What it is about.
    None(Subject),
}

/// One event of a transaction under way.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) kind: &'static str,
    pub(super) item: Item,
    pub(super) channels: Vec<i64>,
    pub(super) detail: Value,
    pub(super) actor: String,
}

impl Item {
    fn columns(&self) -> (&'static str, Key, &str) {
        let none = || Key { kind: "", id: 0, model: String::new(), credential: 0 };
        match self {
            Item::Channel(id) => ("channel", Key { kind: "channel", id: *id, ..none() }, ""),
            Item::Credential(id) => ("credential", Key { kind: "credential", id: *id, ..none() }, ""),
            Item::Status(subject) => ("status", Key::from(subject), ""),
            Item::Policy(group) => ("policy", none(), group),
            Item::Rollout => ("", none(), ""),
            Item::None(subject) => ("", Key::from(subject), ""),
        }
    }
}

impl Tx {
    pub(super) fn event(&mut self, kind: &'static str, item: Item, channels: Vec<i64>, detail: Value) {
        let actor = self.actor.clone();
        self.events.push(Event { kind, item, channels, detail, actor });
    }

    /// Writes the events of this transaction.
    pub(super) async fn record(&mut self) -> Result<()> {
        let (revision, now) = (self.revision, self.now);
        for (ordinal, event) in std::mem::take(&mut self.events).into_iter().enumerate() {
            let (item, key, group) = event.item.columns();
            sqlx::query(
                "INSERT INTO events (revision, ordinal, created_at, kind, actor, item, subject_kind, subject_id, model, \
                 credential_id, group_name, channel_ids, detail) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
            )
            .bind(revision)
            .bind(i32::try_from(ordinal).unwrap_or(i32::MAX))
            .bind(now)
            .bind(event.kind)
            .bind(&event.actor)
            .bind(item)
            .bind(key.kind)
            .bind(key.id)
            .bind(key.model)
            .bind(key.credential)
            .bind(group)
            .bind(&event.channels)
            .bind(event.detail)
            .execute(self.conn())
            .await?;
        }
        Ok(())
    }
}

#[derive(sqlx::FromRow)]
struct EventRow {
    revision: i64,
    ordinal: i32,
    created_at: OffsetDateTime,
    kind: String,
    actor: String,
    subject_kind: String,
    subject_id: i64,
    model: String,
    credential_id: i64,
    detail: Value,
}

impl Store {
    /// A page of events, newest first. `page_size` 1 to 1000; 0 means 100.
    ///
    /// # Errors
    /// `Invalid` for a page token that is not ours; `NotFound` for a channel never known.
    pub async fn events(
        &self,
        filter: &EventFilter,
        page_size: u32,
        page_token: &str,
    ) -> Result<Page<admin::Event>> {
        let size = super::read::page_size(page_size);
        let (before, before_ordinal) = super::read::parse_token(page_token)?;
        let channel = match &filter.channel {
            Some(key) => Some(super::resolve::any_channel(&mut *self.registry.acquire().await?, key).await?),
            None => None,
        };
        let revision = self.head().await?.revision;
        let rows: Vec<EventRow> = sqlx::query_as(
            "SELECT revision, ordinal, created_at, kind, actor, subject_kind, subject_id, model, credential_id, detail \
             FROM events WHERE (revision, ordinal) < ($1, $2) AND ($3::bigint[] IS NULL OR channel_ids && $3) \
             AND ($4::text IS NULL OR kind = $4) ORDER BY revision DESC, ordinal DESC LIMIT $5",
        )
        .bind(before)
        .bind(i32::try_from(before_ordinal).map_err(|_| StoreError::invalid("page_token", "is not ours"))?)
        .bind(channel)
        .bind(filter.kind.as_deref().filter(|k| !k.is_empty()))
        .bind(i64::from(size) + 1)
        .fetch_all(&self.registry)
        .await?;
        let mut page =
            Page { items: Vec::with_capacity(rows.len()), next_page_token: String::new(), revision };
        let mut room = super::read::Room::default();
        for row in rows {
            let event = row.message()?;
            if page.items.len() == size as usize || !room.takes(&event) {
                if let Some(last) = page.items.last() {
                    let last: &admin::Event = last;
                    page.next_page_token = format!("{}.{}", last.revision, last.ordinal);
                }
                break;
            }
            page.items.push(event);
        }
        Ok(page)
    }
}

impl EventRow {
    fn message(self) -> Result<admin::Event> {
        let subject = if self.subject_kind.is_empty() {
            None
        } else {
            let subject =
                rows::subject(&self.subject_kind, self.subject_id, &self.model, self.credential_id)?;
            Some(convert::subject_ref(&subject))
        };
        Ok(admin::Event {
            revision: self.revision,
            create_time: Some(rows::timestamp(self.created_at)),
            kind: self.kind,
            actor: self.actor,
            subject,
            detail: self.detail.to_string(),
            ordinal: self.ordinal,
        })
    }
}
