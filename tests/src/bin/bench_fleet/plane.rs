//! The control plane under test, and what operators and proxies do to it.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use spareline_proto::{
    admin::v1::{
        self as admin, channel_admin_service_client::ChannelAdminServiceClient,
        fleet_service_client::FleetServiceClient,
    },
    dataplane::v1::{self as dp, report_service_client::ReportServiceClient},
    registry::v1 as pb,
};
use spareline_tests::{
    fleet::endpoint,
    process::memory_kib,
    stack::{Plan, Stack},
};
use tonic::transport::Channel as Link;

/// Creations at once.
const SEEDERS: usize = 8;

/// One key of the registry.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) channel: String,
    pub(crate) id: i64,
}

/// A control plane on its private Postgres.
pub(crate) struct Plane {
    pub(crate) stack: Stack,
    pub(crate) channels: ChannelAdminServiceClient<Link>,
    fleet: FleetServiceClient<Link>,
}

impl Plane {
    pub(crate) async fn start() -> Result<Self> {
        let stack = Stack::start(Plan { proxies: 0, embedded: true, ..Plan::default() }).await?;
        let (channels, fleet) = (stack.control.channels()?, stack.control.fleet()?);
        // However many keys die here in a few minutes is meant.
        let policy = pb::Policy {
            fleet: Some(pb::FleetPolicy { budget_min: Some(1_000_000), ..Default::default() }),
            ..Default::default()
        };
        let update_mask = Some(prost_types::FieldMask { paths: vec!["fleet.budget_min".to_owned()] });
        let request = admin::UpdatePolicyRequest { policy: Some(policy), update_mask, validate_only: false };
        stack.control.policies()?.update_policy(request).await?;
        Ok(Self { stack, channels, fleet })
    }

    /// Where proxies are served.
    pub(crate) fn data(&self) -> SocketAddr {
        self.stack.control.data
    }

    /// So many channels with so many models each; each has a key of its own.
    pub(crate) async fn seed(&self, channels: usize, models: usize) -> Result<Vec<Key>> {
        let create = |n: usize| {
            let mut client = self.channels.clone();
            let channel = line(n, models);
            async move {
                let request = admin::CreateChannelRequest {
                    secrets: vec![format!("sk-bench-{n:06}-0123456789abcdef0123456789abcdef")],
                    channel: Some(channel),
                    ..Default::default()
                };
                let created = client.create_channel(request).await?.into_inner().channel;
                let created = created.context("no channel in the answer")?;
                let id = *created.credential_ids.first().context("the channel has no key")?;
                anyhow::Ok(Key { channel: created.name, id })
            }
        };
        stream::iter(0..channels).map(create).buffered(SEEDERS).try_collect().await
    }

    /// The newest revision.
    pub(crate) async fn head(&mut self) -> Result<i64> {
        let summary = self.fleet.get_fleet_summary(admin::GetFleetSummaryRequest {}).await?;
        Ok(summary.into_inner().head_revision)
    }

    /// Enables a key again: the revision.
    pub(crate) async fn enable(&mut self, key: &Key) -> Result<i64> {
        let subject = admin::SubjectName {
            channel: key.channel.clone(),
            credential: Some(key.id.to_string()),
            model: None,
        };
        let request = admin::EnableSubjectRequest { subject: Some(subject), comment: String::new() };
        let enabled = self.channels.enable_subject(request).await?.into_inner();
        Ok(enabled.status.context("no status in the answer")?.revision)
    }

    /// Gives a channel another weight: the revision.
    pub(crate) async fn reweigh(
        mut client: ChannelAdminServiceClient<Link>,
        name: &str,
        weight: u32,
    ) -> Result<i64> {
        let channel = pb::Channel { name: name.to_owned(), weight: Some(weight), ..Default::default() };
        let update_mask = Some(prost_types::FieldMask { paths: vec!["weight".to_owned()] });
        let request =
            admin::UpdateChannelRequest { channel: Some(channel), update_mask, validate_only: false };
        let updated = client.update_channel(request).await?.into_inner();
        Ok(updated.channel.context("no channel in the answer")?.spec_revision)
    }

    /// Resident memory of the control plane's own process, in KiB.
    pub(crate) fn rss_kib(&self) -> Result<u64> {
        memory_kib(self.stack.control.process.pid()?, "VmRSS")
    }

    /// The most it ever was.
    pub(crate) fn peak_kib(&self) -> Result<u64> {
        memory_kib(self.stack.control.process.pid()?, "VmHWM")
    }

    /// CPU time of the control plane's own process so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let mut total = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.stack.control.process.pid()?))? {
            // A thread that has ended meanwhile is gone.
            let Ok(stat) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
            total += stat.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(total))
    }
}

/// "This key is dead", said by one proxy: what became of it, and how long that took, connecting included.
pub(crate) async fn condemn(
    to: SocketAddr,
    proxy: usize,
    key: i64,
    seen: &dp::Position,
) -> Result<(dp::VerdictResult, Duration)> {
    let verdict = dp::Verdict {
        verdict_id: uuid::Uuid::now_v7().to_string(),
        subject: Some(pb::Subject { kind: Some(pb::subject::Kind::CredentialId(key)) }),
        cause: pb::Cause::Credential.into(),
        observed_revision: seen.revision,
        evidence: Some(pb::Evidence {
            http_status: 401,
            provider_code: "invalid_api_key".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = dp::ReportVerdictsRequest {
        proxy_id: format!("bench-{proxy}"),
        verdicts: vec![verdict],
        epoch: seen.epoch.clone(),
    };
    let start = Instant::now();
    let mut client = ReportServiceClient::new(endpoint(to)?.connect_lazy());
    let result = client.report_verdicts(request).await?.into_inner().results.pop();
    Ok((result.context("no result")?, start.elapsed()))
}

fn line(n: usize, models: usize) -> pb::Channel {
    let model = |m: usize| pb::ModelEntry {
        model: format!("model-{:05}", (n * 7 + m * 131) % 20_000),
        ..Default::default()
    };
    pb::Channel {
        name: format!("line-{n:05}"),
        provider: "openai_compatible".to_owned(),
        // Nobody listens: what a probe finds there changes nothing.
        base_url: format!("http://127.0.0.1:9/{n}/v1"),
        models: (0..models).map(model).collect(),
        ..Default::default()
    }
}
