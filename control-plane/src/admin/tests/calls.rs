use spareline_proto::admin::v1::channel_admin_service_client::ChannelAdminServiceClient;
use spareline_proto::admin::v1::channel_admin_service_server::ChannelAdminServiceServer;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::*;

#[tokio::test]
async fn part5_details_reach_a_real_client() {
    let (admin, _) = admin().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(
        Server::builder()
            .add_service(ChannelAdminServiceServer::new(admin))
            .serve_with_incoming(TcpIncoming::from(listener)),
    );
    let mut client = ChannelAdminServiceClient::connect(format!("http://{address}")).await.unwrap();
    let mut bad = shortest("42");
    bad.channel.as_mut().unwrap().base_url = "ftp://x".into();
    let status = client.create_channel(bad).await.unwrap_err();
    let details = tonic_types::StatusExt::get_details_bad_request(&status).unwrap();
    assert_eq!(details.field_violations.len(), 2, "{details:?}");
    let status = client.get_channel(GetChannelRequest { channel: "nobody".into() }).await.unwrap_err();
    let info = tonic_types::StatusExt::get_details_error_info(&status).unwrap();
    assert_eq!((status.code(), info.reason.as_str()), (Code::NotFound, "not_found"));
    client.create_channel(shortest("a")).await.unwrap();
    server.abort();
}

#[tokio::test]
async fn part5_a_lost_database_is_unavailable_not_a_crash() {
    let (admin, _) = admin().await;
    admin.store.close().await;
    refused(admin.create_channel(Request::new(shortest("a"))).await, Code::Unavailable, "database");
    refused(
        admin.list_channels(Request::new(ListChannelsRequest::default())).await,
        Code::Unavailable,
        "database",
    );
    refused(
        admin.get_channel(Request::new(GetChannelRequest { channel: "a".into() })).await,
        Code::Unavailable,
        "",
    );
}

#[tokio::test]
async fn part5_probe_now_is_passed_on() {
    let (admin, _) = admin().await;
    let request = ProbeNowRequest { channels: vec!["a".into()], dry_run: false };
    let answer = admin.probe_now(Request::new(request)).await.unwrap().into_inner();
    assert_eq!((answer.scanned, answer.recovered), (1, vec!["a".to_owned()]));
    let empty = ProbeNowRequest { channels: vec![String::new()], dry_run: false };
    refused(admin.probe_now(Request::new(empty)).await, Code::InvalidArgument, "channels[0]");
}

#[test]
fn part5_actors_are_named_by_metadata_only_where_they_are_names() {
    let mut metadata = MetadataMap::new();
    assert_eq!(actor(&metadata), "operator");
    metadata.insert("x-spareline-actor", "alice@example.com".parse().unwrap());
    assert_eq!(actor(&metadata), "user:alice@example.com");
    metadata.insert("x-spareline-actor", "proxy:p1".parse().unwrap());
    assert_eq!(actor(&metadata), "operator", "nobody passes for a proxy");
}
