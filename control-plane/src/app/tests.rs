use std::time::Duration;

use spareline_proto::admin::v1::channel_admin_service_client::ChannelAdminServiceClient;
use spareline_proto::admin::v1::{CreateChannelRequest, ListChannelsRequest};
use spareline_proto::registry::v1::{Channel, ModelEntry};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::config::Sources;
use crate::postgres::TestDatabase;

fn config(database_url: &str) -> Config {
    let flags = [
        ("admin_listen", "127.0.0.1:0"),
        ("data_listen", "127.0.0.1:0"),
        ("database_url", database_url),
        ("shutdown_timeout", "2s"),
    ];
    let flags = flags.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
    Config::load(Sources { flags, ..Sources::default() }).unwrap()
}

struct Running {
    admin: String,
    data: String,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), AppError>>,
}

fn start(config: Config) -> Running {
    let app = App::bind(config).unwrap();
    let stop = CancellationToken::new();
    let (admin, data) = (format!("http://{}", app.admin_addr()), format!("http://{}", app.data_addr()));
    let task = tokio::spawn(app.run(stop.clone()));
    Running { admin, data, stop, task }
}

impl Running {
    async fn channels(&self) -> ChannelAdminServiceClient<tonic::transport::Channel> {
        ChannelAdminServiceClient::connect(self.admin.clone()).await.unwrap()
    }

    /// Until calls are served.
    async fn ready(&self) {
        let mut client = self.channels().await;
        for _ in 0..200 {
            match client.list_channels(ListChannelsRequest::default()).await {
                Ok(_) => return,
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not ready");
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.task).await.unwrap().unwrap().unwrap();
    }
}

async fn services(address: &str, alpha: bool) -> Vec<String> {
    let connection =
        tonic::transport::Endpoint::from_shared(address.to_owned()).unwrap().connect().await.unwrap();
    macro_rules! list {
        ($version:ident) => {{
            use pb::server_reflection_client::ServerReflectionClient;
            use pb::server_reflection_request::MessageRequest;
            use pb::server_reflection_response::MessageResponse;
            use tonic_reflection::pb::$version as pb;
            let request = pb::ServerReflectionRequest {
                host: String::new(),
                message_request: Some(MessageRequest::ListServices(String::new())),
            };
            let mut client = ServerReflectionClient::new(connection);
            let answer = client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
            match answer.into_inner().message().await.unwrap().unwrap().message_response {
                Some(MessageResponse::ListServicesResponse(list)) => {
                    list.service.into_iter().map(|s| s.name).collect()
                }
                other => panic!("{other:?}"),
            }
        }};
    }
    if alpha { list!(v1alpha) } else { list!(v1) }
}

#[tokio::test]
async fn part2_two_listeners_health_and_reflection_in_both_versions() {
    let database = TestDatabase::new().await.unwrap();
    let running = start(config(&database.url));
    running.ready().await;
    for alpha in [false, true] {
        let names = services(&running.admin, alpha).await;
        for name in ["ChannelAdminService", "PolicyAdminService", "FleetService", "RolloutService"] {
            assert!(names.contains(&format!("spareline.admin.v1.{name}")), "{name}: {names:?}");
        }
        for name in ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
            assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
        }
        assert!(!names.iter().any(|n| n.contains("dataplane")), "not served here: {names:?}");
    }
    for (address, service) in [
        (&running.admin, "spareline.admin.v1.ChannelAdminService"),
        (&running.admin, ""),
        (&running.data, "spareline.dataplane.v1.RegistryWatchService"),
        (&running.data, ""),
    ] {
        let mut health = HealthClient::new(
            tonic::transport::Endpoint::from_shared(address.clone()).unwrap().connect().await.unwrap(),
        );
        let answer = health.check(HealthCheckRequest { service: service.into() }).await.unwrap().into_inner();
        assert_eq!(answer.status, 1, "{service} is serving");
    }
    // Operators' calls are not to be had where proxies call, and the other way round.
    let mut wrong = ChannelAdminServiceClient::connect(running.data.clone()).await.unwrap();
    let status = wrong.list_channels(ListChannelsRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    running.end().await;
}

#[tokio::test]
async fn part10_an_unreachable_database_is_asked_again_and_calls_say_so() {
    let running = start(config("postgres://nobody@127.0.0.1:9/nothing"));
    for address in [&running.admin, &running.data] {
        let mut client = ChannelAdminServiceClient::connect(address.clone()).await.unwrap();
        let status = client.list_channels(ListChannelsRequest::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("waits for its database"), "{status}");
    }
    assert!(!running.task.is_finished(), "it goes on asking");
    running.end().await;
}

#[tokio::test]
async fn part10_a_taken_address_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = config("postgres://nobody@127.0.0.1:9/nothing");
    config.data_listen = taken.local_addr().unwrap();
    let error = App::bind(config).err().unwrap().to_string();
    assert!(error.starts_with("data_listen: cannot listen on 127.0.0.1:"), "{error}");
}

#[tokio::test]
async fn part10_two_control_planes_share_one_empty_database() {
    let database = TestDatabase::new().await.unwrap();
    let (one, two) = (start(config(&database.url)), start(config(&database.url)));
    tokio::join!(one.ready(), two.ready());
    let channel = Channel {
        name: "shared".into(),
        provider: "openai".into(),
        base_url: "http://127.0.0.1:9/v1".into(),
        models: vec![ModelEntry { model: "m".into(), ..Default::default() }],
        ..Default::default()
    };
    let request = CreateChannelRequest { channel: Some(channel), ..Default::default() };
    one.channels().await.create_channel(request).await.unwrap();
    let seen = two.channels().await.list_channels(ListChannelsRequest::default()).await.unwrap().into_inner();
    let names: Vec<_> =
        seen.channels.iter().flat_map(|view| &view.channel).map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["shared"], "what one wrote the other reads");
    one.end().await;
    two.end().await;
}

/// A page of the operators' port, as a machine asks for it.
async fn page(address: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address.strip_prefix("http://").unwrap()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn pages_for_machines_say_whether_the_database_answers() {
    let database = TestDatabase::new().await.unwrap();
    let (well, alone) =
        (start(config(&database.url)), start(config("postgres://nobody@127.0.0.1:9/nothing")));
    well.ready().await;
    assert!(page(&well.admin, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(page(&alone.admin, "/readyz").await.starts_with("HTTP/1.1 503"));
    assert!(page(&alone.admin, "/healthz").await.starts_with("HTTP/1.1 200"));
    let metrics = page(&well.admin, "/metrics").await;
    for line in ["spareline_control_database_up 1", "spareline_control_history_lost 0"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(page(&alone.admin, "/metrics").await.contains("spareline_control_database_up 0"));
    well.end().await;
    alone.end().await;
}
