//! What operators send by accident.

use prost_types::FieldMask;
use spareline_proto::admin::v1::policy_admin_service_server::PolicyAdminService as _;
use spareline_proto::registry::v1::ChannelOptions;

use super::*;
use crate::store::StoreError;

/// Behind a text that nothing can be made of.
const NUL: &str = "a\0b";

fn at(base_url: &str) -> CreateChannelRequest {
    let mut request = shortest("a");
    request.channel.as_mut().unwrap().base_url = base_url.into();
    request
}

#[tokio::test]
async fn part5_a_pasted_endpoint_is_refused_where_it_is_written_and_left_alone_where_it_is_stored() {
    let (admin, _) = admin().await;
    let pasted = "https://api.example.com/v1/chat/completions";
    let answer = admin.create_channel(Request::new(at(pasted))).await;
    refused(answer, Code::InvalidArgument, "channel.base_url: ends in /chat/completions");
    let stored = at(pasted).channel.unwrap();
    let store = admin.store_for_tests();
    let written = store.write::<_, StoreError>("test", |tx| {
        Box::pin(async move { tx.create_channel(stored, &["sk-1".to_owned()]).await })
    });
    written.await.unwrap();
    let update = |channel: Channel, path: &str| {
        let update_mask = Some(FieldMask { paths: vec![path.to_owned()] });
        admin.update_channel(Request::new(UpdateChannelRequest {
            channel: Some(channel),
            update_mask,
            validate_only: false,
        }))
    };
    let named = Channel { name: "a".into(), weight: Some(3), ..Channel::default() };
    let kept = update(named.clone(), "weight").await.unwrap().into_inner().channel.unwrap();
    assert_eq!(kept.base_url, pasted);
    let twice = Channel { base_url: "https://api.example.com/v1/v1".into(), ..named };
    refused(update(twice, "base_url").await, Code::InvalidArgument, "write /v1 once");
}

#[tokio::test]
async fn part5_certificates_that_are_none_are_refused() {
    let (admin, _) = admin().await;
    let mut request = shortest("a");
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    request.channel.as_mut().unwrap().options =
        Some(ChannelOptions { ca_pem: pem.into(), ..ChannelOptions::default() });
    let answer = admin.create_channel(Request::new(request)).await;
    refused(answer, Code::InvalidArgument, "channel.options.ca_pem: ");
}

#[tokio::test]
async fn part5_a_character_that_cannot_be_stored_is_named_with_its_field() {
    let (admin, _) = admin().await;
    created(&admin, shortest("a")).await;
    macro_rules! refuses {
        ($field:literal, $call:ident, $request:expr) => {
            refused(admin.$call(Request::new($request)).await, Code::InvalidArgument, concat!($field, ": "))
        };
    }
    let nul = || NUL.to_owned();
    refuses!("channel", get_channel, GetChannelRequest { channel: nul() });
    refuses!("model", list_channels, ListChannelsRequest { model: nul(), ..Default::default() });
    refuses!("group", list_channels, ListChannelsRequest { group: nul(), ..Default::default() });
    refuses!("kind", list_events, ListEventsRequest { kind: nul(), ..Default::default() });
    refuses!("channel", list_events, ListEventsRequest { channel: nul(), ..Default::default() });
    refuses!("channels[0]", probe_now, ProbeNowRequest { channels: vec![nul()], dry_run: true });
    let disable = |subject, comment: &str| DisableSubjectRequest { subject, comment: comment.into() };
    refuses!("comment", disable_subject, disable(subject("a", None, None), NUL));
    refuses!("subject.channel", disable_subject, disable(subject(NUL, None, None), ""));
    refuses!("subject.model", disable_subject, disable(subject("a", None, Some(NUL)), ""));
    refuses!("subject.credential", disable_subject, disable(subject("a", Some(NUL), None), ""));
    let retire = RetireCredentialRequest { subject: subject("a", Some(NUL), None), comment: String::new() };
    refuses!("subject.credential", retire_credential, retire);
    refuses!("group", get_policy, GetPolicyRequest { group: nul() });
    refuses!("group", get_policy, GetPolicyRequest { group: "x".repeat(64) });
    refuses!("group", delete_policy, DeletePolicyRequest { group: nul() });
    let wanted = Channel { name: nul(), ..Channel::default() };
    let update = UpdateChannelRequest { channel: Some(wanted), ..Default::default() };
    refuses!("channel.name", update_channel, update);
}

#[tokio::test]
async fn part5_a_page_ends_before_a_client_can_take_no_more() {
    let (admin, _) = admin().await;
    for name in ["a", "b", "c"] {
        let mut request = shortest(name);
        let channel = request.channel.as_mut().unwrap();
        let entry = |n| ModelEntry { model: format!("{n}-{}", "m".repeat(240)), ..ModelEntry::default() };
        channel.models = (0..5000).map(entry).collect();
        created(&admin, request).await;
    }
    let (mut channels, mut events) = (Vec::new(), Vec::new());
    let mut page_token = String::new();
    loop {
        let request = ListChannelsRequest { page_token, ..Default::default() };
        let page = admin.list_channels(Request::new(request)).await.unwrap().into_inner();
        assert!(prost::Message::encoded_len(&page) < 4 << 20);
        channels.extend(page.channels.into_iter().map(|c| c.channel.unwrap().name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(channels, ["c", "b", "a"]);
    loop {
        let request = ListEventsRequest { page_token, kind: "channel.created".into(), ..Default::default() };
        let page = admin.list_events(Request::new(request)).await.unwrap().into_inner();
        assert!(prost::Message::encoded_len(&page) < 4 << 20);
        events.extend(page.events.into_iter().map(|e| e.revision));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(events, [3, 2, 1]);
}
