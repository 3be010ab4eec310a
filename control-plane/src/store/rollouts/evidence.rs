//! What a rollout's stage shows: proxies by their rows, attempts by the health tallies of both specs.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::super::proxies::{self, ProxyRow};
use super::super::{Result, Store};
use super::{RolloutRow, Target};
use crate::rollout::gate::{Evidence, Seen, Tally};

/// Good and bad attempts under the candidates, then under the baselines, since ever.
pub(super) async fn tallies(conn: &mut PgConnection, rollout_id: i64) -> Result<[i64; 4]> {
    // A success counts for the channel and for the ability, a failure for one of them.
    let rows: Vec<(bool, i64, i64, i64)> = sqlx::query_as(
        "SELECT ours, coalesce(sum(successes) FILTER (WHERE subject_kind = 'channel'), 0)::bigint, \
         coalesce(sum(successes) FILTER (WHERE subject_kind = 'ability'), 0)::bigint, coalesce(sum(failures), 0)::bigint FROM ( \
           SELECT true AS ours, h.* FROM rollout_specs r JOIN health h ON h.subject_id = r.channel_id \
             AND h.spec_revision = r.spec_revision AND h.subject_kind IN ('channel', 'ability') WHERE r.rollout_id = $1 \
           UNION ALL \
           SELECT false, h.* FROM rollout_changes r JOIN channels c ON c.channel_id = r.channel_id AND c.deleted_at IS NULL \
             JOIN health h ON h.subject_id = c.channel_id AND h.spec_revision = c.spec_revision \
             AND h.subject_kind IN ('channel', 'ability') WHERE r.rollout_id = $1) AS all_of_them GROUP BY ours",
    )
    .bind(rollout_id)
    .fetch_all(conn)
    .await?;
    let mut found = [0; 4];
    for (ours, channels, abilities, failures) in rows {
        let at = if ours { 0 } else { 2 };
        found[at] = channels.max(abilities);
        found[at + 1] = failures;
    }
    Ok(found)
}

/// The connected proxies.
pub(super) async fn connected(conn: &mut PgConnection) -> Result<Vec<ProxyRow>> {
    let (rows, now) = proxies::read(conn).await?;
    Ok(rows.into_iter().filter(|row| row.is_connected(now)).collect())
}

impl Store {
    /// What is known of a rollout's stage, and the database's clock.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn rollout_evidence(&self, rollout: &RolloutRow) -> Result<(Evidence, OffsetDateTime)> {
        let epoch = self.head().await?.epoch.to_string();
        let mut conn = self.reports.acquire().await?;
        let proxies = connected(&mut conn).await?;
        let now = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&mut *conn).await?;
        let needed = rollout.changes.iter().filter_map(|c| c.spec_revision).max().unwrap_or(0);
        let concerned = proxies.iter().filter(|p| rollout.concerns(&p.node.groups)).map(|p| Seen {
            node: &p.node,
            applied: p.applied.as_ref(),
            rejects: p.rejections.iter().any(|r| rollout.is_rejected_by(r)),
        });
        let mut evidence = Evidence::survey(&rollout.cohort(), &epoch, needed, concerned);
        let comparable = |c: &super::ChangeRow| matches!(c.target, Target::Channel { baseline: Some(_), .. });
        if !rollout.changes.iter().any(comparable) {
            evidence.outside = 0;
        }
        let all = tallies(&mut conn, rollout.rollout_id).await?;
        let since = |i: usize| (all[i] - rollout.mark[i]).max(0);
        let tally = |at: usize| Tally { attempts: since(at) + since(at + 1), failures: since(at + 1) };
        (evidence.ours, evidence.baseline) = (tally(0), tally(2));
        Ok((evidence, now))
    }

    /// Connected proxies that a rollout concerns; of them, those whose labels are as selected, per stage.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn eligible(&self, rollout: &RolloutRow) -> Result<Vec<Vec<String>>> {
        let proxies = connected(&mut *self.reports.acquire().await?).await?;
        let of = |stage: &spareline_proto::admin::v1::Stage| eligible(rollout, &stage.selector, &proxies);
        Ok(rollout.stages.iter().map(of).collect())
    }
}

/// Those of the proxies that a stage could reach.
pub(super) fn eligible(
    rollout: &RolloutRow,
    selector: &std::collections::BTreeMap<String, String>,
    proxies: &[ProxyRow],
) -> Vec<String> {
    let fits = |p: &&ProxyRow| {
        rollout.concerns(&p.node.groups) && crate::rollout::cohort::selected(selector, &p.node.labels)
    };
    proxies.iter().filter(fits).map(|p| p.node.proxy_id.clone()).collect()
}
