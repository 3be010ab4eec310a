//! Leases of the prober: any replica may probe, one at a time does.

use serde_json::json;
use spareline_core::policy::FleetPolicy;
use spareline_core::{Cause, ChannelId, Subject};
use spareline_proto::registry::v1 as pb;
use time::OffsetDateTime;
use uuid::Uuid;

use super::facts::Book;
use super::rows::{self, Key, StatusRow, status_columns};
use super::verdicts::jitter;
use super::{Result, Store, Tx, health, last, policies};
use crate::decide::{self, Held, Lease, ProbeChange, ProbeOutcome, State, Status};

/// Which rows to claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Those due, the most overdue first, at most so many.
    Due(u32),
    /// Of these only what a verdict or a threshold asked for: a proxy waits for the answer.
    Asked(u32),
    /// Everything out by machine and not only for a time, due or not.
    All,
    /// The same of these channels: themselves, their credentials, their abilities; and what waits there for a probe.
    Channels(Vec<ChannelId>),
}

/// What became of a probe.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeResult {
    /// The row changed since it was claimed, or the lease ended and another took it: the outcome was not written.
    Lost,
    /// Only times were written: state and cause are what they were.
    Unchanged(pb::Status),
    /// State, cause or fence changed.
    Changed(pb::Status),
}

/// Which rows a claim means: $1 how many, $2 of these channels or all, $3 only what is due, $4 only what was asked for.
macro_rules! wanted {
    () => {
        "FROM statuses s WHERE (probe_lease_until IS NULL OR probe_lease_until <= clock_timestamp()) \
         AND ($3 OR s.state = 'disabled' AND s.cause NOT IN ('operator', 'throttled') OR $2::bigint[] IS NOT NULL AND s.pending_cause <> '') \
         AND (NOT $3 OR s.due_at <= clock_timestamp()) AND (NOT $4 OR s.pending_cause <> '') \
         AND ($2::bigint[] IS NULL OR s.subject_kind IN ('channel', 'ability') AND s.subject_id = ANY($2) \
           OR s.subject_kind = 'credential' AND s.subject_id IN \
              (SELECT k.credential_id FROM channel_credentials k WHERE k.channel_id = ANY($2))) \
         ORDER BY s.due_at NULLS LAST LIMIT $1"
    };
}

impl Store {
    /// Claims rows for 30 s by the database's clock, and makes them due when that is over, so that a prober which dies with
    /// a claim in its hand is followed by another at once. `dry_run` claims nothing and answers the same rows.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn claim_probes(&self, claim: &Claim, dry_run: bool) -> Result<Vec<Lease>> {
        let (limit, channels, due) = match claim {
            Claim::Due(limit) | Claim::Asked(limit) => (i64::from(*limit), None, true),
            Claim::All => (i64::MAX, None, false),
            Claim::Channels(ids) => (i64::MAX, Some(ids.iter().map(|id| id.0).collect::<Vec<_>>()), false),
        };
        let sql = if dry_run {
            concat!("SELECT ", status_columns!(), " ", wanted!())
        } else {
            concat!(
                "UPDATE statuses s SET probe_lease = gen_random_uuid(), probe_lease_until = clock_timestamp() + interval '30 s', \
                 due_at = CASE WHEN due_at IS NULL THEN NULL ELSE least(due_at, clock_timestamp() + interval '30 s') END \
                 FROM (SELECT s.subject_kind AS k, s.subject_id AS i, s.model AS m, s.credential_id AS c ",
                wanted!(),
                " FOR UPDATE SKIP LOCKED) w WHERE (s.subject_kind, s.subject_id, s.model, s.credential_id) = (w.k, w.i, w.m, w.c) \
                 RETURNING ",
                status_columns!()
            )
        };
        let rows: Vec<StatusRow> = sqlx::query_as(sql)
            .bind(limit)
            .bind(channels)
            .bind(due)
            .bind(matches!(claim, Claim::Asked(_)))
            .fetch_all(&self.registry)
            .await?;
        rows.into_iter()
            .map(|row| {
                let (subject, lease) = (row.subject()?, row.probe_lease.filter(|_| !dry_run));
                Ok(Lease { subject, status: row.status()?, lease: lease.unwrap_or(Uuid::nil()) })
            })
            .collect()
    }

    /// How long until the next row falls due, leases counted in. `None`: nothing is.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn next_probe_in(&self) -> Result<Option<std::time::Duration>> {
        let seconds: Option<f64> = sqlx::query_scalar(
            "SELECT extract(epoch FROM min(greatest(due_at, coalesce(probe_lease_until, due_at))) - clock_timestamp())::float8 \
             FROM statuses WHERE due_at IS NOT NULL",
        )
        .fetch_one(&self.registry)
        .await?;
        Ok(seconds.map(|s| std::time::Duration::try_from_secs_f64(s.max(0.0)).unwrap_or_default()))
    }

    /// Writes what a probe found, by compare-and-set on (lease, revision). Only what changes state, cause or fence takes the
    /// head lock.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn finish_probe(&self, lease: &Lease, outcome: &ProbeOutcome) -> Result<ProbeResult> {
        let mut conn = self.registry.acquire().await?;
        let rules = policies::rules(&mut conn).await?;
        let now: OffsetDateTime =
            sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&mut *conn).await?;
        let soft = matches!(outcome, ProbeOutcome::Bad { cause: Cause::Unhealthy, .. });
        // Whether it would be the last one is known only under the lock.
        let guess =
            decide::probed(&lease.subject, &lease.status, outcome, Held::default(), &rules, now, jitter());
        match guess {
            ProbeChange::Times(next) if !soft => return write_times(&mut conn, lease, &next).await,
            _ => drop(conn),
        }
        let mut tx = self.begin("prober").await?;
        let result = tx.finish_probe(lease, outcome, &rules).await?;
        self.end(tx).await?;
        Ok(result)
    }

    /// Makes throttles whose time is over active, drops `degraded` where no proxy says so any more, and forgets old answers.
    /// Answers how many rows changed.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn tidy(&self) -> Result<usize> {
        let mut conn = self.registry.acquire().await?;
        let over: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM statuses WHERE cause = 'throttled' AND retry_at <= clock_timestamp())",
        )
        .fetch_one(&mut *conn)
        .await?;
        let forgotten = health::forgotten(&mut conn).await?;
        for old in [
            "DELETE FROM verdicts WHERE received_at < clock_timestamp() - interval '7 days'",
            "DELETE FROM requests WHERE created_at < clock_timestamp() - interval '7 days'",
            "DELETE FROM health WHERE updated_at < clock_timestamp() - interval '1 day'",
        ] {
            sqlx::query(old).execute(&mut *conn).await?;
        }
        drop(conn);
        if !over && forgotten.is_empty() {
            return Ok(0);
        }
        let mut tx = self.begin("prober").await?;
        let mut changed = tx.end_throttles().await?;
        for subject in health::forgotten(tx.conn()).await? {
            let status = tx.status(&subject).await?;
            tx.publish("subject.steady", &subject, &Status { degraded: false, ..status }, json!({})).await?;
            changed += 1;
        }
        self.end(tx).await?;
        Ok(changed)
    }
}

/// Writes the prober's times without a revision: the row is still the one that was claimed, or nothing happens.
async fn write_times(conn: &mut sqlx::PgConnection, lease: &Lease, next: &Status) -> Result<ProbeResult> {
    let key = Key::from(&lease.subject);
    let pending = next.pending.is_some();
    let done = sqlx::query(
        "UPDATE statuses SET last_probed_at = $7, retry_at = $8, failed_probes = $9, due_at = $10, \
         pending_cause = CASE WHEN $11 THEN pending_cause ELSE '' END, \
         pending_reason = CASE WHEN $11 THEN pending_reason ELSE '' END, \
         pending_actor = CASE WHEN $11 THEN pending_actor ELSE '' END, \
         pending_evidence = CASE WHEN $11 THEN pending_evidence END, pending_since = CASE WHEN $11 THEN pending_since END, \
         pending_suppressed = $11 AND pending_suppressed, probe_lease = NULL, probe_lease_until = NULL \
         WHERE subject_kind = $1 AND subject_id = $2 AND model = $3 AND credential_id = $4 AND probe_lease = $5 AND revision = $6",
    )
    .bind(key.kind)
    .bind(key.id)
    .bind(key.model)
    .bind(key.credential)
    .bind(lease.lease)
    .bind(lease.status.revision)
    .bind(next.last_probed_at)
    .bind(next.retry_at)
    .bind(i32::try_from(next.failed_probes).unwrap_or(i32::MAX))
    .bind(next.due_at())
    .bind(pending)
    .execute(conn)
    .await?;
    if done.rows_affected() == 0 {
        return Ok(ProbeResult::Lost);
    }
    Ok(ProbeResult::Unchanged(rows::message(&lease.subject, next, false)))
}

impl Tx {
    async fn finish_probe(
        &mut self,
        lease: &Lease,
        outcome: &ProbeOutcome,
        rules: &FleetPolicy,
    ) -> Result<ProbeResult> {
        let key = Key::from(&lease.subject);
        let row: Option<StatusRow> = sqlx::query_as(concat!(
            "SELECT ",
            status_columns!(),
            " FROM statuses s WHERE s.subject_kind = $1 AND s.subject_id = $2 AND s.model = $3 AND s.credential_id = $4 \
             AND s.probe_lease = $5 AND s.revision = $6"
        ))
        .bind(key.kind)
        .bind(key.id)
        .bind(key.model)
        .bind(key.credential)
        .bind(lease.lease)
        .bind(lease.status.revision)
        .fetch_optional(self.conn())
        .await?;
        let Some(row) = row else { return Ok(ProbeResult::Lost) };
        let old = row.status()?;
        let soft = matches!(outcome, ProbeOutcome::Bad { cause: Cause::Unhealthy, .. });
        let last_active = soft && last::is_last_active(self.conn(), &lease.subject).await?;
        let subjects = std::slice::from_ref(&lease.subject);
        let by_hand = !Book::read(self.conn(), subjects).await?.auto_disable(&lease.subject);
        let held = Held { last_active, by_hand };
        let change = decide::probed(&lease.subject, &old, outcome, held, rules, self.now, jitter());
        let (status, raise_fence) = match change {
            ProbeChange::Times(next) => return write_times(self.conn(), lease, &next).await,
            ProbeChange::Publish { status, raise_fence } => (status, raise_fence),
        };
        let fence = if raise_fence { self.revision } else { status.fence };
        let status = Status { fence, ..status };
        let kind = match (old.state, status.state, status.cause) {
            (State::Disabled, State::Active, _) => "subject.recovered",
            (State::Active, State::Active, _) => "subject.cleared",
            // A claim beside a throttle was refuted.
            (State::Disabled, State::Disabled, _) if raise_fence => "subject.cleared",
            (_, State::Disabled, Some(Cause::Throttled)) => "subject.throttled",
            (_, State::Disabled, _) => "subject.auto_disabled",
        };
        let claimed = old.pending.as_ref();
        let detail = json!({
            "was": old.cause.map(Cause::as_str),
            "claimed": claimed.map(|p| p.cause.as_str()),
            "claimed_by": claimed.map(|p| p.actor.as_str()),
            "comment": if raise_fence { "a probe succeeded" } else { "a probe failed" },
        });
        Ok(ProbeResult::Changed(self.publish(kind, &lease.subject, &status, detail).await?))
    }

    /// Makes every throttle whose time is over active.
    async fn end_throttles(&mut self) -> Result<usize> {
        let over: Vec<StatusRow> = sqlx::query_as(concat!(
            "SELECT ",
            status_columns!(),
            " FROM statuses s WHERE s.cause = 'throttled' AND s.retry_at <= $1 ORDER BY 1, 2, 3, 4"
        ))
        .bind(self.now)
        .fetch_all(self.conn())
        .await?;
        let count = over.len();
        for row in over {
            let subject: Subject = row.subject()?;
            let next = decide::ended(row.status()?);
            let detail = json!({ "was": "throttled", "comment": "its time was over" });
            self.publish("subject.recovered", &subject, &next, detail).await?;
        }
        Ok(count)
    }
}
