//! What admin reads: channels with everything known beneath them. Never a secret.

use std::collections::{BTreeMap, HashMap};

use spareline_core::Subject;
use spareline_proto::registry::v1 as pb;
use sqlx::PgConnection;

use super::channels::{self, SpecRow};
use super::rows::{self, StatusRow, status_columns};
use super::{ChannelKey, Result, Store, StoreError};
use crate::decide;

/// Plain filters; unset means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelFilter {
    /// Serves this model.
    pub model: Option<String>,
    /// Is in this group.
    pub group: Option<String>,
    /// Speaks this dialect.
    pub provider: Option<String>,
    /// Is in this state (derived).
    pub state: Option<pb::ServingState>,
}

/// A page of something.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page starts; empty on the last.
    pub next_page_token: String,
    /// The revision it was read at.
    pub revision: i64,
}

/// 0 means 100; never more than 1000.
pub(super) fn page_size(asked: u32) -> u32 {
    if asked == 0 { 100 } else { asked.min(1000) }
}

/// The two numbers of a page token; an empty one is before everything.
pub(super) fn parse_token(token: &str) -> Result<(i64, i64)> {
    if token.is_empty() {
        return Ok((i64::MAX, i64::from(i32::MAX)));
    }
    token
        .split_once('.')
        .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)))
        .ok_or_else(|| StoreError::invalid("page_token", "is not one of ours"))
}

impl Store {
    /// One channel, with its credentials and statuses.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn channel(&self, key: &ChannelKey) -> Result<decide::Channel> {
        let mut conn = self.registry.acquire().await?;
        let channel = channels::find(&mut conn, key).await?;
        let not_found = || StoreError::NotFound(key.to_string());
        beneath(&mut conn, vec![channel]).await?.pop().ok_or_else(not_found)
    }

    /// A page of channels, newest spec revision first. `page_size` up to 1000; 0 means 100.
    ///
    /// # Errors
    /// `Invalid` for a page token that is not ours.
    pub async fn channels(
        &self,
        filter: &ChannelFilter,
        page_size: u32,
        page_token: &str,
    ) -> Result<Page<decide::Channel>> {
        let size = self::page_size(page_size) as usize;
        let (mut revision, mut id) = parse_token(page_token)?;
        let mut tx = self.registry.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let (head, now): (i64, time::OffsetDateTime) =
            sqlx::query_as("SELECT revision, clock_timestamp() FROM registry_head")
                .fetch_one(&mut *tx)
                .await?;
        let mut page = Page { items: Vec::new(), next_page_token: String::new(), revision: head };
        let mut room = Room::default();
        // The state is derived, so rows are read on until the page is full.
        loop {
            let rows = newest(&mut tx, filter, (revision, id), size + 1).await?;
            let last = rows.len() <= size;
            for found in beneath(&mut tx, rows).await? {
                (revision, id) = (found.channel.spec_revision, found.channel.channel_id);
                let wanted = filter.state.is_none_or(|s| {
                    s == pb::ServingState::Unspecified || decide::channel_view(&found, now).state() == s
                });
                if !wanted {
                    continue;
                }
                if page.items.len() == size || !room.takes(&found.channel) {
                    let last = page.items.last().map(|c: &decide::Channel| &c.channel);
                    page.next_page_token =
                        last.map_or_else(String::new, |c| format!("{}.{}", c.spec_revision, c.channel_id));
                    return Ok(page);
                }
                page.items.push(found);
            }
            if last {
                return Ok(page);
            }
        }
    }
}

/// What fits into one answer beside its first item: a client takes 4 MiB unless told otherwise, and some of it is told twice.
#[derive(Debug, Default)]
pub(super) struct Room(Option<usize>);

impl Room {
    /// Whether one more item fits; the first always does.
    pub(super) fn takes(&mut self, item: &impl prost::Message) -> bool {
        let left = self.0.map_or(Some(2 << 20), |left| left.checked_sub(item.encoded_len()));
        self.0 = left.or(Some(0));
        left.is_some()
    }
}

async fn newest(
    conn: &mut PgConnection,
    filter: &ChannelFilter,
    before: (i64, i64),
    limit: usize,
) -> Result<Vec<pb::Channel>> {
    let given = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    let rows: Vec<SpecRow> = sqlx::query_as(
        "SELECT c.channel_id, c.spec_revision, s.spec FROM channels c JOIN channel_specs s USING (channel_id, spec_revision) \
         WHERE c.deleted_at IS NULL AND (c.spec_revision, c.channel_id) < ($1, $2) \
         AND ($3::text IS NULL OR EXISTS (SELECT 1 FROM abilities a WHERE a.channel_id = c.channel_id AND a.model = $3)) \
         AND ($4::text IS NULL OR $4 = ANY(c.groups)) AND ($5::text IS NULL OR c.provider = $5) \
         ORDER BY c.spec_revision DESC, c.channel_id DESC LIMIT $6",
    )
    .bind(before.0)
    .bind(before.1)
    .bind(given(&filter.model))
    .bind(given(&filter.group))
    .bind(given(&filter.provider))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .fetch_all(conn)
    .await?;
    rows.into_iter().map(channels::decode).collect()
}

/// Adds credentials and statuses to channels, in their order.
async fn beneath(conn: &mut PgConnection, channels: Vec<pb::Channel>) -> Result<Vec<decide::Channel>> {
    let ids: Vec<i64> = channels.iter().map(|c| c.channel_id).collect();
    let keys: Vec<i64> = channels.iter().flat_map(|c| c.credential_ids.iter().copied()).collect();
    let credentials: Vec<(i64, String, i64)> = sqlx::query_as(
        "SELECT credential_id, fingerprint, revision FROM credentials WHERE credential_id = ANY($1) AND retired_revision IS NULL",
    )
    .bind(&keys)
    .fetch_all(&mut *conn)
    .await?;
    let credentials: HashMap<i64, pb::Credential> = credentials
        .into_iter()
        .map(|(credential_id, fingerprint, revision)| {
            (credential_id, pb::Credential { credential_id, secret: String::new(), fingerprint, revision })
        })
        .collect();
    let rows: Vec<StatusRow> = sqlx::query_as(concat!(
        "SELECT ",
        status_columns!(),
        " FROM statuses s WHERE s.revision > 0 AND ((s.subject_kind IN ('channel', 'ability') AND s.subject_id = ANY($1)) \
         OR (s.subject_kind = 'credential' AND s.subject_id = ANY($2))) ORDER BY 1, 2, 3, 4"
    ))
    .bind(&ids)
    .bind(&keys)
    .fetch_all(&mut *conn)
    .await?;
    let mut statuses = BTreeMap::new();
    for row in rows {
        let subject = row.subject()?;
        let probing = row.probing;
        let status = row.status()?;
        let message = rows::message(&subject, &status, probing);
        statuses.insert(subject, (status, message));
    }
    Ok(channels
        .into_iter()
        .map(|channel| {
            let mine = |subject: &Subject| match subject {
                Subject::Channel(id) | Subject::Ability { channel: id, .. } => id.0 == channel.channel_id,
                Subject::Credential(id) => channel.credential_ids.contains(&id.0),
            };
            decide::Channel {
                credentials: channel
                    .credential_ids
                    .iter()
                    .filter_map(|id| credentials.get(id).cloned())
                    .collect(),
                statuses: statuses
                    .iter()
                    .filter(|(subject, _)| mine(subject))
                    .map(|(subject, (status, message))| (subject.clone(), status.clone(), message.clone()))
                    .collect(),
                channel,
            }
        })
        .collect())
}
