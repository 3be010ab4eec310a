//! Everything that runs over the store, and what each listener serves.

use std::sync::Arc;

use spareline_core::secret::Secret;
use spareline_proto::admin::v1::channel_admin_service_server::ChannelAdminServiceServer;
use spareline_proto::admin::v1::policy_admin_service_server::PolicyAdminServiceServer;
use spareline_proto::admin::v1::{ProbeNowRequest, ProbeNowResponse};
use spareline_proto::registry::v1::Channel;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::service::Routes;

use super::AppError;
use super::gate::Gate;
use crate::admin::{Admin, Probing, Verified};
use crate::config::Config;
use crate::store::Store;

/// Largest message that operators may send: a channel with a CA bundle and thousands of models fits.
const ADMIN_MESSAGE: usize = 8 << 20;

/// Runs all of it until `stop`; `ready` is called once calls are served.
pub(super) async fn run(
    _config: &Config,
    _replica: &str,
    store: Store,
    [admin_gate, data_gate]: [&Gate; 2],
    stop: &CancellationToken,
    ready: impl FnOnce(),
) -> Result<(), AppError> {
    let (admin_health, admin_health_service) = tonic_health::server::health_reporter();
    let (data_health, data_health_service) = tonic_health::server::health_reporter();
    let admin = Admin::new(store, Arc::new(NoProber));

    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(spareline_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // Without it clients print the details of errors as base64.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let admin_routes = Routes::new(admin_health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .add_service(ChannelAdminServiceServer::new(admin.clone()).max_decoding_message_size(ADMIN_MESSAGE))
        .add_service(PolicyAdminServiceServer::new(admin).max_decoding_message_size(ADMIN_MESSAGE));
    let data_routes = Routes::new(data_health_service);
    admin_gate.open(admin_routes);
    data_gate.open(data_routes);
    ready();

    stop.cancelled().await;
    for health in [&admin_health, &data_health] {
        health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
    }
    Ok(())
}

/// Until there is one.
struct NoProber;

#[tonic::async_trait]
impl Probing for NoProber {
    async fn probe_now(&self, _: ProbeNowRequest) -> Result<ProbeNowResponse, Status> {
        Err(Status::unimplemented("there is no prober yet"))
    }

    async fn verify(&self, _: Channel, _: Secret) -> Verified {
        Verified::Unknown("there is no prober yet".to_owned())
    }
}
