//! A control plane's process, and its APIs.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use spareline_proto::{
    admin::v1::{
        self as admin, channel_admin_service_client::ChannelAdminServiceClient,
        fleet_service_client::FleetServiceClient, policy_admin_service_client::PolicyAdminServiceClient,
    },
    dataplane::v1::{
        registry_watch_service_client::RegistryWatchServiceClient, report_service_client::ReportServiceClient,
    },
    registry::v1 as registry,
};
use tonic::transport::{Channel as Link, Endpoint};

use super::{SOON, path};
use crate::{
    http::{Call, Reply},
    process::{Launch, Process},
    tools::Grpcurl,
};

/// A control plane.
pub struct Control {
    /// The process.
    pub process: Process,
    /// Where operators are served.
    pub admin: SocketAddr,
    /// Where proxies are served.
    pub data: SocketAddr,
    launch: Launch,
}

impl Control {
    /// Starts one on free ports with these arguments besides, and returns once it listens.
    ///
    /// # Errors
    /// When it does not.
    pub async fn start(name: &str, arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let launch = Launch::product(name, "spareline-control")?
            .arguments(["--log-format", "json"])
            .arguments(arguments);
        let free = ["--admin-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0"];
        let process = launch.clone().arguments(free).spawn()?;
        let admin = process.listening("admin_addr").await?;
        let data = process.listening("data_addr").await?;
        let fixed =
            ["--admin-listen".to_owned(), admin.to_string(), "--data-listen".to_owned(), data.to_string()];
        Ok(Self { process, admin, data, launch: launch.arguments(fixed) })
    }

    /// Ends it as a crash would.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn crash(&mut self) -> Result<()> {
        self.process.kill().await
    }

    /// Starts it again where it was.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&mut self) -> Result<()> {
        self.respawn()?;
        self.process.listening("admin_addr").await?;
        Ok(())
    }

    /// The same without waiting for it.
    ///
    /// # Errors
    /// When the program is not there.
    pub fn respawn(&mut self) -> Result<()> {
        self.process = self.launch.spawn()?;
        Ok(())
    }

    /// A page of its admin port, such as `/metrics`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn page(&self, path: &str) -> Result<Reply> {
        Call::get(path).send(self.admin).await
    }

    /// The value of one of its metrics.
    ///
    /// # Errors
    /// When it does not answer, or has no such metric.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = self.page("/metrics").await?.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.with_context(|| format!("no metric {name} in {text}"))?.parse()?)
    }

    /// The real grpcurl on the admin port.
    pub const fn grpcurl(&self) -> Grpcurl {
        Grpcurl(self.admin)
    }

    /// The operator's API to channels.
    ///
    /// # Errors
    /// Never for an address of ours.
    pub fn channels(&self) -> Result<ChannelAdminServiceClient<Link>> {
        Ok(ChannelAdminServiceClient::new(link(self.admin)?))
    }

    /// The operator's API to policies.
    ///
    /// # Errors
    /// Never for an address of ours.
    pub fn policies(&self) -> Result<PolicyAdminServiceClient<Link>> {
        Ok(PolicyAdminServiceClient::new(link(self.admin)?))
    }

    /// The operator's API to the fleet.
    ///
    /// # Errors
    /// Never for an address of ours.
    pub fn fleet(&self) -> Result<FleetServiceClient<Link>> {
        Ok(FleetServiceClient::new(link(self.admin)?))
    }

    /// What proxies report to.
    ///
    /// # Errors
    /// Never for an address of ours.
    pub fn reports(&self) -> Result<ReportServiceClient<Link>> {
        Ok(ReportServiceClient::new(link(self.data)?))
    }

    /// What proxies watch.
    ///
    /// # Errors
    /// Never for an address of ours.
    pub fn watch(&self) -> Result<RegistryWatchServiceClient<Link>> {
        Ok(RegistryWatchServiceClient::new(link(self.data)?))
    }

    /// Creates a channel with secrets, and returns it as stored.
    ///
    /// # Errors
    /// When the control plane refuses.
    pub async fn create(&self, channel: registry::Channel, secrets: &[&str]) -> Result<registry::Channel> {
        let name = channel.name.clone();
        let request = admin::CreateChannelRequest {
            channel: Some(channel),
            secrets: secrets.iter().map(|&s| s.to_owned()).collect(),
            ..Default::default()
        };
        let created = self.channels()?.create_channel(request).await;
        created
            .with_context(|| format!("create {name}"))?
            .into_inner()
            .channel
            .context("no channel in the answer")
    }

    /// `spareline-control apply` of a file, with these flags: its exit code and all it printed.
    ///
    /// # Errors
    /// When it hangs.
    pub async fn apply(
        &self,
        file: &Path,
        flags: &[&str],
        secrets: &[(&str, &str)],
    ) -> Result<(bool, String)> {
        let admin = format!("http://{}", self.admin);
        let mut launch = Launch::product("apply", "spareline-control")?;
        launch = launch.arguments(["apply", "--admin", &admin]).arguments(flags).arguments([path(file)?]);
        launch.environment = secrets.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        let (status, text) = launch.run(SOON).await?;
        Ok((status.success(), text))
    }
}

fn link(to: SocketAddr) -> Result<Link> {
    Ok(Endpoint::from_shared(format!("http://{to}"))?.timeout(Duration::from_secs(60)).connect_lazy())
}
