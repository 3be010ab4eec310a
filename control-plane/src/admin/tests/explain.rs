use spareline_proto::admin::v1::policy_admin_service_server::PolicyAdminService as _;
use spareline_proto::registry::v1::{Endpoint, FleetPolicy, Policy, Rule};

use super::*;

fn policy(policy: Policy, paths: &[&str]) -> Request<UpdatePolicyRequest> {
    let paths = paths.iter().map(|p| (*p).to_owned()).collect();
    Request::new(UpdatePolicyRequest {
        policy: Some(policy),
        update_mask: Some(prost_types::FieldMask { paths }),
        validate_only: false,
    })
}

fn of(group: &str) -> Request<GetPolicyRequest> {
    Request::new(GetPolicyRequest { group: group.into() })
}

#[tokio::test]
async fn part5_policies_fold_and_are_validated() {
    let (admin, _) = admin().await;
    let built_in = admin.get_policy(of("")).await.unwrap().into_inner().effective.unwrap();
    assert_eq!((built_in.max_attempts, built_in.preset.as_str()), (Some(3), "availability"));

    let global = Policy { max_attempts: Some(5), last_resort: Some(false), ..Policy::default() };
    let stored =
        admin.update_policy(policy(global, &["max_attempts"])).await.unwrap().into_inner().policy.unwrap();
    assert_eq!((stored.max_attempts, stored.last_resort), (Some(5), None));
    let vip = Policy { group: "vip".into(), last_resort: Some(false), ..Policy::default() };
    admin.update_policy(policy(vip, &["last_resort"])).await.unwrap();
    let answer = admin.get_policy(of("vip")).await.unwrap().into_inner();
    let effective = answer.effective.unwrap();
    assert_eq!(
        (effective.max_attempts, effective.last_resort, effective.group.as_str()),
        (Some(5), Some(false), "vip")
    );
    assert_eq!(answer.policy.unwrap().max_attempts, None);
    let other = admin.get_policy(of("other")).await.unwrap().into_inner();
    assert_eq!((other.policy, other.effective.unwrap().max_attempts), (None, Some(5)));

    let all = admin.list_policies(Request::new(ListPoliciesRequest {})).await.unwrap().into_inner().policies;
    assert_eq!(all.iter().map(|p| p.group.as_str()).collect::<Vec<_>>(), ["", "vip"]);

    let fleet = Policy {
        group: "vip".into(),
        fleet: Some(FleetPolicy { auto_disable: Some(false), ..FleetPolicy::default() }),
        max_attempts: Some(0),
        ..Policy::default()
    };
    let status =
        admin.update_policy(policy(fleet, &["fleet", "max_attempts", "nonsense"])).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    for field in ["policy.fleet", "policy.max_attempts", "update_mask.paths[2]"] {
        assert!(status.message().contains(field), "{}", status.message());
    }
    let stale = Policy { etag: "stale".into(), max_attempts: Some(7), ..Policy::default() };
    refused(admin.update_policy(policy(stale, &["max_attempts"])).await, Code::Aborted, "");
    refused(admin.update_policy(policy(Policy::default(), &[])).await, Code::InvalidArgument, "update_mask");

    let delete = |group: &str| Request::new(DeletePolicyRequest { group: group.into() });
    admin.delete_policy(delete("vip")).await.unwrap();
    refused(admin.delete_policy(delete("vip")).await, Code::NotFound, "vip");
    refused(admin.delete_policy(delete("")).await, Code::FailedPrecondition, "");
}

#[tokio::test]
async fn part5_events_say_who_did_what() {
    let (admin, _) = admin().await;
    let mut request = Request::new(shortest("a"));
    request.metadata_mut().insert("x-spareline-actor", "alice".parse().unwrap());
    admin.create_channel(request).await.unwrap();
    let disable = DisableSubjectRequest { subject: subject("a", None, None), comment: "maintenance".into() };
    admin.disable_subject(Request::new(disable)).await.unwrap();
    let list = |request: ListEventsRequest| {
        let admin = admin.clone();
        async move { admin.list_events(Request::new(request)).await.map(Response::into_inner) }
    };
    let events = list(ListEventsRequest { channel: "a".into(), ..Default::default() }).await.unwrap().events;
    assert!(
        events.windows(2).all(|w| (w[0].revision, w[0].ordinal) > (w[1].revision, w[1].ordinal)),
        "newest first"
    );
    assert!(events.iter().any(|e| e.actor == "user:alice"), "{events:?}");
    assert!(events.iter().any(|e| e.detail.contains("maintenance")), "{events:?}");
    assert!(!format!("{events:?}").contains("sk-canary"));
    let kind = events[0].kind.clone();
    let same = list(ListEventsRequest { kind: kind.clone(), ..Default::default() }).await.unwrap().events;
    assert!(!same.is_empty() && same.iter().all(|e| e.kind == kind));
    let page = list(ListEventsRequest { page_size: 1, ..Default::default() }).await.unwrap();
    assert_eq!(page.events.len(), 1);
    assert!(!page.next_page_token.is_empty());
    for (request, code) in [
        (ListEventsRequest { page_size: -5, ..Default::default() }, Code::InvalidArgument),
        (ListEventsRequest { page_token: "x".into(), ..Default::default() }, Code::InvalidArgument),
        (ListEventsRequest { channel: "nobody".into(), ..Default::default() }, Code::NotFound),
    ] {
        assert_eq!(list(request).await.unwrap_err().code(), code);
    }
}

#[tokio::test]
async fn part9_classify_reads_an_answer_with_the_policy_in_force() {
    let (admin, _) = admin().await;
    let answer = |status: u32, body: &str| ClassifyRequest {
        provider: "openai".into(),
        http_status: status,
        body: body.into(),
        ..ClassifyRequest::default()
    };
    let classify = |request: ClassifyRequest| {
        let admin = admin.clone();
        async move { admin.classify(Request::new(request)).await.map(Response::into_inner) }
    };
    let dead = r#"{"error":{"message":"Incorrect API key provided: sk-x.","type":"invalid_request_error","code":"invalid_api_key"}}"#;
    let read = classify(answer(401, dead)).await.unwrap();
    assert_eq!((read.class.as_str(), read.scope.as_str(), read.switches), ("disable", "credential", true));
    assert!(!read.rule_id.is_empty() && !read.reason.is_empty());

    let fine = r#"{"choices":[{"message":{"role":"assistant","content":"invalid_api_key"}}]}"#;
    assert_eq!(classify(answer(200, fine)).await.unwrap().class, "ok");

    let conservative = Policy { preset: "conservative".into(), ..Policy::default() };
    admin.update_policy(policy(conservative, &["preset"])).await.unwrap();
    assert!(!classify(answer(401, dead)).await.unwrap().switches, "the preset passes it on");

    let rule =
        Rule { rule_id: "mine".into(), statuses: "418".into(), class: "retryable".into(), ..Rule::default() };
    admin.update_policy(policy(Policy { rules: vec![rule], ..Policy::default() }, &["rules"])).await.unwrap();
    let read = classify(answer(418, "{}")).await.unwrap();
    assert_eq!((read.class.as_str(), read.rule_id.as_str()), ("retryable", "mine"));

    let bad = ClassifyRequest {
        provider: "openia".into(),
        endpoint: 99,
        headers: [("bad name".to_owned(), "x".to_owned())].into(),
        ..ClassifyRequest::default()
    };
    let status = classify(bad).await.unwrap_err();
    for field in ["provider", "http_status", "endpoint", "headers.bad name"] {
        assert!(status.message().contains(field), "{}", status.message());
    }
    let stream = ClassifyRequest {
        stream: true,
        endpoint: Endpoint::ChatCompletions.into(),
        ..answer(
            200,
            "data: {\"error\":{\"message\":\"Incorrect API key provided\",\"code\":\"invalid_api_key\"}}\n\n",
        )
    };
    assert_eq!(classify(stream).await.unwrap().class, "disable");
}
