//! Channels: spec, history, abilities.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use spareline_core::convert::Violation;
use spareline_core::{ChannelId, Subject};
use spareline_proto::registry::v1 as pb;
use sqlx::PgConnection;

use super::events::Item;
use super::{Result, StoreError, Tx, abilities, json as proto_json};

/// How a channel is named: by id or by name (which is never a number).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChannelKey {
    /// By id.
    Id(i64),
    /// By name.
    Name(String),
}

impl From<&str> for ChannelKey {
    fn from(text: &str) -> ChannelKey {
        text.parse().map_or_else(|_| ChannelKey::Name(text.to_owned()), ChannelKey::Id)
    }
}

impl std::fmt::Display for ChannelKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChannelKey::Id(id) => write!(f, "channel {id}"),
            ChannelKey::Name(name) => write!(f, "channel {name:?}"),
        }
    }
}

/// A channel's columns and its spec: what [`decode`] reads.
pub(super) type SpecRow = (i64, i64, Value);

/// A stored spec as a message.
pub(super) fn decode((channel_id, spec_revision, spec): SpecRow) -> Result<pb::Channel> {
    let spec: pb::Channel = proto_json::from_json(spec)?;
    Ok(pb::Channel { channel_id, spec_revision, etag: spec_revision.to_string(), ..spec })
}

/// The live channel of that name or id.
pub(super) async fn find(conn: &mut PgConnection, key: &ChannelKey) -> Result<pb::Channel> {
    let (id, name) = match key {
        ChannelKey::Id(id) => (Some(*id), None),
        ChannelKey::Name(name) => (None, Some(name.as_str())),
    };
    let row: Option<SpecRow> = sqlx::query_as(
        "SELECT c.channel_id, c.spec_revision, s.spec FROM channels c JOIN channel_specs s USING (channel_id, spec_revision) \
         WHERE c.deleted_at IS NULL AND (c.channel_id = $1 OR c.name = $2)",
    )
    .bind(id)
    .bind(name)
    .fetch_optional(conn)
    .await?;
    decode(row.ok_or_else(|| StoreError::NotFound(key.to_string()))?)
}

/// The host and port of a base URL, for telling accounts apart.
pub(super) fn host(base_url: &str) -> Result<String> {
    let url = url::Url::parse(base_url)
        .map_err(|e| StoreError::invalid("channel.base_url", format!("is not a URL: {e}")))?;
    let host = url.host_str().ok_or_else(|| StoreError::invalid("channel.base_url", "has no host"))?;
    Ok(format!("{}:{}", host.to_ascii_lowercase(), url.port_or_known_default().unwrap_or(0)))
}

/// The spec alone: what is compared and stored.
pub(super) fn bare(spec: &pb::Channel) -> pb::Channel {
    pb::Channel { channel_id: 0, spec_revision: 0, etag: String::new(), ..spec.clone() }
}

fn upstream_models(spec: &pb::Channel) -> BTreeMap<&str, &str> {
    let upstream = |m: &'_ pb::ModelEntry| m.upstream_model.is_empty();
    spec.models
        .iter()
        .map(|m| (m.model.as_str(), if upstream(m) { m.model.as_str() } else { m.upstream_model.as_str() }))
        .collect()
}

impl Tx {
    /// The live channel as stored, with `channel_id`, `credential_ids`, `spec_revision` and `etag`.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn channel(&mut self, key: &ChannelKey) -> Result<pb::Channel> {
        find(self.conn(), key).await
    }

    /// Creates a channel from a validated spec, with the credentials it lists and then one new for each secret.
    /// `channel_id`, `spec_revision` and `etag` of `spec` are ignored.
    ///
    /// # Errors
    /// `AlreadyExists` for the name; `Invalid` for listed credentials that are unknown, retired, or of another provider or
    /// host, and for secrets that cannot stand in a header.
    pub async fn create_channel(&mut self, spec: pb::Channel, secrets: &[String]) -> Result<pb::Channel> {
        let mut spec = bare(&spec);
        let host = host(&spec.base_url)?;
        self.check_name(&spec.name, 0).await?;
        let listed = spec.credential_ids.clone();
        self.check_listed(0, &listed, &spec.provider, &host).await?;
        let channel_id: i64 = sqlx::query_scalar(
            "INSERT INTO channels (name, provider, base_url, host, groups, auto_disable, spec_revision) \
             VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING channel_id",
        )
        .bind(&spec.name)
        .bind(&spec.provider)
        .bind(&spec.base_url)
        .bind(&host)
        .bind(abilities::groups(&spec))
        .bind(spec.auto_disable)
        .bind(self.revision)
        .fetch_one(self.conn())
        .await?;
        for (index, secret) in secrets.iter().enumerate() {
            let credential = self.insert_credential(&format!("secrets[{index}]"), secret).await?;
            spec.credential_ids.push(credential.credential_id);
            let detail = json!({ "fingerprint": credential.fingerprint });
            self.event(
                "credential.added",
                Item::Credential(credential.credential_id),
                vec![channel_id],
                detail,
            );
        }
        self.store_spec(channel_id, &spec, self.revision).await?;
        let detail = json!({ "name": spec.name, "spec": proto_json::to_json(&spec)? });
        self.event("channel.created", Item::Channel(channel_id), vec![channel_id], detail);
        let revision = self.revision;
        Ok(pb::Channel { channel_id, spec_revision: revision, etag: revision.to_string(), ..spec })
    }

    /// Replaces a live channel's spec with a validated one, at once. `next.channel_id` says which; a non-empty
    /// `next.etag` must match. A credential no longer listed stays stored (another channel may list it) until it is retired.
    /// A change of provider, base_url, endpoints or options clears the automatic statuses beneath the channel and raises
    /// their fences; of an upstream_model, those of that ability. The same spec again changes nothing.
    ///
    /// # Errors
    /// `NotFound`, `Conflict`, `AlreadyExists` for a new name, `Invalid` as at creation.
    pub async fn update_channel(&mut self, next: pb::Channel) -> Result<pb::Channel> {
        let old = self.channel(&ChannelKey::Id(next.channel_id)).await?;
        check_etag(&old, &next.etag)?;
        let (id, next) = (old.channel_id, bare(&next));
        if next == bare(&old) {
            return Ok(old);
        }
        let host = host(&next.base_url)?;
        if next.name != old.name {
            self.check_name(&next.name, id).await?;
        }
        self.check_listed(id, &next.credential_ids, &next.provider, &host).await?;
        self.check_channel_free(id, &old.name).await?;
        let stored = self.replace_spec(&old, next, json!({})).await?;
        self.settle(&old, &stored).await?;
        Ok(stored)
    }

    /// Clears what machines decided about what a changed spec no longer is.
    pub(super) async fn settle(&mut self, old: &pb::Channel, stored: &pb::Channel) -> Result<()> {
        let id = stored.channel_id;
        let moved = old.provider != stored.provider
            || old.base_url != stored.base_url
            || old.endpoints != stored.endpoints
            || old.options != stored.options;
        if moved {
            self.clear_beneath(stored, "the channel's endpoint was changed").await?;
            self.clear_own(id, "the channel's endpoint was changed").await?;
        }
        let (before, after) = (upstream_models(old), upstream_models(stored));
        let per_model_endpoints = |spec: &pb::Channel, model: &str| {
            spec.models.iter().find(|m| m.model == model).map(|m| m.endpoints.clone())
        };
        for (model, upstream) in &after {
            let renamed = before.get(model).is_some_and(|was| was != upstream)
                || (before.contains_key(model)
                    && per_model_endpoints(old, model) != per_model_endpoints(stored, model));
            if renamed {
                self.clear_ability(id, model, "the model's upstream name was changed").await?;
            } else if !before.contains_key(model) && self.had_model(stored, model).await? {
                // Its statuses went with it, the fence included: what is still on its way is about what it was.
                self.clear_ability(id, model, "the model was listed again").await?;
            }
        }
        Ok(())
    }

    /// Whether an earlier spec of the channel listed the model.
    async fn had_model(&mut self, stored: &pb::Channel, model: &str) -> Result<bool> {
        let listed = json!([{ "model": model }]);
        Ok(sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM channel_specs WHERE channel_id = $1 AND spec_revision <> $2 \
             AND spec->'models' @> $3)",
        )
        .bind(stored.channel_id)
        .bind(stored.spec_revision)
        .bind(listed)
        .fetch_one(self.conn())
        .await?)
    }

    /// Removes a channel; its credentials that no other channel lists are retired. Its name is free again.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` when `etag` is not empty and does not match.
    pub async fn delete_channel(&mut self, key: &ChannelKey, etag: &str) -> Result<()> {
        let old = self.channel(key).await?;
        check_etag(&old, etag)?;
        let id = old.channel_id;
        self.check_channel_free(id, &old.name).await?;
        let orphans: Vec<i64> = sqlx::query_scalar(
            "SELECT credential_id FROM channel_credentials a WHERE channel_id = $1 AND NOT EXISTS \
             (SELECT 1 FROM channel_credentials b WHERE b.credential_id = a.credential_id AND b.channel_id <> $1) \
             AND NOT EXISTS (SELECT 1 FROM rollout_changes r JOIN channel_specs s USING (channel_id, spec_revision) \
               WHERE r.active AND s.spec->'credential_ids' @> to_jsonb(a.credential_id))",
        )
        .bind(id)
        .fetch_all(self.conn())
        .await?;
        for statement in [
            "DELETE FROM abilities WHERE channel_id = $1",
            "DELETE FROM channel_credentials WHERE channel_id = $1",
            "UPDATE channels SET deleted_at = clock_timestamp() WHERE channel_id = $1",
        ] {
            sqlx::query(statement).bind(id).execute(self.conn()).await?;
        }
        self.touched.remove(&id);
        for orphan in orphans {
            self.wipe(orphan, vec![id], json!({ "with_channel": old.name })).await?;
        }
        self.remove_statuses(&[Subject::Channel(ChannelId(id))], vec![id]).await?;
        self.remove_ability_statuses(id, None, None).await?;
        self.event("channel.deleted", Item::Channel(id), vec![id], json!({ "name": old.name }));
        Ok(())
    }

    /// Stores a changed spec of a live channel and drops statuses of what it no longer has.
    pub(super) async fn replace_spec(
        &mut self,
        old: &pb::Channel,
        next: pb::Channel,
        detail: Value,
    ) -> Result<pb::Channel> {
        self.replace_spec_at(old, next, detail, self.revision).await
    }

    /// The same under a spec revision that the content already has.
    pub(super) async fn replace_spec_at(
        &mut self,
        old: &pb::Channel,
        next: pb::Channel,
        mut detail: Value,
        revision: i64,
    ) -> Result<pb::Channel> {
        let id = old.channel_id;
        let next = bare(&next);
        self.store_spec(id, &next, revision).await?;
        for gone in old.models.iter().filter(|m| !next.models.iter().any(|n| n.model == m.model)) {
            self.remove_ability_statuses(id, Some(&gone.model), None).await?;
        }
        for gone in old.credential_ids.iter().filter(|c| !next.credential_ids.contains(c)) {
            self.remove_ability_statuses(id, None, Some(*gone)).await?;
        }
        if let Value::Object(map) = &mut detail {
            map.insert("name".into(), next.name.clone().into());
            map.insert("was_spec_revision".into(), old.spec_revision.into());
            map.insert("spec".into(), proto_json::to_json(&next)?);
        }
        self.event("channel.updated", Item::Channel(id), vec![id], detail);
        Ok(pb::Channel { channel_id: id, spec_revision: revision, etag: revision.to_string(), ..next })
    }

    /// Writes the spec row, the columns and the projections of one channel.
    pub(super) async fn store_spec(
        &mut self,
        channel_id: i64,
        spec: &pb::Channel,
        revision: i64,
    ) -> Result<()> {
        self.keep_spec(channel_id, spec, revision).await?;
        sqlx::query(
            "UPDATE channels SET name = $2, provider = $3, base_url = $4, host = $5, groups = $6, auto_disable = $7, \
             spec_revision = $8 WHERE channel_id = $1",
        )
        .bind(channel_id)
        .bind(&spec.name)
        .bind(&spec.provider)
        .bind(&spec.base_url)
        .bind(host(&spec.base_url)?)
        .bind(abilities::groups(spec))
        .bind(spec.auto_disable)
        .bind(revision)
        .execute(self.conn())
        .await?;
        sqlx::query("DELETE FROM channel_credentials WHERE channel_id = $1")
            .bind(channel_id)
            .execute(self.conn())
            .await?;
        sqlx::query(
            "INSERT INTO channel_credentials (channel_id, rank, credential_id) \
             SELECT $1, rank, id FROM unnest($2::bigint[]) WITH ORDINALITY AS x (id, rank)",
        )
        .bind(channel_id)
        .bind(&spec.credential_ids)
        .execute(self.conn())
        .await?;
        self.expand(channel_id, spec).await
    }

    /// Writes a spec's row alone: of the baseline, or a candidate.
    pub(super) async fn keep_spec(
        &mut self,
        channel_id: i64,
        spec: &pb::Channel,
        revision: i64,
    ) -> Result<()> {
        let actor = self.actor.clone();
        sqlx::query(
            "INSERT INTO channel_specs (channel_id, spec_revision, spec, author) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (channel_id, spec_revision) DO UPDATE SET spec = excluded.spec",
        )
        .bind(channel_id)
        .bind(revision)
        .bind(proto_json::to_json(spec)?)
        .bind(&actor)
        .execute(self.conn())
        .await?;
        Ok(())
    }

    pub(super) async fn check_name(&mut self, name: &str, own: i64) -> Result<()> {
        let taken: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM channels WHERE name = $1 AND deleted_at IS NULL AND channel_id <> $2) \
             OR EXISTS (SELECT 1 FROM rollout_changes WHERE name = $1 AND active AND item = 'channel' AND channel_id <> $2)",
        )
        .bind(name)
        .bind(own)
        .fetch_one(self.conn())
        .await?;
        if taken { Err(StoreError::AlreadyExists(format!("channel {name:?}"))) } else { Ok(()) }
    }

    /// Listed credentials must be live, listed once, and of the provider and host of the other channels that list them.
    pub(super) async fn check_listed(
        &mut self,
        own: i64,
        ids: &[i64],
        provider: &str,
        host: &str,
    ) -> Result<()> {
        let mut problems = Vec::new();
        let live: Vec<i64> = sqlx::query_scalar(
            "SELECT credential_id FROM credentials WHERE credential_id = ANY($1) AND retired_revision IS NULL",
        )
        .bind(ids)
        .fetch_all(self.conn())
        .await?;
        let elsewhere: Vec<(i64, String, String, String)> = sqlx::query_as(
            "SELECT k.credential_id, c.name, c.provider, c.host FROM channel_credentials k JOIN channels c USING (channel_id) \
             WHERE k.credential_id = ANY($1) AND c.channel_id <> $2 AND c.deleted_at IS NULL",
        )
        .bind(ids)
        .bind(own)
        .fetch_all(self.conn())
        .await?;
        for (index, id) in ids.iter().enumerate() {
            let field = format!("channel.credential_ids[{index}]");
            if !live.contains(id) {
                problems.push(Violation::new(field, format!("credential {id} does not exist or is retired")));
            } else if ids[..index].contains(id) {
                problems.push(Violation::new(field, format!("credential {id} is listed twice")));
            } else if let Some((_, name, p, h)) =
                elsewhere.iter().find(|(c, _, p, h)| c == id && (p != provider || h != host))
            {
                problems.push(Violation::new(
                    field,
                    format!(
                        "credential {id} serves channel {name:?} ({p} at {h}): channels share a credential only at one provider and host"
                    ),
                ));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(StoreError::Invalid(problems)) }
    }
}

pub(super) fn check_etag(old: &pb::Channel, etag: &str) -> Result<()> {
    if etag.is_empty() || etag == old.etag {
        return Ok(());
    }
    Err(StoreError::Conflict(format!("channel {:?}", old.name)))
}
