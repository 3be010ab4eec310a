//! Verdicts of proxies: each answered once, in one transaction for those that change something.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};
use spareline_core::{Cause, Subject, convert};
use spareline_proto::{dataplane::v1 as dp, registry::v1 as pb};
use sqlx::PgConnection;
use uuid::Uuid;

use super::events::Item;
use super::facts::{self, Book};
use super::rollouts::Candidates;
use super::rows::{self, Key};
use super::{Result, Store, Tx, json as proto_json};
use crate::decide::{self, Budget, Decision, Disposition, VerdictInput};
use crate::rollout::blame::Seen;
use crate::world::announce::describe;

/// What became of a batch of verdicts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerdictsResult {
    /// One per verdict, in order.
    pub results: Vec<dp::VerdictResult>,
    /// Something waits for a probe: wake the prober now.
    pub probe_now: bool,
    /// The revision of the change, if any was applied.
    pub revision: Option<i64>,
    /// What was taken out or extended, for the log.
    pub applied: Vec<(Subject, pb::Status)>,
}

/// One verdict that has no answer yet.
struct Open<'b> {
    id: Uuid,
    subject: Subject,
    verdict: &'b dp::Verdict,
    batch: &'b dp::ReportVerdictsRequest,
    input: VerdictInput,
}

/// An answer with what is kept of it.
struct Answer {
    disposition: Disposition,
    status_revision: i64,
    fence: i64,
}

impl Answer {
    /// It counts against a rollout, and touches no status.
    fn rollout() -> Self {
        Self { disposition: Disposition::Rollout, status_revision: 0, fence: 0 }
    }
}

impl Open<'_> {
    /// The rollouts whose candidate could have caused it; none for what would be stale anyway.
    fn blamed(&self, candidates: &Candidates, book: &Book) -> Option<super::rollouts::Blamed> {
        let ours = self.batch.epoch == book.epoch && self.input.observed_revision <= book.head;
        let cause = self.input.cause.filter(|_| ours)?;
        candidates.blamed(self.verdict.spec_revision, &self.subject, Seen::Verdict(cause))
    }

    /// Why the rollout stops, in one line.
    fn charge(&self) -> String {
        let cause = self.input.cause.unwrap_or(Cause::Unhealthy);
        let reason = decide::reason_of(self.input.evidence.as_ref(), cause);
        let (subject, proxy) = (describe(&self.subject), plain(&self.batch.proxy_id));
        format!("a verdict under its candidate: {subject} is {}, says {proxy} ({reason})", cause.as_str())
    }
}

type Answers = HashMap<Uuid, (Disposition, i64)>;

impl Store {
    /// Answers several batches at once, one result each.
    pub(super) async fn apply_together(
        &self,
        batches: &[Arc<dp::ReportVerdictsRequest>],
    ) -> Result<Vec<VerdictsResult>> {
        let ids: Vec<Uuid> = batches.iter().flat_map(|b| &b.verdicts).filter_map(id_of).collect();
        let mut conn = self.reports.acquire().await?;
        let mut answers = known(&mut conn, &ids).await?;
        let mut open: Vec<Open<'_>> = Vec::new();
        let mut taken: HashSet<Uuid> = answers.keys().copied().collect();
        for batch in batches {
            let actor = format!("proxy:{}", plain(&batch.proxy_id));
            for verdict in &batch.verdicts {
                if let (Some(id), Some(subject)) =
                    (id_of(verdict), rows::subject_of(verdict.subject.as_ref()))
                    && taken.insert(id)
                {
                    open.push(Open { id, subject, verdict, batch, input: input(verdict, &actor) });
                }
            }
        }

        // Without the lock: most verdicts of a storm repeat what is known.
        let subjects: Vec<Subject> = open.iter().map(|o| o.subject.clone()).collect();
        let book = Book::read(&mut conn, &subjects).await?;
        let specs = open.iter().map(|o| o.verdict.spec_revision);
        let candidates = Candidates::read(&mut conn, specs, &subjects).await?;
        let unlimited = Budget { out: 0, allowed: u64::MAX };
        let (mut changing, mut settled) = (Vec::new(), Vec::new());
        for one in open {
            if let Some(blamed) = one.blamed(&candidates, &book) {
                if blamed.active.is_empty() {
                    settled.push((one, Answer::rollout()));
                } else {
                    changing.push(one);
                }
                continue;
            }
            let facts = book.facts(&one.subject, (&one.batch.epoch, one.input.observed_revision), unlimited);
            let decision = decide::verdict(&one.input, &facts, &book.rules, book.now, jitter());
            if decision.changes() {
                changing.push(one);
            } else {
                let fence = book.fence(&one.subject);
                settled.push((one, Answer { disposition: decision.disposition, status_revision: 0, fence }));
            }
        }
        keep(&mut conn, &settled, &mut answers).await?;
        drop(conn);

        let mut done = VerdictsResult::default();
        if !changing.is_empty() {
            self.apply_locked(changing, &mut answers, &mut done).await?;
        }
        let result = |verdict: &dp::Verdict| {
            let unknown = (Disposition::UnknownSubject, 0);
            let answer = id_of(verdict).and_then(|id| answers.get(&id).copied());
            let (disposition, status_revision) = answer.unwrap_or(unknown);
            dp::VerdictResult {
                verdict_id: verdict.verdict_id.clone(),
                disposition: disposition.into(),
                status_revision,
            }
        };
        let results = batches
            .iter()
            .map(|b| VerdictsResult { results: b.verdicts.iter().map(result).collect(), ..done.clone() });
        Ok(results.collect())
    }

    /// Under the lock: decides again, in order, each on what the ones before it did.
    async fn apply_locked(
        &self,
        changing: Vec<Open<'_>>,
        answers: &mut Answers,
        done: &mut VerdictsResult,
    ) -> Result<()> {
        let mut tx = self.begin("proxy").await?;
        let ids: Vec<Uuid> = changing.iter().map(|o| o.id).collect();
        answers.extend(known(tx.conn(), &ids).await?);
        let subjects: Vec<Subject> = changing.iter().map(|o| o.subject.clone()).collect();
        let mut book = Book::read(tx.conn(), &subjects).await?;
        let specs = changing.iter().map(|o| o.verdict.spec_revision);
        let candidates = Candidates::read(tx.conn(), specs, &subjects).await?;
        book.now = tx.now;
        let mut budget = facts::budget(tx.conn(), &book.rules).await?;
        let mut settled = Vec::new();
        for one in changing {
            if answers.contains_key(&one.id) {
                continue; // the same batch came twice at once
            }
            tx.actor.clone_from(&one.input.actor);
            if let Some(blamed) = one.blamed(&candidates, &book) {
                tx.charge(&blamed, &one.charge()).await?;
                settled.push((one, Answer::rollout()));
                continue;
            }
            let facts = book.facts(&one.subject, (&one.batch.epoch, one.input.observed_revision), budget);
            let decision = decide::verdict(&one.input, &facts, &book.rules, tx.now, jitter());
            let fence = book.fence(&one.subject);
            let disposition = decision.disposition;
            done.probe_now |= decision.pend.is_some();
            let published = tx.carry_out(&one, decision, &mut book).await?;
            if published.is_some() && one.input.cause != Some(Cause::Throttled) {
                budget = facts::budget(tx.conn(), &book.rules).await?;
            }
            let status_revision = published.as_ref().map_or(0, |s| s.revision);
            done.applied.extend(published.map(|status| (one.subject.clone(), status)));
            settled.push((one, Answer { disposition, status_revision, fence }));
        }
        keep(tx.conn(), &settled, answers).await?;
        let (revision, changed) = self.end(tx).await?;
        done.revision = changed.then_some(revision);
        Ok(())
    }
}

fn id_of(verdict: &dp::Verdict) -> Option<Uuid> {
    Uuid::parse_str(&verdict.verdict_id).ok()
}

impl Tx {
    async fn carry_out(
        &mut self,
        one: &Open<'_>,
        decision: Decision,
        book: &mut Book,
    ) -> Result<Option<pb::Status>> {
        let detail = json!({
            "verdict_id": one.verdict.verdict_id,
            "observed_revision": one.verdict.observed_revision,
        });
        if let Some(next) = decision.write {
            let kind = if next.cause == Some(Cause::Throttled) {
                "subject.throttled"
            } else {
                "subject.auto_disabled"
            };
            let message = self.publish(kind, &one.subject, &next, detail).await?;
            let next = decide::Status { revision: self.revision, ..next };
            book.statuses.insert(one.subject.clone(), next);
            return Ok(Some(message));
        }
        if let Some(next) = decision.pend {
            rows::put(self.conn(), &one.subject, &next).await?;
            if decision.disposition == Disposition::Suppressed {
                let channels = self.channels_beside(&one.subject).await?;
                let mut detail = detail;
                detail["cause"] = one.input.cause.map(Cause::as_str).into();
                detail["reason"] = next.pending.as_ref().map(|p| p.reason.clone()).into();
                self.event("verdict.suppressed", Item::None(one.subject.clone()), channels, detail);
            }
            book.statuses.insert(one.subject.clone(), next);
        }
        Ok(None)
    }
}

fn input(verdict: &dp::Verdict, actor: &str) -> VerdictInput {
    let duration = |d: Option<prost_types::Duration>| {
        // Negative: its time is over.
        d.map(|d| std::time::Duration::try_from(d).unwrap_or_default())
    };
    VerdictInput {
        cause: convert::cause(verdict.cause),
        observed_revision: verdict.observed_revision,
        confirm: verdict.confirm,
        retry_after: duration(verdict.retry_after),
        age: duration(verdict.age).unwrap_or_default(),
        actor: actor.to_owned(),
        evidence: verdict.evidence.as_ref().map(|e| pb::Evidence {
            provider_code: plain(&e.provider_code),
            excerpt: plain(&e.excerpt),
            rule_id: plain(&e.rule_id),
            request_id: plain(&e.request_id),
            http_status: e.http_status,
            retry_hint: plain(&e.retry_hint),
        }),
    }
}

/// Without NUL, which the database does not take: one odd excerpt must not keep a batch from being counted for ever.
fn plain(text: &str) -> String {
    text.replace('\0', "")
}

/// In 0..1.
pub(super) fn jitter() -> f64 {
    use rand::RngExt;
    rand::rng().random()
}

/// The answers already given to some of these ids.
async fn known(conn: &mut PgConnection, ids: &[Uuid]) -> Result<Answers> {
    let rows: Vec<(Uuid, String, i64)> = sqlx::query_as(
        "SELECT verdict_id, disposition, status_revision FROM verdicts WHERE verdict_id = ANY($1)",
    )
    .bind(ids)
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(id, word, revision)| {
            let disposition = Disposition::from_str_name(&word).unwrap_or(Disposition::Unspecified);
            (id, (disposition, revision))
        })
        .collect())
}

/// Keeps answers. Where the same id was answered meanwhile, that answer stands.
async fn keep(conn: &mut PgConnection, settled: &[(Open<'_>, Answer)], answers: &mut Answers) -> Result<()> {
    if settled.is_empty() {
        return Ok(());
    }
    let keys: Vec<Key> = settled.iter().map(|(o, _)| Key::from(&o.subject)).collect();
    let evidence: Vec<Value> = settled
        .iter()
        .map(|(o, _)| o.verdict.evidence.as_ref().map_or(Ok(Value::Null), proto_json::to_json))
        .collect::<Result<_>>()?;
    let kept: Vec<Uuid> = sqlx::query_scalar(
        "INSERT INTO verdicts (proxy_id, epoch, verdict_id, subject_kind, subject_id, model, credential_id, cause, \
         fence_revision, observed_revision, spec_revision, disposition, status_revision, evidence) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::bigint[], $6::text[], $7::bigint[], $8::text[], $9::bigint[], \
         $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::jsonb[]) \
         ON CONFLICT (verdict_id) DO NOTHING RETURNING verdict_id",
    )
    .bind(settled.iter().map(|(o, _)| plain(&o.batch.proxy_id)).collect::<Vec<_>>())
    .bind(settled.iter().map(|(o, _)| plain(&o.batch.epoch)).collect::<Vec<_>>())
    .bind(settled.iter().map(|(o, _)| o.id).collect::<Vec<_>>())
    .bind(keys.iter().map(|k| k.kind).collect::<Vec<_>>())
    .bind(keys.iter().map(|k| k.id).collect::<Vec<_>>())
    .bind(keys.iter().map(|k| k.model.as_str()).collect::<Vec<_>>())
    .bind(keys.iter().map(|k| k.credential).collect::<Vec<_>>())
    .bind(settled.iter().map(|(o, _)| o.input.cause.map_or("", Cause::as_str)).collect::<Vec<_>>())
    .bind(settled.iter().map(|(_, a)| a.fence).collect::<Vec<_>>())
    .bind(settled.iter().map(|(o, _)| o.verdict.observed_revision).collect::<Vec<_>>())
    .bind(settled.iter().map(|(o, _)| o.verdict.spec_revision).collect::<Vec<_>>())
    .bind(settled.iter().map(|(_, a)| a.disposition.as_str_name()).collect::<Vec<_>>())
    .bind(settled.iter().map(|(_, a)| a.status_revision).collect::<Vec<_>>())
    .bind(evidence)
    .fetch_all(&mut *conn)
    .await?;
    let mut raced = Vec::new();
    for (open, answer) in settled {
        if kept.contains(&open.id) {
            answers.insert(open.id, (answer.disposition, answer.status_revision));
        } else {
            raced.push(open.id);
        }
    }
    if !raced.is_empty() {
        answers.extend(known(conn, &raced).await?);
    }
    Ok(())
}
