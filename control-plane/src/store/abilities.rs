//! Abilities: groups x models of a channel, and `enabled`, which follows from the statuses.

use std::collections::BTreeSet;

use spareline_core::spec::DEFAULT_GROUP;
use spareline_proto::registry::v1 as pb;

use super::{Result, Tx};

/// The groups of a spec: none means `default`.
pub(super) fn groups(spec: &pb::Channel) -> Vec<String> {
    if spec.groups.is_empty() { vec![DEFAULT_GROUP.to_owned()] } else { spec.groups.clone() }
}

impl Tx {
    /// Makes a channel's rows match its spec. Rows that stay keep `enabled` until the projection.
    pub(super) async fn expand(&mut self, channel_id: i64, spec: &pb::Channel) -> Result<()> {
        let mut seen = BTreeSet::new();
        let (mut group_names, mut models, mut upstream) = (Vec::new(), Vec::new(), Vec::new());
        let (mut priorities, mut weights) = (Vec::new(), Vec::new());
        for group in groups(spec) {
            for entry in &spec.models {
                if !seen.insert((group.clone(), entry.model.clone())) {
                    continue;
                }
                group_names.push(group.clone());
                models.push(entry.model.clone());
                upstream.push(if entry.upstream_model.is_empty() {
                    entry.model.clone()
                } else {
                    entry.upstream_model.clone()
                });
                priorities.push(entry.priority.unwrap_or(spec.priority));
                weights.push(i64::from(entry.weight.or(spec.weight).unwrap_or(1)));
            }
        }
        sqlx::query(
            "DELETE FROM abilities a WHERE channel_id = $1 AND NOT EXISTS \
             (SELECT 1 FROM unnest($2::text[], $3::text[]) AS w (g, m) WHERE w.g = a.group_name AND w.m = a.model)",
        )
        .bind(channel_id)
        .bind(&group_names)
        .bind(&models)
        .execute(self.conn())
        .await?;
        sqlx::query(
            "INSERT INTO abilities (group_name, model, channel_id, upstream_model, priority, weight) \
             SELECT g, m, $1, u, p, w FROM unnest($2::text[], $3::text[], $4::text[], $5::int[], $6::bigint[]) AS x (g, m, u, p, w) \
             ON CONFLICT (group_name, model, channel_id) DO UPDATE SET upstream_model = excluded.upstream_model, \
             priority = excluded.priority, weight = excluded.weight",
        )
        .bind(channel_id)
        .bind(&group_names)
        .bind(&models)
        .bind(&upstream)
        .bind(&priorities)
        .bind(&weights)
        .execute(self.conn())
        .await?;
        self.touched.insert(channel_id);
        Ok(())
    }

    /// Recomputes `enabled` of every touched channel in one statement. A channel without credentials needs none; one with
    /// credentials needs one that is usable for that model.
    pub(super) async fn project(&mut self) -> Result<()> {
        if self.touched.is_empty() {
            return Ok(());
        }
        let channels: Vec<i64> = std::mem::take(&mut self.touched).into_iter().collect();
        let now = self.now;
        sqlx::query(
            "UPDATE abilities a SET enabled = p.enabled FROM ( \
               SELECT b.group_name, b.model, b.channel_id, \
                 NOT EXISTS (SELECT 1 FROM statuses s WHERE s.subject_id = b.channel_id AND s.credential_id = 0 \
                   AND (s.subject_kind, s.model) IN (('channel', ''), ('ability', b.model)) AND status_out(s, $2)) \
                 AND (NOT EXISTS (SELECT 1 FROM channel_credentials k WHERE k.channel_id = b.channel_id) \
                   OR EXISTS (SELECT 1 FROM channel_credentials k WHERE k.channel_id = b.channel_id \
                     AND NOT EXISTS (SELECT 1 FROM statuses s WHERE s.subject_kind = 'credential' \
                       AND s.subject_id = k.credential_id AND s.model = '' AND s.credential_id = 0 AND status_out(s, $2)) \
                     AND NOT EXISTS (SELECT 1 FROM statuses s WHERE s.subject_kind = 'ability' \
                       AND s.subject_id = b.channel_id AND s.model = b.model AND s.credential_id = k.credential_id \
                       AND status_out(s, $2)))) AS enabled \
               FROM abilities b WHERE b.channel_id = ANY($1)) p \
             WHERE a.group_name = p.group_name AND a.model = p.model AND a.channel_id = p.channel_id \
               AND a.enabled <> p.enabled",
        )
        .bind(&channels)
        .bind(now)
        .execute(self.conn())
        .await?;
        Ok(())
    }
}
