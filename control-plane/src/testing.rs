//! What the tests of several modules need: a registry in a throwaway database, and short ways to change it.

use std::sync::Arc;
use std::time::Duration;

use spareline_core::{Revision, Subject};
use spareline_proto::registry::v1 as pb;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::postgres::TestDatabase;
use crate::prober::Prober;
use crate::store::{ChannelKey, Store, StoreError};
use crate::world::{self, World, Worlds};

/// A database, a store on it, and a world that follows it until this is dropped.
pub(crate) struct Registry {
    pub(crate) database: TestDatabase,
    pub(crate) store: Store,
    pub(crate) worlds: Worlds,
    _stop: DropGuard,
}

impl Registry {
    pub(crate) async fn new() -> Self {
        let database = TestDatabase::new().await.unwrap();
        Self::replica(database).await
    }

    /// Another control plane over the same database.
    pub(crate) async fn replica(database: TestDatabase) -> Self {
        let store = database.store().await.unwrap();
        let (publisher, worlds) = world::channel();
        let stop = CancellationToken::new();
        tokio::spawn(world::follow(store.clone(), publisher, stop.clone()));
        worlds.ready().await.unwrap();
        Self { database, store, worlds, _stop: stop.drop_guard() }
    }

    /// A prober of this registry that nobody runs yet.
    pub(crate) fn prober(&self) -> Arc<Prober> {
        Prober::new(self.store.clone(), self.worlds.clone())
    }

    /// A channel `name` at `base_url` for `models`, in group `default`, with new keys.
    pub(crate) async fn channel(
        &self,
        name: &str,
        base_url: &str,
        models: &[&str],
        keys: &[&str],
    ) -> pb::Channel {
        let channel = pb::Channel {
            name: name.into(),
            provider: "openai_compatible".into(),
            base_url: base_url.into(),
            groups: vec!["default".into()],
            models: models
                .iter()
                .map(|m| pb::ModelEntry { model: (*m).into(), ..Default::default() })
                .collect(),
            ..Default::default()
        };
        self.create(channel, keys).await
    }

    pub(crate) async fn create(&self, channel: pb::Channel, keys: &[&str]) -> pb::Channel {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let work = self.store.write::<_, StoreError>("test", move |tx| {
            Box::pin(async move { tx.create_channel(channel, &keys).await })
        });
        let written = work.await.unwrap();
        self.reached(written.revision).await;
        written.value
    }

    pub(crate) async fn delete(&self, name: &str) -> i64 {
        let key = ChannelKey::from(name);
        let work = self.store.write::<_, StoreError>("test", move |tx| {
            Box::pin(async move { tx.delete_channel(&key, "").await })
        });
        work.await.unwrap().revision
    }

    pub(crate) async fn enable(&self, subject: &Subject) -> i64 {
        let subject = subject.clone();
        let work = self
            .store
            .write::<_, StoreError>("test", move |tx| Box::pin(async move { tx.enable(&subject, "").await }));
        work.await.unwrap().revision
    }

    pub(crate) async fn disable(&self, subject: &Subject) -> i64 {
        let subject = subject.clone();
        let work = self.store.write::<_, StoreError>("test", move |tx| {
            Box::pin(async move { tx.disable(&subject, "by hand").await })
        });
        work.await.unwrap().revision
    }

    pub(crate) async fn policy(&self, policy: pb::Policy) -> i64 {
        let work = self
            .store
            .write::<_, StoreError>("test", move |tx| Box::pin(async move { tx.put_policy(policy).await }));
        work.await.unwrap().revision
    }

    /// The world at this revision or later.
    pub(crate) async fn reached(&self, revision: i64) -> Arc<World> {
        let world = self.worlds.at_least(Revision(revision), Duration::from_secs(10)).await;
        world.unwrap_or_else(|| panic!("the world never reached revision {revision}"))
    }

    /// Waits until the world shows what is asked for.
    pub(crate) async fn shows(&self, what: &str, holds: impl Fn(&World) -> bool) -> Arc<World> {
        let mut worlds = self.worlds.subscribe();
        let wanted = worlds.wait_for(|w| w.as_ref().is_some_and(|w| holds(w)));
        match tokio::time::timeout(Duration::from_secs(15), wanted).await {
            Ok(Ok(world)) => world.clone().unwrap(),
            _ => panic!("the world never showed: {what}"),
        }
    }
}

/// Whether a subject is out in a world, and why.
pub(crate) fn cause(world: &World, subject: &Subject) -> Option<pb::Cause> {
    let status = spareline_core::derive::out(&world.items, subject, &std::time::SystemTime::now().into());
    status.map(|status| status.cause())
}
