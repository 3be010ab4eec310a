use spareline_proto::registry::v1::{Cause, ServingState};

use super::*;

fn add(channel: &str, secret: &str, verify: bool) -> Request<AddCredentialRequest> {
    Request::new(AddCredentialRequest {
        channel: channel.into(),
        secret: secret.into(),
        verify,
        ..AddCredentialRequest::default()
    })
}

#[tokio::test]
async fn part5_a_key_the_provider_rejects_is_refused() {
    let (admin, provider) = admin().await;
    created(&admin, shortest("a")).await;
    *provider.0.lock().unwrap() = Some(Verified::Rejected("401 invalid_api_key".into()));
    refused(
        admin.add_credential(add("a", "sk-bad", true)).await,
        Code::InvalidArgument,
        "secret: the provider rejects it: 401",
    );
    *provider.0.lock().unwrap() = Some(Verified::Unknown("no route".into()));
    refused(admin.add_credential(add("a", "sk-bad", true)).await, Code::Unavailable, "could not be verified");
    assert_eq!(got(&admin, "a").await.credentials.len(), 1, "nothing was stored");
    admin.add_credential(add("a", "sk-unasked", false)).await.unwrap();
    *provider.0.lock().unwrap() = Some(Verified::Good);
    let added =
        admin.add_credential(add("a", "sk-good", true)).await.unwrap().into_inner().credential.unwrap();
    assert!(added.secret.is_empty() && !added.fingerprint.is_empty());
    let view = got(&admin, "a").await.channel.unwrap();
    assert_eq!((view.credentials_usable, view.credentials_total), (3, 3));
    refused(admin.add_credential(add("nobody", "sk", false)).await, Code::NotFound, "nobody");
    refused(admin.add_credential(add("a", "sk good", false)).await, Code::InvalidArgument, "secret");
}

#[tokio::test]
async fn part5_rotation_replaces_and_retirement_removes() {
    let (admin, _) = admin().await;
    let channel = created(&admin, shortest("a")).await;
    let old = channel.credential_ids[0];
    let rotate = |secret: &str, replaces: Vec<i64>| {
        Request::new(RotateCredentialRequest {
            channel: "a".into(),
            secret: secret.into(),
            replaces,
            ..RotateCredentialRequest::default()
        })
    };
    let new = admin.rotate_credential(rotate("sk-2", vec![])).await.unwrap().into_inner().credential.unwrap();
    assert_eq!(got(&admin, "a").await.channel.unwrap().channel.unwrap().credential_ids, [new.credential_id]);
    refused(admin.rotate_credential(rotate("sk-3", vec![old])).await, Code::InvalidArgument, "");
    refused(admin.rotate_credential(rotate("sk-3", vec![0])).await, Code::InvalidArgument, "replaces[0]");
    admin.add_credential(add("a", "sk-3", false)).await.unwrap();
    refused(admin.rotate_credential(rotate("sk-4", vec![])).await, Code::FailedPrecondition, "");

    let retire = |subject| Request::new(RetireCredentialRequest { subject, comment: "left".into() });
    let by_print = subject("a", Some(&new.fingerprint), None);
    let retired = admin.retire_credential(retire(by_print)).await.unwrap().into_inner();
    assert!(retired.revision > 0);
    assert_eq!(got(&admin, "a").await.credentials.len(), 1);
    let by_id = new.credential_id.to_string();
    refused(admin.retire_credential(retire(subject("", Some(&by_id), None))).await, Code::NotFound, "");
    refused(
        admin.retire_credential(retire(subject("a", None, None))).await,
        Code::InvalidArgument,
        "subject.credential",
    );
    refused(admin.retire_credential(retire(None)).await, Code::InvalidArgument, "subject.credential");
}

#[tokio::test]
async fn part5_a_credential_serves_one_provider_and_host_only() {
    let (admin, _) = admin().await;
    let first = created(&admin, shortest("a")).await;
    let mut same = shortest("b");
    same.secrets.clear();
    same.channel.as_mut().unwrap().credential_ids.clone_from(&first.credential_ids);
    let mut host = same.clone();
    let mut provider = same.clone();
    created(&admin, same).await;
    let channel = host.channel.as_mut().unwrap();
    (channel.name, channel.base_url) = ("c".into(), "https://elsewhere.example.com".into());
    refused(admin.create_channel(Request::new(host)).await, Code::InvalidArgument, "credential_ids");
    let channel = provider.channel.as_mut().unwrap();
    (channel.name, channel.provider) = ("d".into(), "anthropic".into());
    refused(admin.create_channel(Request::new(provider)).await, Code::InvalidArgument, "credential_ids");
}

#[tokio::test]
async fn part5_an_equal_secret_elsewhere_is_not_offered() {
    let (admin, _) = admin().await;
    let first = created(&admin, shortest("a")).await;
    let mut there = shortest("b");
    there.secrets.clone_from(&vec!["sk-canary-a".to_owned()]);
    there.validate_only = true;
    let here = admin.create_channel(Request::new(there.clone())).await.unwrap().into_inner();
    assert_eq!(here.equal_credential_ids, first.credential_ids);
    there.channel.as_mut().unwrap().base_url = "https://elsewhere.example.com".into();
    let elsewhere = admin.create_channel(Request::new(there)).await.unwrap().into_inner();
    assert_eq!(elsewhere.equal_credential_ids, [0], "it could not be listed there");
}

#[tokio::test]
async fn part5_enable_and_disable_by_readable_names() {
    let (admin, _) = admin().await;
    let channel = created(&admin, shortest("a")).await;
    let id = channel.credential_ids[0].to_string();
    let print = got(&admin, "a").await.credentials[0].fingerprint.clone();
    let number = channel.channel_id.to_string();
    for subject in [
        subject("a", None, None),
        subject(&number, None, None),
        subject("a", Some(&id), None),
        subject("", Some(&id), None),
        subject("a", Some(&print), None),
        subject("a", None, Some("m")),
        subject("a", Some(&print), Some("m")),
    ] {
        let disable = DisableSubjectRequest { subject: subject.clone(), comment: "test".into() };
        let out = admin.disable_subject(Request::new(disable)).await.unwrap().into_inner().status.unwrap();
        assert_eq!((out.state(), out.cause()), (ServingState::Disabled, Cause::Operator), "{subject:?}");
        let enable = EnableSubjectRequest { subject: subject.clone(), comment: String::new() };
        let back = admin.enable_subject(Request::new(enable)).await.unwrap().into_inner().status.unwrap();
        assert_eq!(back.state(), ServingState::Active);
        assert!(back.fence_revision > out.revision, "{subject:?}");
    }
    for (subject, code, part) in [
        (None, Code::InvalidArgument, "subject.channel"),
        (subject("", None, Some("m")), Code::InvalidArgument, "subject.channel"),
        (subject("a", Some(""), None), Code::InvalidArgument, "subject.credential"),
        (subject("a", None, Some("unknown")), Code::NotFound, ""),
        (subject("a", Some("999999"), None), Code::NotFound, ""),
        (subject("nobody", None, None), Code::NotFound, "nobody"),
    ] {
        let disable = DisableSubjectRequest { subject, comment: String::new() };
        refused(admin.disable_subject(Request::new(disable)).await, code, part);
    }
}

#[tokio::test]
async fn part5_enabling_a_channel_lists_what_stays_out() {
    let (admin, _) = admin().await;
    created(&admin, shortest("a")).await;
    let model = subject("a", None, Some("m"));
    admin
        .disable_subject(Request::new(DisableSubjectRequest { subject: model, comment: String::new() }))
        .await
        .unwrap();
    let enable = EnableSubjectRequest { subject: subject("a", None, None), comment: String::new() };
    let answer = admin.enable_subject(Request::new(enable)).await.unwrap().into_inner();
    assert_eq!(answer.still_disabled.len(), 1);
}
