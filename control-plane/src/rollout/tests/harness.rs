//! One channel, its rollouts, and proxies that are rows in the database.

use std::collections::BTreeMap;

use spareline_core::ChannelId;
use spareline_proto::admin::v1::rollout_service_server::RolloutService as _;
use spareline_proto::admin::v1::*;
use spareline_proto::dataplane::v1 as dp;
use spareline_proto::registry::v1 as pb;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};
use uuid::Uuid;

use crate::admin::Rollouts;
use crate::rollout::controller::round;
use crate::store::{EventFilter, ProxyRow};
use crate::testing::Registry;
use crate::world::{GroupSet, Viewer};

/// A registry with one channel, and a fleet of rows.
pub(super) struct Story {
    pub(super) registry: Registry,
    pub(super) rollouts: Rollouts,
    pub(super) channel: pb::Channel,
    pub(super) fleet: BTreeMap<String, ProxyRow>,
}

impl Story {
    pub(super) async fn new(proxies: usize) -> Self {
        let registry = Registry::new().await;
        let channel = registry.channel("one", "http://127.0.0.1:9/v1", &["m"], &["sk-test-1"]).await;
        let rollouts = Rollouts::new(registry.store.clone(), CancellationToken::new());
        let mut story = Self { registry, rollouts, channel, fleet: BTreeMap::new() };
        for i in 0..proxies {
            story.connect(&format!("proxy-{i}"), &[]).await;
        }
        story
    }

    pub(super) async fn connect(&mut self, id: &str, labels: &[(&str, &str)]) {
        let node = dp::Node {
            proxy_id: id.into(),
            instance_id: "i".into(),
            groups: vec!["default".into()],
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Default::default()
        };
        let row = ProxyRow {
            node,
            session_id: Some(Uuid::now_v7()),
            replica_id: "r".into(),
            applied: None,
            rejections: Vec::new(),
            last_seen_at: OffsetDateTime::UNIX_EPOCH,
        };
        self.registry.store.open_sessions(std::slice::from_ref(&row)).await.unwrap();
        self.fleet.insert(id.to_owned(), row);
    }

    /// Every proxy acknowledges its view as it is now.
    pub(super) async fn ack(&mut self) {
        let head = self.registry.store.head().await.unwrap();
        let world = self.registry.reached(head.revision).await;
        for row in self.fleet.values_mut() {
            let groups = GroupSet::new(&row.node.groups);
            let viewer = Viewer { groups: &groups, proxy_id: &row.node.proxy_id, labels: &row.node.labels };
            let digest = self.registry.worlds.view(&viewer, &world).digest();
            row.applied =
                Some(dp::Position { epoch: world.epoch.to_string(), revision: world.revision.0, digest });
        }
        let rows: Vec<ProxyRow> = self.fleet.values().cloned().collect();
        self.registry.store.put_proxies(&rows).await.unwrap();
    }

    /// The base URL that each proxy is shown, and its digest.
    pub(super) async fn seen(&self) -> BTreeMap<String, (String, u64)> {
        let head = self.registry.store.head().await.unwrap();
        let world = self.registry.reached(head.revision).await;
        let of = |row: &ProxyRow| {
            let groups = GroupSet::new(&row.node.groups);
            let viewer = Viewer { groups: &groups, proxy_id: &row.node.proxy_id, labels: &row.node.labels };
            let items = self.registry.worlds.view(&viewer, &world);
            let channel = items.channel(ChannelId(self.channel.channel_id));
            (channel.map_or_else(String::new, |c| c.base_url.clone()), items.digest())
        };
        self.fleet.iter().map(|(id, row)| (id.clone(), of(row))).collect()
    }

    pub(super) async fn on(&self, base_url: &str) -> usize {
        self.seen().await.values().filter(|(url, _)| url == base_url).count()
    }

    pub(super) async fn digests(&self) -> std::collections::BTreeSet<u64> {
        self.seen().await.into_values().map(|(_, digest)| digest).collect()
    }

    pub(super) fn moved(&self) -> pb::Channel {
        pb::Channel { base_url: NEW.into(), ..self.channel.clone() }
    }

    pub(super) async fn start(&self, candidate: pb::Channel, stages: Vec<Stage>) -> Result<Rollout, Status> {
        let change = Change { kind: Some(change::Kind::Upsert(candidate)), update_mask: None };
        let rollout =
            Rollout { changes: vec![change], stages, comment: "try it".into(), ..Default::default() };
        let request = CreateRolloutRequest { rollout: Some(rollout), ..Default::default() };
        let answer = self.rollouts.create_rollout(Request::new(request)).await?.into_inner();
        Ok(answer.rollout.unwrap())
    }

    pub(super) async fn get(&self, rollout: &Rollout) -> Rollout {
        let request = GetRolloutRequest { rollout_id: rollout.rollout_id.clone() };
        self.rollouts.get_rollout(Request::new(request)).await.unwrap().into_inner().rollout.unwrap()
    }

    pub(super) async fn abort(&self, rollout: &Rollout) -> Rollout {
        let request = AbortRolloutRequest { rollout_id: rollout.rollout_id.clone(), comment: "no".into() };
        self.rollouts.abort_rollout(Request::new(request)).await.unwrap().into_inner().rollout.unwrap()
    }

    pub(super) async fn round(&self) {
        round(&self.registry.store, "me").await.unwrap();
    }

    pub(super) async fn kinds(&self) -> Vec<String> {
        let page = self.registry.store.events(&EventFilter::default(), 1000, "").await.unwrap();
        let mut kinds: Vec<String> = page.items.into_iter().map(|e| e.kind).collect();
        kinds.reverse();
        kinds
    }

    pub(super) async fn verdict(
        &self,
        subject: pb::subject::Kind,
        cause: pb::Cause,
        spec: i64,
    ) -> dp::Disposition {
        let world = self.registry.worlds.current().unwrap();
        let verdict = dp::Verdict {
            verdict_id: Uuid::now_v7().to_string(),
            subject: Some(pb::Subject { kind: Some(subject) }),
            cause: cause.into(),
            observed_revision: world.revision.0,
            spec_revision: spec,
            ..Default::default()
        };
        let batch = dp::ReportVerdictsRequest {
            proxy_id: "proxy-7".into(),
            verdicts: vec![verdict],
            epoch: world.epoch.to_string(),
        };
        let answer = self.registry.store.apply_verdicts(&batch).await.unwrap();
        answer.results[0].disposition()
    }

    pub(super) async fn tally(&self, successes: u32, failures: u32, spec: i64) {
        let world = self.registry.worlds.current().unwrap();
        let kind = pb::subject::Kind::Ability(pb::AbilityRef {
            channel_id: self.channel.channel_id,
            model: "m".into(),
            credential_id: None,
        });
        let tally = dp::HealthTally {
            subject: Some(pb::Subject { kind: Some(kind) }),
            successes,
            failures,
            trailing_failures: if successes > 0 { 0 } else { failures },
            observed_revision: world.revision.0,
            spec_revision: spec,
        };
        let batch = dp::ReportHealthRequest {
            proxy_id: "proxy-7".into(),
            batch_id: Uuid::now_v7().to_string(),
            tallies: vec![tally],
            epoch: world.epoch.to_string(),
        };
        self.registry.store.report_health(&batch).await.unwrap();
    }
}

pub(super) const OLD: &str = "http://127.0.0.1:9/v1";
pub(super) const NEW: &str = "http://127.0.0.1:10/v1";

pub(super) fn stage(percent: i32) -> Stage {
    Stage { percent, ..Default::default() }
}

pub(super) fn candidate(rollout: &Rollout) -> pb::Channel {
    match rollout.changes[0].kind.clone().unwrap() {
        change::Kind::Upsert(channel) => channel,
        other => panic!("{other:?}"),
    }
}
