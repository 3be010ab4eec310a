//! All proxies, from the database's rows and this replica's own sessions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use spareline_proto::admin::v1 as pb;
use spareline_proto::dataplane::v1 as dp;
use time::OffsetDateTime;
use xxhash_rust::xxh3::xxh3_64;

use crate::store::{ProxyRow, timestamp};
use crate::watch::LocalSession;
use crate::world::{GroupSet, Viewer, World, Worlds};

/// Everything known of the fleet at one moment.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) entries: Vec<Entry>,
}

/// One proxy.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// For readers.
    pub(super) proxy: pb::Proxy,
    /// It serves exactly what it should.
    pub(super) current: bool,
    /// The revision up to which it did so when it last said so; known only of this replica's sessions.
    pub(super) agrees_at: Option<i64>,
    /// It is one of this replica's sessions.
    pub(super) local: bool,
    /// Order of opening among this replica's sessions.
    pub(super) opened: u64,
}

impl Roster {
    pub(super) fn new(
        rows: Vec<ProxyRow>,
        now: OffsetDateTime,
        sessions: Vec<LocalSession>,
        replica_id: &str,
        world: Option<Arc<World>>,
        worlds: &Worlds,
    ) -> Self {
        let mut wanted = Wanted { world, worlds, known: HashMap::new() };
        let mut entries: Vec<_> = sessions
            .iter()
            .map(|s| {
                let proxy = pb::Proxy {
                    node: Some((*s.node).clone()),
                    connected: true,
                    replica_id: replica_id.to_owned(),
                    applied: s.applied.clone(),
                    wanted: wanted.of(&s.groups, &s.node),
                    rejections: s.rejections.to_vec(),
                    last_seen_time: Some(timestamp(now)),
                    rollout_ids: wanted.rollouts(&s.node),
                };
                Entry::new(proxy, s.agrees_at, true, s.opened)
            })
            .collect();
        let here: HashSet<_> = sessions.iter().map(|s| s.session_id).collect();
        let ids: HashSet<_> = sessions.iter().map(|s| s.node.proxy_id.as_str()).collect();
        for row in rows {
            let live = row.is_connected(now);
            // Our own sessions are known better; a row that is not live is an older account of one of ours, and one
            // that names us is of a session that has ended.
            let known = ids.contains(row.node.proxy_id.as_str());
            let ours = row.replica_id == replica_id;
            if row.session_id.is_some_and(|id| here.contains(&id)) || (known && (!live || ours)) {
                continue;
            }
            let connected = live && !ours;
            let groups = GroupSet::new(&row.node.groups);
            let proxy = pb::Proxy {
                connected,
                replica_id: if connected { row.replica_id } else { String::new() },
                applied: row.applied,
                wanted: wanted.of(&groups, &row.node),
                rejections: row.rejections,
                last_seen_time: Some(timestamp(row.last_seen_at)),
                rollout_ids: wanted.rollouts(&row.node),
                node: Some(row.node),
            };
            entries.push(Entry::new(proxy, None, false, 0));
        }
        Self { entries }
    }
}

impl Entry {
    fn new(proxy: pb::Proxy, agrees_at: Option<i64>, local: bool, opened: u64) -> Self {
        let current = match (&proxy.applied, &proxy.wanted) {
            (Some(applied), Some(wanted)) => applied.epoch == wanted.epoch && applied.digest == wanted.digest,
            _ => false,
        };
        Self { proxy, current, agrees_at, local, opened }
    }

    pub(super) fn proxy_id(&self) -> &str {
        self.proxy.node.as_ref().map_or("", |n| n.proxy_id.as_str())
    }

    pub(super) fn applied_revision(&self) -> i64 {
        self.proxy.applied.as_ref().map_or(0, |p| p.revision)
    }

    /// Least up to date first; then by name.
    pub(super) fn order(&self) -> (i64, String, String) {
        let node = self.proxy.node.as_ref();
        let text = |f: fn(&dp::Node) -> &String| node.map_or_else(String::new, |n| f(n).clone());
        (self.applied_revision(), text(|n| &n.proxy_id), text(|n| &n.instance_id))
    }
}

/// What each set of groups should serve, by cohort.
struct Wanted<'a> {
    world: Option<Arc<World>>,
    worlds: &'a Worlds,
    known: HashMap<(GroupSet, Arc<[i64]>), dp::Position>,
}

impl Wanted<'_> {
    fn of(&mut self, groups: &GroupSet, node: &dp::Node) -> Option<dp::Position> {
        let world = self.world.clone()?;
        let viewer = Viewer { groups, proxy_id: &node.proxy_id, labels: &node.labels };
        let key = (groups.clone(), world.cohort(&node.proxy_id, &node.labels));
        let position = self.known.entry(key).or_insert_with(|| dp::Position {
            epoch: world.epoch.to_string(),
            revision: world.revision.0,
            digest: self.worlds.view(&viewer, &world).digest(),
        });
        Some(position.clone())
    }

    /// The rollouts whose cohort a proxy is in.
    fn rollouts(&self, node: &dp::Node) -> Vec<String> {
        let cohort = self.world.as_ref().map(|world| world.cohort(&node.proxy_id, &node.labels));
        cohort.iter().flat_map(|ids| ids.iter()).map(i64::to_string).collect()
    }
}

/// Where the next page starts.
pub(super) fn token((revision, proxy_id, instance_id): &(i64, String, String), filter: &str) -> String {
    format!("{:016x}.{revision}.{}.{proxy_id}.{instance_id}", xxh3_64(filter.as_bytes()), proxy_id.len())
}

/// Reads a token; `None` where it is none, or one of another filter.
pub(super) fn read_token(token: &str, filter: &str) -> Option<(i64, String, String)> {
    let mut parts = token.splitn(4, '.');
    let hash = u64::from_str_radix(parts.next()?, 16).ok()?;
    let revision = parts.next()?.parse().ok()?;
    let length: usize = parts.next()?.parse().ok()?;
    let rest = parts.next()?;
    let (proxy_id, instance_id) = (rest.get(..length)?, rest.get(length..)?.strip_prefix('.')?);
    (hash == xxh3_64(filter.as_bytes())).then(|| (revision, proxy_id.to_owned(), instance_id.to_owned()))
}
