//! Whether taking a subject out would leave some (group, model, endpoint) with nothing: soft evidence never does that.

use std::collections::BTreeMap;

use spareline_core::spec::EndpointSet;
use spareline_core::{Subject, convert};
use sqlx::PgConnection;

use super::channels::{self, SpecRow};
use super::{Result, StoreError};

/// Who is listed for a model of a group: channel, priority, weight, and whether it serves now.
#[derive(sqlx::FromRow)]
struct Listed {
    group_name: String,
    model: String,
    channel_id: i64,
    priority: i32,
    weight: i64,
    enabled: bool,
}

/// Whether nothing else serves some group and model that the subject does. A drained channel serves nobody.
pub(super) async fn is_last_active(conn: &mut PgConnection, subject: &Subject) -> Result<bool> {
    let (channel, model) = match subject {
        Subject::Channel(id) => (id.0, None),
        Subject::Ability { channel, model, .. } => (channel.0, Some(model.as_ref())),
        // Soft evidence condemns no key; what would say so anyway is not believed.
        Subject::Credential(_) => return Ok(true),
    };
    let listed: Vec<Listed> = sqlx::query_as(
        "SELECT b.group_name, b.model, b.channel_id, b.priority, b.weight, b.enabled \
         FROM abilities a JOIN abilities b USING (group_name, model) \
         WHERE a.channel_id = $1 AND a.enabled AND ($2::text IS NULL OR a.model = $2)",
    )
    .bind(channel)
    .bind(model)
    .fetch_all(&mut *conn)
    .await?;
    let ids: Vec<i64> = listed.iter().map(|l| l.channel_id).collect();
    let rows: Vec<SpecRow> = sqlx::query_as(
        "SELECT c.channel_id, c.spec_revision, s.spec FROM channels c JOIN channel_specs s USING (channel_id, spec_revision) \
         WHERE c.channel_id = ANY($1)",
    )
    .bind(&ids)
    .fetch_all(conn)
    .await?;
    let mut endpoints: BTreeMap<(i64, String), EndpointSet> = BTreeMap::new();
    for row in rows {
        let message = channels::decode(row)?;
        let spec = convert::channel(&message)
            .map_err(|_| StoreError::Corrupt(format!("the spec of channel {}", message.channel_id)))?;
        for model in &spec.models {
            endpoints.insert((message.channel_id, model.name.to_string()), model.endpoints);
        }
    }
    let has = |l: &Listed, endpoint| {
        let of = endpoints.get(&(l.channel_id, l.model.clone())).copied();
        of.unwrap_or(EndpointSet::EMPTY).has(Some(endpoint))
    };
    for mine in listed.iter().filter(|l| l.channel_id == channel) {
        let beside = || listed.iter().filter(|l| l.group_name == mine.group_name && l.model == mine.model);
        // As the picker has it: zero among others of the layer, out or not.
        let drained = |l: &Listed, endpoint| {
            let layer = || beside().filter(|o| o.priority == l.priority && has(o, endpoint));
            l.weight == 0 && layer().any(|o| o.weight > 0)
        };
        let serves = |l: &Listed, endpoint| l.enabled && has(l, endpoint) && !drained(l, endpoint);
        let others = || beside().filter(|l| l.channel_id != channel);
        let alone = spareline_core::Endpoint::ALL
            .iter()
            .filter(|e| has(mine, **e))
            .any(|e| !others().any(|l| serves(l, *e)));
        if alone || others().next().is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
