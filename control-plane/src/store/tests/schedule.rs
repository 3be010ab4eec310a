//! Part 7: a seeded schedule of duplicate and interleaved verdicts, enables and rotations over two stores. Afterwards the
//! rows equal a serial replay of the event log, and of each (subject, cause, fence) at most one verdict was applied.

use std::collections::{BTreeMap, HashMap};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use super::*;

const VERDICTS: usize = 1000;

#[derive(Clone, Debug)]
enum Step {
    Report(Box<dp::Verdict>),
    Enable(Subject),
    Disable(Subject),
    Rotate(String),
}

/// State, cause, fence and revision of one subject.
type Row = (String, String, i64, i64);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn part7_a_thousand_interleaved_verdicts_equal_a_serial_replay_of_the_event_log() {
    for seed in [1, 2] {
        run(seed).await;
    }
}

async fn run(seed: u64) {
    let (db, store) = fresh().await;
    let stores = [store.clone(), db.store().await.unwrap()];
    let wide = pb::FleetPolicy { budget_min: Some(1_000_000), ..Default::default() };
    let policy = pb::Policy { fleet: Some(wide), ..Default::default() };
    write(&store, |tx| Box::pin(async move { tx.put_policy(policy).await })).await.unwrap();
    let mut channels = Vec::new();
    for i in 0..3 {
        let mut s = spec(&format!("c{i}"));
        s.models.push(pb::ModelEntry { model: "second".into(), ..Default::default() });
        channels.push(create(&store, s, &[&format!("sk-0123456789abc-{i}")]).await);
    }
    let steps = steps(seed, &channels);
    let epoch = store.head().await.unwrap().epoch.to_string();

    let next = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let steps = std::sync::Arc::new(steps);
    let workers = (0..8).map(|w| {
        let (store, steps, next, epoch) = (stores[w % 2].clone(), steps.clone(), next.clone(), epoch.clone());
        tokio::spawn(async move {
            let mut answers = Vec::new();
            loop {
                let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(step) = steps.get(at) else { return answers };
                match step.clone() {
                    Step::Report(mut v) => {
                        // As a proxy that has just read the registry, or one that lags.
                        let head = store.head().await.unwrap().revision;
                        v.observed_revision = (head - v.observed_revision).max(0);
                        let id = v.verdict_id.clone();
                        let proxy_id = format!("p{w}");
                        let batch =
                            dp::ReportVerdictsRequest { proxy_id, verdicts: vec![*v], epoch: epoch.clone() };
                        let answer = store.apply_verdicts(&batch).await.unwrap().results.remove(0);
                        answers.push((id, answer));
                    }
                    Step::Enable(subject) => {
                        let _ =
                            write(&store, |tx| Box::pin(async move { tx.enable(&subject, "").await })).await;
                    }
                    Step::Disable(subject) => {
                        let comment = format!("step {at}");
                        let _ =
                            write(&store, |tx| Box::pin(async move { tx.disable(&subject, &comment).await }))
                                .await;
                    }
                    Step::Rotate(name) => {
                        rotate(&store, &name, &format!("sk-0123456789-{at}")).await;
                    }
                }
            }
        })
    });
    let mut by_id: HashMap<String, dp::VerdictResult> = HashMap::new();
    for answers in futures_util::future::join_all(workers).await {
        for (id, answer) in answers.unwrap() {
            let first = by_id.entry(id).or_insert_with(|| answer.clone());
            assert_eq!(*first, answer, "seed {seed}: a repeated verdict got another answer");
        }
    }
    let applied = by_id.values().filter(|a| a.disposition() == dp::Disposition::Applied).count();
    assert!(applied > 20, "seed {seed}: the schedule does something: {applied}");

    // At most one APPLIED per (subject, cause, fence), throttles aside.
    let twice: Vec<(String, i64, String, String, i64, i64)> = sqlx::query_as(
        "SELECT subject_kind, subject_id, model, cause, fence_revision, count(*) FROM verdicts \
         WHERE disposition = 'DISPOSITION_APPLIED' AND cause <> 'throttled' \
         GROUP BY subject_kind, subject_id, model, credential_id, cause, fence_revision HAVING count(*) > 1",
    )
    .fetch_all(&store.registry)
    .await
    .unwrap();
    // An operator's disable lies between two of them where a weaker state was replaced by a human and enabled since: the
    // enable raised the fence, so even then there is one.
    assert!(twice.is_empty(), "seed {seed}: {twice:?}");
    let kept: i64 =
        sqlx::query_scalar("SELECT count(*) FROM verdicts").fetch_one(&store.registry).await.unwrap();
    assert_eq!(usize::try_from(kept).unwrap(), by_id.len(), "seed {seed}: each verdict is counted once");

    assert_eq!(rows(&store).await, replay(&store).await, "seed {seed}");
    let projected: Vec<(String, i64)> = sqlx::query_as(
        "SELECT a.model, a.channel_id FROM abilities a WHERE a.enabled AND EXISTS (SELECT 1 FROM statuses s \
         WHERE s.subject_kind = 'channel' AND s.subject_id = a.channel_id AND status_out(s, clock_timestamp()))",
    )
    .fetch_all(&store.registry)
    .await
    .unwrap();
    assert!(projected.is_empty(), "seed {seed}: enabled on a channel that is out: {projected:?}");
    println!(
        "seed {seed}: {} steps, head {}, {applied} applied of {}",
        steps.len(),
        head(&store).await,
        by_id.len()
    );
}

fn steps(seed: u64, channels: &[pb::Channel]) -> Vec<Step> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut subjects = Vec::new();
    for c in channels {
        subjects.push(channel(c.channel_id));
        subjects.push(key(c.credential_ids[0]));
        subjects.push(ability(c.channel_id, "second", None));
        subjects.push(ability(c.channel_id, "gpt-4o-mini", Some(c.credential_ids[0])));
    }
    // Rotated keys get ids in order: aim at them too, before and after they exist.
    subjects.extend((4..40).map(key));
    let causes = [pb::Cause::Credential, pb::Cause::Quota, pb::Cause::Throttled, pb::Cause::ModelUnavailable];
    let mut verdicts: Vec<dp::Verdict> = Vec::new();
    let mut steps = Vec::new();
    while verdicts.len() < VERDICTS {
        match rng.random_range(0..100) {
            0..4 => steps.push(Step::Enable(subjects.choose(&mut rng).unwrap().clone())),
            4..6 => steps.push(Step::Disable(subjects[..12].choose(&mut rng).unwrap().clone())),
            6..8 => steps.push(Step::Rotate(format!("c{}", rng.random_range(0..3)))),
            8..30 if !verdicts.is_empty() => {
                // A retry: the same id again, some time later.
                let mut again = verdicts.choose(&mut rng).unwrap().clone();
                again.observed_revision = rng.random_range(0..20);
                steps.push(Step::Report(again.into()));
            }
            _ => {
                let behind = rng.random_range(0..20);
                let cause = *causes.choose(&mut rng).unwrap();
                let mut v = verdict(subjects.choose(&mut rng).unwrap(), cause, behind);
                v.confirm = rng.random_bool(0.1);
                verdicts.push(v.clone());
                steps.push(Step::Report(v.into()));
            }
        }
    }
    steps
}

/// The subject's four columns, state, cause, fence, revision.
type StatusColumns = (String, i64, String, i64, String, String, i64, i64);

async fn rows(store: &Store) -> BTreeMap<String, Row> {
    let found: Vec<StatusColumns> = sqlx::query_as(
        "SELECT subject_kind, subject_id, model, credential_id, state, cause, fence_revision, revision FROM statuses WHERE revision > 0",
    )
    .fetch_all(&store.registry)
    .await
    .unwrap();
    found
        .into_iter()
        .map(|(k, i, m, c, s, cause, f, r)| (format!("{k}/{i}/{m}/{c}"), (s, cause, f, r)))
        .collect()
}

/// Revision, kind, the subject's four columns, detail.
type LogRow = (i64, String, String, i64, String, i64, serde_json::Value);

/// Replays the event log one event after the other.
async fn replay(store: &Store) -> BTreeMap<String, Row> {
    let log: Vec<LogRow> = sqlx::query_as(
        "SELECT revision, kind, subject_kind, subject_id, model, credential_id, detail FROM events WHERE item = 'status' \
         ORDER BY revision, ordinal",
    )
    .fetch_all(&store.registry)
    .await
    .unwrap();
    let mut out = BTreeMap::new();
    for (revision, kind, k, i, m, c, detail) in log {
        let name = format!("{k}/{i}/{m}/{c}");
        if kind == "subject.removed" {
            out.remove(&name);
            continue;
        }
        let status = &detail["status"];
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        out.insert(
            name,
            (text("state"), text("cause"), status["fence_revision"].as_i64().unwrap(), revision),
        );
    }
    out
}
