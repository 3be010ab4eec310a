//! Everything that runs over the store, and what each listener serves.

use std::sync::Arc;
use std::time::Duration;

use spareline_proto::admin::v1::channel_admin_service_server::ChannelAdminServiceServer;
use spareline_proto::admin::v1::fleet_service_server::FleetServiceServer;
use spareline_proto::admin::v1::policy_admin_service_server::PolicyAdminServiceServer;
use spareline_proto::admin::v1::rollout_service_server::RolloutServiceServer;
use spareline_proto::dataplane::v1::registry_watch_service_server::RegistryWatchServiceServer;
use spareline_proto::dataplane::v1::report_service_server::ReportServiceServer;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::AppError;
use super::gate::Gate;
use crate::admin::{Admin, Probing, Rollouts};
use crate::fleet::FleetService;
use crate::metrics::Metrics;
use crate::prober::Prober;
use crate::report::ReportService;
use crate::rollout::control;
use crate::store::Store;
use crate::watch::{Presence, WatchService};
use crate::world::{self, follow};

/// Largest message that operators may send: a channel with a CA bundle and thousands of models fits.
const ADMIN_MESSAGE: usize = 8 << 20;
/// What operators are served.
const OPERATORS: [&str; 4] = [
    ChannelAdminServiceServer::<Admin>::NAME,
    PolicyAdminServiceServer::<Admin>::NAME,
    FleetServiceServer::<FleetService>::NAME,
    RolloutServiceServer::<Rollouts>::NAME,
];
/// How often the database is asked for a sign of life.
const PING: Duration = Duration::from_secs(2);
/// How long it may take.
const ANSWER: Duration = Duration::from_secs(3);

/// What serves and works until it is told to stop.
pub(super) struct Services {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    watch: WatchService,
    health: [HealthReporter; 2],
}

impl Services {
    /// Starts all of it and opens both gates. The first world is loaded before, so that nobody is told of an empty one.
    pub(super) async fn start(
        replica: String,
        store: Store,
        [admin_gate, data_gate]: [Gate; 2],
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> Result<Option<Self>, AppError> {
        let stop = stop.child_token();
        let (publisher, worlds) = world::measured(metrics.clone());
        let presence = Presence::new(replica.clone());
        let prober = Prober::new(store.clone(), worlds.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(store.clone(), publisher, stop.clone()));
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            _ = worlds.ready() => {}
        }
        tasks.spawn(presence.clone().run(store.clone(), stop.clone()));
        tasks.spawn(Arc::clone(&prober).run(stop.clone()));
        tasks.spawn(control(store.clone(), worlds.clone(), replica, stop.clone()));
        let rollouts = Rollouts::new(store.clone(), stop.clone());

        let watch = WatchService::new(store.clone(), worlds.clone(), presence.clone(), stop.clone());
        let report = ReportService::new(store.clone(), worlds.clone(), Arc::clone(&prober));
        let fleet = FleetService::new(store.clone(), worlds, presence);
        let admin = Admin::new(store.clone(), prober as Arc<dyn Probing>);

        let (admin_health, admin_health_service) = tonic_health::server::health_reporter();
        let (data_health, data_health_service) = tonic_health::server::health_reporter();
        for service in OPERATORS {
            admin_health.set_service_status(service, ServingStatus::Serving).await;
        }
        for service in
            [RegistryWatchServiceServer::<WatchService>::NAME, ReportServiceServer::<ReportService>::NAME]
        {
            data_health.set_service_status(service, ServingStatus::Serving).await;
        }
        tasks.spawn(tell_of_database(store, admin_health.clone(), metrics, stop.clone()));
        admin_gate.open(
            Routes::new(admin_health_service)
                .add_service(reflection().build_v1()?)
                .add_service(reflection().build_v1alpha()?)
                .add_service(
                    ChannelAdminServiceServer::new(admin.clone()).max_decoding_message_size(ADMIN_MESSAGE),
                )
                .add_service(PolicyAdminServiceServer::new(admin).max_decoding_message_size(ADMIN_MESSAGE))
                .add_service(fleet.into_server())
                .add_service(rollouts.into_server().max_decoding_message_size(ADMIN_MESSAGE)),
        );
        data_gate.open(
            Routes::new(data_health_service)
                .add_service(watch.clone().into_server())
                .add_service(report.into_server()),
        );
        Ok(Some(Self { stop, tasks, watch, health: [admin_health, data_health] }))
    }

    /// Until the stop signal; a task that ends before it is a fault of ours, and ends the rest.
    pub(super) async fn stopped(&mut self) -> Result<(), AppError> {
        tokio::select! {
            // First, as tasks end because of it.
            biased;
            () = self.stop.cancelled() => Ok(()),
            Some(ended) = self.tasks.join_next() => {
                if self.stop.is_cancelled() {
                    return Ok(());
                }
                self.stop.cancel();
                Err(AppError::Task(ended.err().map_or_else(|| "it had nothing left to do".to_owned(), |e| e.to_string())))
            }
        }
    }

    /// After the stop signal: watches say Goodbye, tasks end; at most `limit`.
    pub(super) async fn end(self, limit: Duration) {
        self.stop.cancel();
        for health in &self.health {
            health.set_service_status("", ServingStatus::NotServing).await;
        }
        if tokio::time::timeout(limit, ended(self.watch, self.tasks)).await.is_err() {
            tracing::warn!(event = "shutdown_forced", "tasks that still ran were cut off");
        }
    }
}

/// What the operators' listener tells of itself. Proxies' services are described too (types are found), but not listed: they
/// are not to be called there.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(spareline_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // Without it clients print the details of errors as base64.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET);
    let beside = [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ];
    OPERATORS.into_iter().chain(beside).fold(builder, |builder, name| builder.with_service_name(name))
}

/// Operators' calls need the database: health says whether they have it. Proxies are served the last registry without.
async fn tell_of_database(
    store: Store,
    health: HealthReporter,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let mut serving = true;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PING) => {}
        }
        let answers = tokio::time::timeout(ANSWER, store.ping()).await.is_ok_and(|answer| answer.is_ok());
        metrics.database_up.set(i64::from(answers));
        if answers != serving && !stop.is_cancelled() {
            serving = answers;
            let status = if answers { ServingStatus::Serving } else { ServingStatus::NotServing };
            for service in [
                "",
                ChannelAdminServiceServer::<Admin>::NAME,
                PolicyAdminServiceServer::<Admin>::NAME,
                RolloutServiceServer::<Rollouts>::NAME,
            ] {
                health.set_service_status(service, status).await;
            }
        }
    }
}

async fn ended(watch: WatchService, mut tasks: JoinSet<()>) {
    watch.drained().await;
    while tasks.join_next().await.is_some() {}
}
