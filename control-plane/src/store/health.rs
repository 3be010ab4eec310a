//! Health tallies of proxies: counted once, and nothing but flags and probes follow from them.

use std::collections::BTreeMap;

use prost::Message;
use serde_json::json;
use spareline_core::{Cause, Subject};
use spareline_proto::dataplane::v1 as dp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::facts::Book;
use super::rollouts::Candidates;
use super::rows::{self, Key};
use super::{Result, Store, Tx};
use crate::decide::{Known, Pending, State, Status};
use crate::rollout::blame::Seen;
use crate::world::announce::describe;

/// A proxy's count older than this says nothing about now.
const RECENT_SECONDS: f64 = 600.0;
/// The same failures ask for no second probe sooner.
const PROBED_LATELY: time::Duration = time::Duration::seconds(20);

/// What became of a batch of tallies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthResult {
    /// Something crossed the threshold and waits for a probe: wake the prober now.
    pub probe_now: bool,
    /// The batch was counted before.
    pub repeated: bool,
}

/// What a subject's count in a row asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    degraded: bool,
    probe: bool,
}

impl Wish {
    /// Nothing that is out is touched: tallies never revive, nor flag, what is out.
    fn of(book: &Book, subject: &Subject, trailing: i64) -> Wish {
        let rules = &book.rules;
        let status = book.status(subject);
        let active = !status.is_out(book.now);
        let over = |limit: u32| trailing >= i64::from(limit);
        let lately = status.last_probed_at.is_some_and(|at| book.now - at < PROBED_LATELY);
        Wish {
            degraded: active && over(rules.degraded_after),
            probe: active
                && over(rules.unhealthy_after)
                && status.pending.is_none()
                && !lately
                && book.auto_disable(subject),
        }
    }
}

impl Store {
    /// Counts a batch of tallies. Crossing the lower threshold flags a subject, the upper one asks for a probe; neither
    /// takes anything out nor brings anything back. Tallies of another epoch, from before a fence, or of what is gone count
    /// for nothing.
    ///
    /// # Errors
    /// `Unavailable`: nothing was counted, send it again.
    pub async fn report_health(&self, batch: &dp::ReportHealthRequest) -> Result<HealthResult> {
        let mut conn = self.reports.begin().await?;
        if let Ok(id) = Uuid::parse_str(&batch.batch_id) {
            let first = sqlx::query(
                "INSERT INTO requests (request_id, method, body_hash, response) VALUES ($1, 'ReportHealth', $2, '') \
                 ON CONFLICT (request_id) DO NOTHING",
            )
            .bind(id)
            .bind(self.key.hash("request", &batch.encode_to_vec())?)
            .execute(&mut *conn)
            .await?;
            if first.rows_affected() == 0 {
                return Ok(HealthResult { probe_now: false, repeated: true });
            }
        }
        let mut tallies = BTreeMap::new();
        for tally in &batch.tallies {
            if let Some(subject) = rows::subject_of(tally.subject.as_ref()) {
                add(tallies.entry((subject, tally.spec_revision)).or_insert((0, 0, 0, 0)), tally);
            }
        }
        let subjects: Vec<Subject> = tallies.keys().map(|(subject, _)| subject.clone()).collect();
        let book = Book::read(&mut conn, &subjects).await?;
        let counted = book.epoch == batch.epoch;
        let specs = tallies.keys().map(|(_, spec)| *spec);
        let candidates = Candidates::read(&mut conn, specs, &subjects).await?;
        tallies.retain(|(subject, _), (_, _, _, observed)| {
            counted && (book.fence(subject)..=book.head).contains(observed)
        });
        // What a candidate could have caused is counted for its rollout, and says nothing of the baseline.
        let blamed = |(subject, spec): &(Subject, i64)| candidates.blamed(*spec, subject, Seen::Failures);
        let (staged, mut tallies): (BTreeMap<_, _>, BTreeMap<_, _>) =
            tallies.into_iter().partition(|(key, _)| blamed(key).is_some());
        tallies.retain(|(subject, _), _| book.known(subject) == Known::Live);
        let proxy = batch.proxy_id.replace('\0', "");
        let counts = count(&mut conn, &proxy, &tallies, &book).await?;
        let under = count(&mut conn, &proxy, &staged, &book).await?;
        conn.commit().await?;
        self.charge_failures(&proxy, &staged, &under, &book, &candidates).await?;

        let asked: Vec<(Subject, Wish)> = counts
            .into_iter()
            .map(|(subject, trailing)| {
                let wish = Wish::of(&book, &subject, trailing);
                (subject, wish)
            })
            .filter(|(subject, wish)| wish.probe || wish.degraded != book.status(subject).degraded)
            .filter(|(subject, _)| !book.status(subject).is_out(book.now))
            .collect();
        if asked.is_empty() {
            return Ok(HealthResult::default());
        }
        let mut tx = self.begin(&format!("proxy:{}", batch.proxy_id)).await?;
        let mut probe_now = false;
        for (subject, wish) in asked {
            probe_now |= tx.cross(&subject, wish).await?;
        }
        self.end(tx).await?;
        Ok(HealthResult { probe_now, repeated: false })
    }
}

impl Store {
    /// Pauses the rollouts under whose candidates something failed too often in a row.
    async fn charge_failures(
        &self,
        proxy: &str,
        staged: &BTreeMap<(Subject, i64), Tally>,
        counts: &[(Subject, i64)],
        book: &Book,
        candidates: &Candidates,
    ) -> Result<()> {
        let over = |subject: &Subject| {
            let found = counts.iter().find(|(counted, _)| counted == subject);
            found.map(|(_, n)| *n).filter(|n| *n >= i64::from(book.rules.unhealthy_after))
        };
        for (subject, spec) in staged.keys() {
            let Some((row, blamed)) = over(subject).zip(candidates.blamed(*spec, subject, Seen::Failures))
            else {
                continue;
            };
            if blamed.active.is_empty() {
                continue;
            }
            let why =
                format!("{row} failures in a row under its candidate: {}, says {proxy}", describe(subject));
            let mut tx = self.begin(&format!("proxy:{proxy}")).await?;
            let specs = std::iter::once(*spec);
            let now = Candidates::read(tx.conn(), specs, std::slice::from_ref(subject)).await?;
            if let Some(blamed) = now.blamed(*spec, subject, Seen::Failures) {
                tx.charge(&blamed, &why).await?;
            }
            self.end(tx).await?;
        }
        Ok(())
    }
}

impl Tx {
    /// Carries a wish out on the row as it is now; answers whether a probe is asked for.
    async fn cross(&mut self, subject: &Subject, wish: Wish) -> Result<bool> {
        let mut status = self.status(subject).await?;
        if status.state == State::Disabled {
            return Ok(false);
        }
        if wish.degraded != status.degraded {
            if wish.degraded {
                status.degraded = true;
                self.publish("subject.degraded", subject, &status, json!({})).await?;
                status.revision = self.revision;
            } else if !failing_elsewhere(self.conn(), subject, status.fence).await? {
                status.degraded = false;
                self.publish("subject.steady", subject, &status, json!({})).await?;
                status.revision = self.revision;
            }
        }
        if !wish.probe || status.pending.is_some() {
            return Ok(false);
        }
        let pending = Pending {
            cause: Cause::Unhealthy,
            reason: "too many failures in a row".into(),
            actor: self.actor.clone(),
            evidence: None,
            since: self.now,
            suppressed: false,
        };
        let next = Status { pending: Some(pending), pending_due: Some(self.now), ..status };
        rows::put(self.conn(), subject, &next).await?;
        Ok(true)
    }
}

type Tally = (i64, i64, i64, i64);

/// Adds a tally to those of the same subject before it in the batch.
fn add((successes, failures, trailing, observed): &mut Tally, tally: &dp::HealthTally) {
    let fresh = i64::from(tally.trailing_failures);
    *trailing = if tally.successes > 0 { fresh } else { *trailing + fresh };
    *successes += i64::from(tally.successes);
    *failures += i64::from(tally.failures);
    *observed = (*observed).max(tally.observed_revision);
}

/// Adds the tallies to the proxy's rows; answers each subject's count in a row.
async fn count(
    conn: &mut PgConnection,
    proxy_id: &str,
    tallies: &BTreeMap<(Subject, i64), Tally>,
    book: &Book,
) -> Result<Vec<(Subject, i64)>> {
    if tallies.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<Key> = tallies.keys().map(|(subject, _)| Key::from(subject)).collect();
    let column = |f: fn(&Tally) -> i64| tallies.values().map(f).collect::<Vec<i64>>();
    let rows: Vec<(String, i64, String, i64, i64)> = sqlx::query_as(
        "INSERT INTO health AS h (proxy_id, subject_kind, subject_id, model, credential_id, spec_revision, successes, failures, \
         trailing_failures, observed_revision) \
         SELECT $1, k, i, m, c, r, s, f, t, o FROM unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], \
         $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[]) AS x (k, i, m, c, r, s, f, t, o, fence) \
         ORDER BY k, i, m, c, r \
         ON CONFLICT (proxy_id, subject_kind, subject_id, model, credential_id, spec_revision) DO UPDATE SET \
         successes = h.successes + excluded.successes, failures = h.failures + excluded.failures, \
         trailing_failures = excluded.trailing_failures + CASE WHEN excluded.successes > 0 \
           OR h.updated_at < clock_timestamp() - make_interval(secs => $12) \
           OR h.observed_revision < (SELECT max(fence) FROM unnest($2::text[], $3::bigint[], $4::text[], $5::bigint[], $11::bigint[]) \
              AS y (k, i, m, c, fence) WHERE (k, i, m, c) = (h.subject_kind, h.subject_id, h.model, h.credential_id)) \
           THEN 0 ELSE h.trailing_failures END, \
         observed_revision = greatest(h.observed_revision, excluded.observed_revision), updated_at = clock_timestamp() \
         RETURNING subject_kind, subject_id, model, credential_id, trailing_failures",
    )
    .bind(proxy_id)
    .bind(keys.iter().map(|k| k.kind).collect::<Vec<_>>())
    .bind(keys.iter().map(|k| k.id).collect::<Vec<_>>())
    .bind(keys.iter().map(|k| k.model.as_str()).collect::<Vec<_>>())
    .bind(keys.iter().map(|k| k.credential).collect::<Vec<_>>())
    .bind(tallies.keys().map(|(_, spec)| *spec).collect::<Vec<_>>())
    .bind(column(|t| t.0))
    .bind(column(|t| t.1))
    .bind(column(|t| t.2))
    .bind(column(|t| t.3))
    .bind(tallies.keys().map(|(subject, _)| book.fence(subject)).collect::<Vec<_>>())
    .bind(RECENT_SECONDS)
    .fetch_all(conn)
    .await?;
    let mut counts = BTreeMap::new();
    for (kind, id, model, credential, trailing) in rows {
        let most = counts.entry(rows::subject(&kind, id, &model, credential)?).or_insert(0);
        *most = trailing.max(*most);
    }
    Ok(counts.into_iter().collect())
}

/// Whether some proxy's recent count still says three in a row or more.
async fn failing_elsewhere(conn: &mut PgConnection, subject: &Subject, fence: i64) -> Result<bool> {
    let rules = super::policies::rules(conn).await?;
    let key = Key::from(subject);
    Ok(sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM health WHERE subject_kind = $1 AND subject_id = $2 AND model = $3 AND credential_id = $4 \
         AND trailing_failures >= $5 AND observed_revision >= $6 \
         AND updated_at > clock_timestamp() - make_interval(secs => $7))",
    )
    .bind(key.kind)
    .bind(key.id)
    .bind(key.model)
    .bind(key.credential)
    .bind(i64::from(rules.degraded_after))
    .bind(fence)
    .bind(RECENT_SECONDS)
    .fetch_one(conn)
    .await?)
}

/// Degraded subjects that no proxy's recent count speaks of any more.
pub(super) async fn forgotten(conn: &mut PgConnection) -> Result<Vec<Subject>> {
    let rows: Vec<(String, i64, String, i64)> = sqlx::query_as(
        "SELECT subject_kind, subject_id, model, credential_id FROM statuses s WHERE degraded AND state = 'active' \
         AND NOT EXISTS (SELECT 1 FROM health h WHERE h.subject_kind = s.subject_kind AND h.subject_id = s.subject_id \
         AND h.model = s.model AND h.credential_id = s.credential_id AND h.trailing_failures > 0 \
         AND h.updated_at > clock_timestamp() - make_interval(secs => $1))",
    )
    .bind(RECENT_SECONDS)
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|(kind, id, model, credential)| rows::subject(&kind, id, &model, credential))
        .collect()
}
