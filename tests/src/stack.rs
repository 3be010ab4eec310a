//! The whole product on free ports: a control plane on a private Postgres, proxies, a scriptable provider.

mod control;
mod proxy;

use std::{
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use spareline_control::postgres::TestDatabase;
use spareline_proto::{admin::v1 as admin, registry::v1 as registry};
use tempfile::TempDir;

pub use self::{control::Control, proxy::Proxy};
use crate::{
    http::{Call, Reply},
    process::START_LIMIT,
    provider::Provider,
};

/// What must happen "at once" gets so long on a busy machine before a test gives up.
pub const SOON: Duration = Duration::from_secs(20);

/// What to start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many proxies.
    pub proxies: usize,
    /// Run on the control plane's own embedded Postgres, which dies with it, rather than on a throwaway database.
    pub embedded: bool,
    /// More arguments for the control plane.
    pub control: Vec<String>,
    /// More arguments for every proxy.
    pub proxy: Vec<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self { proxies: 1, embedded: false, control: Vec::new(), proxy: Vec::new() }
    }
}

/// A running stack; everything ends when it is dropped.
pub struct Stack {
    /// The sidecars, `proxy-1` first.
    pub proxies: Vec<Proxy>,
    /// The control plane.
    pub control: Control,
    /// The upstream of every channel.
    pub provider: Provider,
    directory: TempDir,
    database: Option<TestDatabase>,
}

impl Stack {
    /// Starts one as planned, and returns once every proxy serves the empty registry.
    ///
    /// # Errors
    /// When something does not start; the message has the end of its log.
    pub async fn start(plan: Plan) -> Result<Self> {
        let directory = directory()?;
        let provider = Provider::start().await?;
        let database = if plan.embedded { None } else { Some(TestDatabase::new().await?) };
        let place = match &database {
            Some(database) => ["--database-url".to_owned(), database.url.clone()],
            None => ["--state-dir".to_owned(), path(&directory.path().join("control"))?],
        };
        let control = Control::start("control", plan.control.iter().cloned().chain(place)).await?;
        let mut stack = Self { proxies: Vec::new(), control, provider, directory, database };
        for n in 1..=plan.proxies {
            let proxy = Proxy::start(&format!("proxy-{n}"), stack.control.data, &plan.proxy).await?;
            stack.proxies.push(proxy);
        }
        stack.settled().await?;
        Ok(stack)
    }

    /// One proxy and its control plane.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn small() -> Result<Self> {
        Self::start(Plan::default()).await
    }

    /// A folder that lives as long as the stack.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The throwaway database under the control plane.
    ///
    /// # Errors
    /// When the plan asked for the embedded one.
    pub fn database(&self) -> Result<&TestDatabase> {
        self.database.as_ref().context("this stack runs on its embedded database")
    }

    /// Where the first proxy serves callers.
    ///
    /// # Errors
    /// When the plan had none.
    pub fn http(&self) -> Result<SocketAddr> {
        Ok(self.proxies.first().context("the stack has no proxy")?.http)
    }

    /// Sends a call through the first proxy.
    ///
    /// # Errors
    /// As [`Call::send`].
    pub async fn send(&self, call: &Call) -> Result<Reply> {
        call.send(self.http()?).await
    }

    /// A channel to this stack's provider, as [`Provider::channel`].
    pub fn channel(&self, name: &str, model: &str) -> registry::Channel {
        self.provider.channel(name, model)
    }

    /// As [`Self::channel`], with limits of `limit` on each attempt.
    pub fn quick_channel(&self, name: &str, model: &str, limit: Duration) -> registry::Channel {
        let limit = prost_types::Duration::try_from(limit).ok();
        let attempt_policy = Some(registry::AttemptPolicy {
            connect_timeout: limit,
            first_content_timeout: limit,
            response_timeout: limit,
            idle_timeout: limit,
            write_timeout: None,
        });
        registry::Channel { attempt_policy, ..self.channel(name, model) }
    }

    /// Creates a channel, as [`Control::create`].
    ///
    /// # Errors
    /// When the control plane refuses.
    pub async fn create(&self, channel: registry::Channel, secrets: &[&str]) -> Result<registry::Channel> {
        self.control.create(channel, secrets).await
    }

    /// Returns once every proxy is connected and serves the newest revision.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn settled(&self) -> Result<i64> {
        let start = Instant::now();
        let proxies = self.proxies.len();
        loop {
            let mut fleet = self.control.fleet()?;
            let summary = fleet.get_fleet_summary(admin::GetFleetSummaryRequest {}).await?.into_inner();
            let revision = summary.head_revision;
            if usize::try_from(summary.connected)? >= proxies {
                let timeout = Some(prost_types::Duration { seconds: 5, nanos: 0 });
                let wait = admin::WaitForRevisionRequest { revision, timeout };
                if fleet.wait_for_revision(wait).await?.into_inner().reached {
                    return Ok(revision);
                }
            }
            ensure!(
                start.elapsed() < START_LIMIT,
                "the fleet does not settle: {summary:?}, {proxies} proxies"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How a channel looks to an operator.
    ///
    /// # Errors
    /// When there is no such channel.
    pub async fn view(&self, channel: &str) -> Result<admin::ChannelView> {
        let request = admin::GetChannelRequest { channel: channel.to_owned() };
        self.control
            .channels()?
            .get_channel(request)
            .await?
            .into_inner()
            .channel
            .context("no view in the answer")
    }

    /// Waits until a channel looks as wanted to an operator.
    ///
    /// # Errors
    /// When that does not happen soon; with how it looks instead.
    pub async fn wait_for_view(
        &self,
        channel: &str,
        limit: Duration,
        wanted: impl Fn(&admin::ChannelView) -> bool,
    ) -> Result<admin::ChannelView> {
        let start = Instant::now();
        loop {
            let view = self.view(channel).await?;
            if wanted(&view) {
                return Ok(view);
            }
            ensure!(
                start.elapsed() < limit,
                "{channel} does not become as wanted within {limit:?}: {view:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a call through a proxy, which must be answered 200 every time, until an answer is as wanted.
    ///
    /// # Errors
    /// At any other status, and when 40 answers were not as wanted.
    pub async fn until(&self, proxy: usize, call: &Call, wanted: impl Fn(&Reply) -> bool) -> Result<Reply> {
        let to = self.proxies.get(proxy).context("no such proxy")?.http;
        let mut seen = Vec::new();
        for _ in 0..40 {
            let reply = call.send(to).await?;
            ensure!(reply.status == 200, "{}: {} [{}]", reply.status, reply.text(), reply.attempts());
            if wanted(&reply) {
                return Ok(reply);
            }
            seen.push(reply.attempts().to_owned());
        }
        anyhow::bail!("none of 40 answers was as wanted: {seen:?}")
    }

    /// Every word any process of the stack has logged.
    pub fn all_logs(&self) -> String {
        self.proxies.iter().map(|p| p.process.log_text()).chain([self.control.process.log_text()]).collect()
    }
}

/// A folder with a short path that the database's unprivileged user may enter.
pub(crate) fn directory() -> Result<TempDir> {
    let directory = tempfile::Builder::new().prefix("spareline-").tempdir()?;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711))?;
    Ok(directory)
}

fn path(path: &Path) -> Result<String> {
    PathBuf::from(path).into_os_string().into_string().ok().context("a path that is not UTF-8")
}
