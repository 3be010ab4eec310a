//! Whether taking a subject out would leave some (group, model, endpoint) with nothing: soft evidence never does that.

use std::collections::BTreeMap;

use spareline_core::spec::EndpointSet;
use spareline_core::{Subject, convert};
use sqlx::PgConnection;

use super::channels::{self, SpecRow};
use super::{Result, StoreError};

/// Groups and models that the subject serves, with every channel that serves them now.
pub(super) async fn is_last_active(conn: &mut PgConnection, subject: &Subject) -> Result<bool> {
    let (channel, model) = match subject {
        Subject::Channel(id) => (id.0, None),
        Subject::Ability { channel, model, .. } => (channel.0, Some(model.as_ref())),
        // Soft evidence condemns no key; what would say so anyway is not believed.
        Subject::Credential(_) => return Ok(true),
    };
    let served: Vec<(String, String, i64)> = sqlx::query_as(
        "SELECT b.group_name, b.model, b.channel_id FROM abilities a JOIN abilities b USING (group_name, model) \
         WHERE a.channel_id = $1 AND a.enabled AND b.enabled AND ($2::text IS NULL OR a.model = $2)",
    )
    .bind(channel)
    .bind(model)
    .fetch_all(&mut *conn)
    .await?;
    let ids: Vec<i64> = served.iter().map(|(_, _, id)| *id).collect();
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
    let of =
        |id: i64, model: &str| endpoints.get(&(id, model.to_owned())).copied().unwrap_or(EndpointSet::EMPTY);
    let mine = served.iter().filter(|(_, _, id)| *id == channel);
    for (group, model, _) in mine {
        let others = || served.iter().filter(|(g, m, id)| g == group && m == model && *id != channel);
        let alone = spareline_core::Endpoint::ALL
            .iter()
            .filter(|e| of(channel, model).has(Some(**e)))
            .any(|e| !others().any(|(_, _, id)| of(*id, model).has(Some(*e))));
        if alone || others().next().is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
