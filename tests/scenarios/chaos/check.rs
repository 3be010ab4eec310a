//! What must hold when the storm is over.

use std::{collections::HashMap, time::Duration};

use anyhow::{Result, ensure};
use spareline_proto::dataplane::v1::Disposition;
use spareline_tests::{http::Call, replicas::Replicas};
use tokio::time::{Instant, sleep};

use super::load::Done;

/// Waits until every replica says that it is ready, and every proxy has told what it had to tell.
pub(super) async fn up(fleet: &Replicas, limit: Duration) -> Result<()> {
    let begun = Instant::now();
    for replica in &fleet.all {
        while !replica.control.page("/readyz").await.is_ok_and(|page| page.status == 200) {
            let name = replica.admin();
            ensure!(begun.elapsed() < limit, "{name} is not ready: {}", replica.control.process.log_text());
            sleep(Duration::from_millis(100)).await;
        }
    }
    for (proxy, _) in &fleet.proxies {
        loop {
            let waiting =
                Call::get("/debug/registry").send(proxy.admin).await?.json()["reports_waiting"].clone();
            if waiting == 0 {
                break;
            }
            ensure!(begun.elapsed() < limit, "{} still holds {waiting} reports", proxy.id);
            sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// Everything that can be counted, at once, so that one failure does not hide another.
pub(super) async fn everything(fleet: &Replicas, done: &Done, revision: i64) -> Result<()> {
    let mut wrong = fleet.faults();
    wrong.extend(done.failures.iter().take(20).cloned());
    wrong.extend(done.internal.iter().take(20).cloned());
    gaps(fleet, revision, &mut wrong).await?;
    writes(fleet, done, &mut wrong).await?;
    verdicts(fleet, done, &mut wrong).await?;
    for (watcher, _) in &fleet.watchers {
        if watcher.seen().frames == 0 {
            wrong.push(format!("a watcher got nothing: {:?}", watcher.seen()));
        }
    }
    ensure!(wrong.is_empty(), "{} things are wrong: {wrong:#?}", wrong.len());
    Ok(())
}

/// Every revision up to the head has events, and none lies beyond it.
async fn gaps(fleet: &Replicas, revision: i64, wrong: &mut Vec<String>) -> Result<()> {
    let query = "SELECT count(DISTINCT revision), min(revision), max(revision) FROM events";
    let mut database = fleet.database.connect().await?;
    let (count, first, last): (i64, i64, i64) = sqlx::query_as(query).fetch_one(&mut database).await?;
    if (count, first) != (last, 1) || last < revision {
        wrong.push(format!("{count} revisions from {first} to {last}, and the head was at {revision}"));
    }
    Ok(())
}

/// Each answered write is there, and there once.
async fn writes(fleet: &Replicas, done: &Done, wrong: &mut Vec<String>) -> Result<()> {
    let mut database = fleet.database.connect().await?;
    let created = "SELECT c.name, count(*), bool_or(c.deleted_at IS NULL) FROM channels c JOIN events e \
                   ON e.kind = 'channel.created' AND e.subject_id = c.channel_id GROUP BY c.name";
    let rows: Vec<(String, i64, bool)> = sqlx::query_as(created).fetch_all(&mut database).await?;
    let channels: HashMap<String, (i64, bool)> = rows.into_iter().map(|(n, c, l)| (n, (c, l))).collect();
    for (name, _) in &done.created {
        let lives = !done.deleted.contains(name);
        if channels.get(name) != Some(&(1, lives)) {
            wrong.push(format!("{name} lives: {lives}, but is there: {:?}", channels.get(name)));
        }
    }
    let lanes = channels.keys().filter(|name| name.starts_with("lane")).count();
    if lanes != done.created.len() {
        wrong.push(format!("{lanes} channels for {} answered calls", done.created.len()));
    }
    let known: Vec<String> =
        sqlx::query_scalar("SELECT request_id::text FROM requests").fetch_all(&mut database).await?;
    for request in done.created.iter().map(|(_, id)| id).chain(&done.keys).filter(|id| !known.contains(id)) {
        wrong.push(format!("request {request} was answered and is not known"));
    }
    let keys = "SELECT count(*) FROM credentials k JOIN channel_credentials USING (credential_id)";
    let keys: i64 = sqlx::query_scalar(keys).fetch_one(&mut database).await?;
    println!("{keys} keys are listed, {} were added to channels since deleted or not", done.keys.len());
    let weighed = "SELECT c.name, coalesce((s.spec ->> 'weight')::bigint, 1) FROM channels c JOIN channel_specs s \
                   USING (channel_id, spec_revision) WHERE c.deleted_at IS NULL";
    let rows: Vec<(String, i64)> = sqlx::query_as(weighed).fetch_all(&mut database).await?;
    let weights: HashMap<String, i64> = rows.into_iter().collect();
    for (name, weight) in &done.weights {
        if weights.get(name) != Some(&i64::from(*weight)) {
            wrong.push(format!("{name} weighs {:?}, not {weight}", weights.get(name)));
        }
    }
    let said = "SELECT detail ->> 'comment' FROM events WHERE detail ? 'comment'";
    let said: Vec<String> = sqlx::query_scalar(said).fetch_all(&mut database).await?;
    for comment in done.comments.iter().filter(|comment| !said.contains(comment)) {
        wrong.push(format!("comment {comment} was answered and is in no event"));
    }
    Ok(())
}

/// Each answered verdict is kept with the answer that was given. (Of what was out already nothing need be kept.)
async fn verdicts(fleet: &Replicas, done: &Done, wrong: &mut Vec<String>) -> Result<()> {
    let mut database = fleet.database.connect().await?;
    let rows: Vec<(String, String)> =
        sqlx::query_as("SELECT verdict_id::text, disposition FROM verdicts").fetch_all(&mut database).await?;
    let kept: HashMap<String, String> = rows.into_iter().collect();
    let mut answered: Vec<(String, String)> =
        done.verdicts.iter().map(|(id, d)| (id.clone(), word(d.as_str_name()))).collect();
    for line in fleet.proxies.iter().flat_map(|(p, _)| p.process.log()).filter(|l| l.is("verdict_answered")) {
        answered.push((line.str("verdict_id").to_owned(), line.str("disposition").to_owned()));
    }
    let already = word(Disposition::Already.as_str_name());
    for (id, answer) in &answered {
        match kept.get(id).map(|d| word(d)) {
            Some(kept) if kept == *answer => {}
            // Answered from memory, while what was sent before and given up was judged elsewhere.
            _ if *answer == already => {}
            kept => wrong.push(format!("verdict {id} was answered {answer}, kept is {kept:?}")),
        }
    }
    println!("{} verdicts answered, {} kept", answered.len(), kept.len());
    Ok(())
}

fn word(name: &str) -> String {
    name.strip_prefix("DISPOSITION_").unwrap_or(name).to_lowercase()
}
