use prost_types::FieldMask;
use spareline_proto::registry::v1::{ChannelOptions, ServingState};

use super::*;

fn mask(paths: &[&str]) -> Option<FieldMask> {
    Some(FieldMask { paths: paths.iter().map(|p| (*p).to_owned()).collect() })
}

fn update(channel: Channel, paths: &[&str]) -> Request<UpdateChannelRequest> {
    Request::new(UpdateChannelRequest {
        channel: Some(channel),
        update_mask: mask(paths),
        validate_only: false,
    })
}

#[tokio::test]
async fn part2_the_shortest_channel_is_complete_and_active() {
    let (admin, _) = admin().await;
    let channel = created(&admin, shortest("a")).await;
    assert!(channel.channel_id > 0 && channel.spec_revision > 0 && !channel.etag.is_empty());
    assert_eq!(channel.groups, ["default"]);
    assert_eq!(channel.credential_ids.len(), 1);
    for name in ["a", &channel.channel_id.to_string()] {
        let answer = got(&admin, name).await;
        let view = answer.channel.as_ref().unwrap();
        assert_eq!(view.state(), ServingState::Active);
        assert_eq!((view.credentials_usable, view.credentials_total), (1, 1));
        assert_eq!(answer.credentials.len(), 1);
        assert!(!answer.credentials[0].fingerprint.is_empty());
        assert!(answer.credentials[0].secret.is_empty());
        assert!(!format!("{answer:?}").contains("sk-canary"), "{answer:?}");
    }
}

#[tokio::test]
async fn part5_create_names_every_field_at_fault_and_writes_nothing() {
    let (admin, _) = admin().await;
    let mut request = shortest("42");
    let channel = request.channel.as_mut().unwrap();
    channel.provider = "openia".into();
    channel.base_url = "ftp://x".into();
    channel.models[0].model.clear();
    channel.options = Some(ChannelOptions { proxy_url: "nonsense".into(), ..ChannelOptions::default() });
    request.secrets = vec!["has a blank".into(), String::new()];
    request.request_id = "no-uuid".into();
    let status = admin.create_channel(Request::new(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let details = tonic_types::StatusExt::get_details_bad_request(&status).unwrap();
    let fields: Vec<&str> = details.field_violations.iter().map(|v| v.field.as_str()).collect();
    for field in [
        "channel.name",
        "channel.provider",
        "channel.base_url",
        "channel.models[0].model",
        "channel.options.proxy_url",
        "secrets[0]",
        "secrets[1]",
        "request_id",
    ] {
        assert!(fields.contains(&field), "{field} is not in {fields:?}");
    }
    assert!(!status.message().contains("has a blank"), "{}", status.message());
    let listed =
        admin.list_channels(Request::new(ListChannelsRequest::default())).await.unwrap().into_inner();
    assert!(listed.channels.is_empty());
    refused(
        admin.create_channel(Request::new(CreateChannelRequest::default())).await,
        Code::InvalidArgument,
        "channel: is",
    );
}

#[tokio::test]
async fn part5_create_refuses_bad_urls_and_foreign_options() {
    let (admin, _) = admin().await;
    for (url, options, field) in [
        ("https://user:hunter2@api.example.com", ChannelOptions::default(), "channel.base_url"),
        ("api.example.com", ChannelOptions::default(), "channel.base_url"),
        (
            "https://api.example.com",
            ChannelOptions { proxy_url: "http://u:hunter2@proxy:3128".into(), ..ChannelOptions::default() },
            "channel.options.proxy_url",
        ),
        (
            "https://api.example.com",
            ChannelOptions { api_version: "2024-10-21".into(), ..ChannelOptions::default() },
            "channel.options.api_version",
        ),
    ] {
        let mut request = shortest("a");
        let channel = request.channel.as_mut().unwrap();
        channel.base_url = url.into();
        channel.options = Some(options);
        let answer = admin.create_channel(Request::new(request)).await;
        let (code, message) = code(answer);
        assert_eq!(code, Code::InvalidArgument);
        assert!(message.contains(field) && !message.contains("hunter2"), "{message}");
    }
}

#[tokio::test]
async fn part5_names_are_unique_until_deleted() {
    let (admin, _) = admin().await;
    created(&admin, shortest("a")).await;
    refused(admin.create_channel(Request::new(shortest("a"))).await, Code::AlreadyExists, "a");
    let delete = |name: &str, allow_missing| {
        Request::new(DeleteChannelRequest { channel: name.into(), etag: String::new(), allow_missing })
    };
    let gone = admin.delete_channel(delete("a", false)).await.unwrap().into_inner();
    assert!(gone.revision > 0);
    refused(admin.delete_channel(delete("a", false)).await, Code::NotFound, "a");
    let again = admin.delete_channel(delete("a", true)).await.unwrap().into_inner();
    assert_eq!(again.revision, gone.revision, "nothing was written");
    refused(
        admin.get_channel(Request::new(GetChannelRequest { channel: "a".into() })).await,
        Code::NotFound,
        "a",
    );
    refused(admin.delete_channel(delete("", true)).await, Code::InvalidArgument, "channel");
    created(&admin, shortest("a")).await;
}

#[tokio::test]
async fn part5_update_changes_what_the_mask_names() {
    let (admin, _) = admin().await;
    let before = created(&admin, shortest("a")).await;
    let wanted = Channel { name: "a".into(), priority: 5, weight: Some(0), ..Channel::default() };
    let after = admin
        .update_channel(update(wanted.clone(), &["priority"]))
        .await
        .unwrap()
        .into_inner()
        .channel
        .unwrap();
    assert_eq!((after.priority, after.weight.unwrap_or(1)), (5, 1));
    assert_eq!(after.credential_ids, before.credential_ids);
    assert!(after.spec_revision > before.spec_revision && after.etag != before.etag);

    refused(
        admin.update_channel(update(wanted.clone(), &[])).await,
        Code::InvalidArgument,
        "update_mask: is required",
    );
    let absent = UpdateChannelRequest { channel: Some(wanted.clone()), ..UpdateChannelRequest::default() };
    refused(
        admin.update_channel(Request::new(absent)).await,
        Code::InvalidArgument,
        "update_mask: is required",
    );
    refused(admin.update_channel(update(wanted, &["prio", "etag"])).await, Code::InvalidArgument, "paths[1]");
    let stale = Channel { name: "a".into(), etag: before.etag, priority: 6, ..Channel::default() };
    refused(admin.update_channel(update(stale, &["priority"])).await, Code::Aborted, "");
    let nobody = Channel { name: "nobody".into(), ..Channel::default() };
    refused(admin.update_channel(update(nobody, &["priority"])).await, Code::NotFound, "nobody");
    refused(
        admin.update_channel(update(Channel::default(), &["priority"])).await,
        Code::InvalidArgument,
        "channel.name",
    );
    let bad = Channel { name: "a".into(), base_url: "ftp://x".into(), ..Channel::default() };
    refused(
        admin.update_channel(update(bad, &["base_url"])).await,
        Code::InvalidArgument,
        "channel.base_url",
    );
    let renamed = Channel { channel_id: before.channel_id, name: "b".into(), ..Channel::default() };
    let renamed =
        admin.update_channel(update(renamed, &["name"])).await.unwrap().into_inner().channel.unwrap();
    assert_eq!((renamed.name.as_str(), renamed.priority), ("b", 5));
    admin
        .delete_channel(Request::new(DeleteChannelRequest { channel: "b".into(), ..Default::default() }))
        .await
        .unwrap();
    let deleted = Channel { channel_id: before.channel_id, ..Channel::default() };
    refused(admin.update_channel(update(deleted, &["priority"])).await, Code::NotFound, "");
}

#[tokio::test]
async fn part5_validate_only_checks_everything_and_writes_nothing() {
    let (admin, _) = admin().await;
    let first = created(&admin, shortest("a")).await;
    let revision = admin.store.head().await.unwrap().revision;

    let mut request = shortest("b");
    request.validate_only = true;
    request.secrets = vec!["sk-unknown".into(), "sk-canary-a".into()];
    let answer = admin.create_channel(Request::new(request.clone())).await.unwrap().into_inner();
    assert_eq!(answer.equal_credential_ids, [0, first.credential_ids[0]]);
    assert_eq!(answer.channel.unwrap().channel_id, 0);
    request.channel.as_mut().unwrap().name = "a".into();
    refused(admin.create_channel(Request::new(request)).await, Code::AlreadyExists, "");

    let wanted = Channel { name: "a".into(), priority: 9, ..Channel::default() };
    let mut change = update(wanted, &["priority"]);
    change.get_mut().validate_only = true;
    let answer = admin.update_channel(change).await.unwrap().into_inner();
    assert_eq!(answer.channel.unwrap().priority, 9);

    let add = AddCredentialRequest {
        channel: "a".into(),
        secret: "sk-canary-a".into(),
        validate_only: true,
        ..AddCredentialRequest::default()
    };
    let answer = admin.add_credential(Request::new(add)).await.unwrap().into_inner();
    assert_eq!(answer.equal_credential_id, first.credential_ids[0]);

    assert_eq!(admin.store.head().await.unwrap().revision, revision);
    assert_eq!(got(&admin, "a").await.channel.unwrap().channel.unwrap(), first);
}

#[tokio::test]
async fn part5_a_request_id_gets_the_first_answer_again() {
    let (admin, _) = admin().await;
    let id = Uuid::now_v7().to_string();
    let request = CreateChannelRequest { request_id: id.clone(), ..shortest("a") };
    let first = created(&admin, request.clone()).await;
    assert_eq!(created(&admin, request.clone()).await, first);
    let other = CreateChannelRequest { request_id: id.clone(), ..shortest("b") };
    refused(admin.create_channel(Request::new(other)).await, Code::InvalidArgument, "request_id");
    let rotate = RotateCredentialRequest {
        channel: "a".into(),
        secret: "sk-new".into(),
        request_id: Uuid::now_v7().to_string(),
        ..RotateCredentialRequest::default()
    };
    let first = admin.rotate_credential(Request::new(rotate.clone())).await.unwrap().into_inner();
    assert_eq!(admin.rotate_credential(Request::new(rotate)).await.unwrap().into_inner(), first);
}

#[tokio::test]
async fn part5_listing_pages_and_filters() {
    let (admin, _) = admin().await;
    for i in 0..5 {
        let mut request = shortest(&format!("c{i}"));
        let channel = request.channel.as_mut().unwrap();
        channel.groups = vec![if i % 2 == 0 { "even" } else { "odd" }.into()];
        if i == 4 {
            channel.provider = "anthropic".into();
        }
        created(&admin, request).await;
    }
    let list = |request: ListChannelsRequest| {
        let admin = admin.clone();
        async move { admin.list_channels(Request::new(request)).await.map(Response::into_inner) }
    };
    let names = |answer: &ListChannelsResponse| -> Vec<String> {
        answer.channels.iter().map(|v| v.channel.as_ref().unwrap().name.clone()).collect()
    };
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let page = ListChannelsRequest { page_size: 2, page_token: token, ..ListChannelsRequest::default() };
        let answer = list(page).await.unwrap();
        assert!(answer.channels.len() <= 2 && answer.revision > 0);
        seen.extend(names(&answer));
        token = answer.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, ["c4", "c3", "c2", "c1", "c0"]);
    let even = list(ListChannelsRequest { group: "even".into(), ..Default::default() }).await.unwrap();
    assert_eq!(names(&even), ["c4", "c2", "c0"]);
    let anthropic =
        list(ListChannelsRequest { provider: "anthropic".into(), ..Default::default() }).await.unwrap();
    assert_eq!(names(&anthropic), ["c4"]);
    assert_eq!(
        list(ListChannelsRequest { model: "x".into(), ..Default::default() }).await.unwrap().channels.len(),
        0
    );
    for (request, field) in [
        (ListChannelsRequest { page_size: -1, ..Default::default() }, "page_size"),
        (ListChannelsRequest { page_token: "nonsense".into(), ..Default::default() }, "page_token"),
        (ListChannelsRequest { provider: "x".into(), ..Default::default() }, "provider"),
        (ListChannelsRequest { state: 77, ..Default::default() }, "state"),
    ] {
        let status = list(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(field), "{}", status.message());
    }
}

#[tokio::test]
async fn part5_a_page_token_fits_only_the_listing_it_came_from() {
    let (admin, _) = admin().await;
    for name in ["a", "b"] {
        created(&admin, shortest(name)).await;
    }
    let list = ListChannelsRequest { page_size: 1, ..Default::default() };
    let token = admin.list_channels(Request::new(list.clone())).await.unwrap().into_inner().next_page_token;
    let next = ListChannelsRequest { page_token: token.clone(), ..list };
    let bigger = ListChannelsRequest { page_size: 5, ..next.clone() };
    assert_eq!(admin.list_channels(Request::new(bigger)).await.unwrap().into_inner().channels.len(), 1);
    let other = ListChannelsRequest { model: "m".into(), ..next };
    refused(admin.list_channels(Request::new(other)).await, Code::InvalidArgument, "page_token");
    let events = ListEventsRequest { page_token: token, ..Default::default() };
    refused(admin.list_events(Request::new(events)).await, Code::InvalidArgument, "page_token");
}

#[tokio::test]
async fn part5_an_id_and_a_name_of_two_channels_change_neither() {
    let (admin, _) = admin().await;
    let first = created(&admin, shortest("a")).await;
    created(&admin, shortest("b")).await;
    let both =
        Channel { channel_id: first.channel_id, name: "b".into(), weight: Some(7), ..Default::default() };
    refused(
        admin.update_channel(update(both, &["weight"])).await,
        Code::InvalidArgument,
        "channel.name: channel 1 is \"a\"",
    );
    let renamed =
        Channel { channel_id: first.channel_id, name: "c".into(), weight: Some(7), ..Default::default() };
    admin.update_channel(update(renamed, &["weight", "name"])).await.unwrap();
    assert_eq!(got(&admin, "c").await.channel.unwrap().channel.unwrap().weight, Some(7));
}
