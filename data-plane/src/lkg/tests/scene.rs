//! A directory, and proxies that come and go there.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use figment::{Figment, providers::Format as _};
use spareline_core::{
    Revision,
    items::{Item, Items},
    view::Clock,
};
use spareline_proto::registry::v1 as pb;

use super::super::{
    disk::{Disk, Files},
    restore::Keeper,
};
use crate::{
    config::Config,
    log::{Logger, Sink},
    state::Shared,
};

pub(super) const SECRET: &str = "sk-canary-0123456789";

pub(super) fn shared(dir: &Path, groups: &str) -> Arc<Shared> {
    let toml = format!("proxy_id = 'test'\nstate_dir = '{}'\ngroups = '{groups}'", dir.display());
    let config = Config::from_figment(Figment::new().merge(figment::providers::Toml::string(&toml))).unwrap();
    let (sink, _guard) = Sink::start(Box::new(io::sink()));
    Arc::new(Shared::new(config, Logger::new(sink, true, false)))
}

/// As many channels as the revision says.
pub(super) fn items(revision: i64) -> Items {
    let credential =
        pb::Credential { credential_id: 1, secret: SECRET.into(), fingerprint: "6789".into(), revision: 1 };
    let channel = |id| {
        let models = vec![pb::ModelEntry { model: "m".into(), ..Default::default() }];
        Item::Channel(Arc::new(pb::Channel {
            channel_id: id,
            name: format!("c{id}"),
            provider: "openai_compatible".into(),
            base_url: "http://127.0.0.1:9/v1".into(),
            models,
            credential_ids: vec![1],
            spec_revision: revision,
            ..Default::default()
        }))
    };
    (1..=revision).map(channel).chain([Item::Credential(Arc::new(credential))]).collect()
}

pub(super) fn publish(shared: &Shared, items: &Items, revision: i64) {
    let clock = Clock { server_time: Some(SystemTime::now().into()), now: shared.now() };
    let (view, rejections) = shared.view().replace(items, "e", Revision(revision), clock);
    assert!(rejections.is_empty(), "{rejections:?}");
    shared.publish(Arc::new(view));
    shared.confirm();
}

pub(super) fn keeper(dir: &Path) -> Keeper {
    Keeper::open(dir, None, Box::new(Files)).unwrap()
}

/// A proxy that wrote these revisions, one after the other.
pub(super) fn written(dir: &Path, revisions: &[i64]) -> Arc<Shared> {
    let shared = shared(dir, "default");
    let mut keeper = keeper(dir);
    keeper.restore(&shared);
    for revision in revisions {
        publish(&shared, &items(*revision), *revision);
        keeper.write_view(&shared).unwrap();
    }
    keeper.guard.settled();
    shared
}

/// A proxy that starts there; what it serves, and what it could not use.
pub(super) fn started(dir: &Path) -> (Arc<Shared>, Keeper) {
    let shared = shared(dir, "default");
    let mut keeper = keeper(dir);
    keeper.restore(&shared);
    (shared, keeper)
}

/// It serves exactly that revision, and all of it.
pub(super) fn serves(shared: &Shared, revision: i64) {
    assert!(shared.is_ready());
    let view = shared.view();
    assert_eq!(view.revision(), Revision(revision));
    let wanted = items(revision);
    assert_eq!(view.items().digest(), wanted.digest());
    let (have, want): (Vec<_>, Vec<_>) = (view.items().channels().collect(), wanted.channels().collect());
    assert_eq!(have, want);
    assert_eq!(view.lines().count(), usize::try_from(revision).unwrap());
    assert!(view.lines().all(|line| line.keys[0].secret.expose() == SECRET));
}

pub(super) fn newest(dir: &Path) -> PathBuf {
    let sequence = |path: &Path| {
        let bytes = std::fs::read(path).ok()?;
        Some(u64::from_le_bytes(bytes.get(12..20)?.try_into().ok()?))
    };
    let [a, b] = ["registry.a.lkg", "registry.b.lkg"].map(|name| dir.join(name));
    if sequence(&a) > sequence(&b) { a } else { b }
}

/// A disk that takes half of everything while it is full.
#[derive(Clone, Debug, Default)]
pub(super) struct Full(pub(super) Arc<AtomicBool>);

impl Disk for Full {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            Files.write(path, &bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Files.write(path, bytes)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        Files.replace(from, to)
    }
}

pub(super) fn ago(seconds: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(seconds)
}
