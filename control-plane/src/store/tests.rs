//! The store against a real Postgres: one throwaway cluster per process, one database per test.

mod channels;
mod credentials;
mod follow;
mod health;
mod migrate;
mod probes;
mod proxies;
mod races;
mod schedule;
mod statuses;
mod verdicts;

use spareline_core::{ChannelId, CredentialId, Subject};
use spareline_proto::{admin::v1 as admin, dataplane::v1 as dp, registry::v1 as pb};

use super::{ChannelKey, Store, StoreError, Tx, Work, Written};
use crate::postgres::TestDatabase;

async fn fresh() -> (TestDatabase, Store) {
    let database = TestDatabase::new().await.unwrap();
    let store = database.store().await.unwrap();
    (database, store)
}

/// A spec that passes everywhere.
fn spec(name: &str) -> pb::Channel {
    pb::Channel {
        name: name.into(),
        provider: "openai".into(),
        base_url: "http://one.test/v1".into(),
        models: vec![pb::ModelEntry { model: "gpt-4o-mini".into(), ..Default::default() }],
        ..Default::default()
    }
}

async fn write<T: Send + 'static>(
    store: &Store,
    work: impl for<'t> FnOnce(&'t mut Tx) -> Work<'t, T, StoreError> + Send,
) -> Result<Written<T>, StoreError> {
    store.write("tester", work).await
}

async fn resolve(store: &Store, name: admin::SubjectName) -> Result<Subject, StoreError> {
    Ok(write(store, move |tx| Box::pin(async move { tx.resolve(&name).await })).await?.value)
}

async fn create(store: &Store, spec: pb::Channel, secrets: &[&str]) -> pb::Channel {
    let secrets: Vec<String> = secrets.iter().map(|s| (*s).to_owned()).collect();
    write(store, |tx| Box::pin(async move { tx.create_channel(spec, &secrets).await })).await.unwrap().value
}

async fn update(store: &Store, next: pb::Channel) -> Result<Written<pb::Channel>, StoreError> {
    write(store, |tx| Box::pin(async move { tx.update_channel(next).await })).await
}

async fn enable(store: &Store, subject: Subject) -> super::Enabled {
    write(store, |tx| Box::pin(async move { tx.enable(&subject, "fixed").await })).await.unwrap().value
}

async fn disable(store: &Store, subject: Subject) -> pb::Status {
    write(store, |tx| Box::pin(async move { tx.disable(&subject, "maintenance").await })).await.unwrap().value
}

async fn rotate(store: &Store, channel: &str, secret: &str) -> pb::Credential {
    let (key, secret) = (ChannelKey::from(channel), secret.to_owned());
    write(store, |tx| Box::pin(async move { tx.rotate_credential(&key, &secret, &[], false).await }))
        .await
        .unwrap()
        .value
        .credential
}

fn channel(id: i64) -> Subject {
    Subject::Channel(ChannelId(id))
}

fn key(id: i64) -> Subject {
    Subject::Credential(CredentialId(id))
}

fn ability(channel: i64, model: &str, credential: Option<i64>) -> Subject {
    Subject::Ability {
        channel: ChannelId(channel),
        model: model.into(),
        credential: credential.map(CredentialId),
    }
}

/// A verdict with a fresh id.
fn verdict(subject: &Subject, cause: pb::Cause, observed_revision: i64) -> dp::Verdict {
    dp::Verdict {
        verdict_id: uuid::Uuid::now_v7().to_string(),
        subject: Some(spareline_core::convert::subject_ref(subject)),
        cause: cause.into(),
        observed_revision,
        evidence: Some(pb::Evidence {
            http_status: 401,
            provider_code: "invalid_api_key".into(),
            rule_id: "openai.invalid_api_key".into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

async fn report(store: &Store, verdicts: Vec<dp::Verdict>) -> Vec<dp::VerdictResult> {
    let epoch = store.head().await.unwrap().epoch.to_string();
    let batch = dp::ReportVerdictsRequest { proxy_id: "proxy-1".into(), verdicts, epoch };
    store.apply_verdicts(&batch).await.unwrap().results
}

async fn report_one(store: &Store, verdict: dp::Verdict) -> dp::Disposition {
    report(store, vec![verdict]).await[0].disposition()
}

/// The published status of a subject; active without a fence where there is none.
async fn status(store: &Store, subject: &Subject) -> pb::Status {
    let wanted = spareline_core::convert::subject_ref(subject);
    let found = store.load().await.unwrap().statuses;
    found.into_iter().find(|s| s.subject.as_ref() == Some(&wanted)).unwrap_or_default()
}

async fn head(store: &Store) -> i64 {
    store.head().await.unwrap().revision
}

async fn enabled_models(store: &Store, channel_id: i64) -> Vec<(String, bool)> {
    sqlx::query_as("SELECT model, enabled FROM abilities WHERE channel_id = $1 ORDER BY group_name, model")
        .bind(channel_id)
        .fetch_all(&store.registry)
        .await
        .unwrap()
}

async fn events(store: &Store) -> Vec<spareline_proto::admin::v1::Event> {
    store.events(&super::EventFilter::default(), 1000, "").await.unwrap().items
}
