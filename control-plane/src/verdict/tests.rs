use spareline_proto::dataplane::v1 as dp;
use spareline_proto::registry::v1 as pb;
use tonic::Code;
use tonic_types::StatusExt;

use super::check;

fn verdict() -> dp::Verdict {
    dp::Verdict {
        verdict_id: "01890a5d-ac96-774b-bcce-b302099a8057".into(),
        subject: Some(pb::Subject { kind: Some(pb::subject::Kind::CredentialId(1)) }),
        cause: pb::Cause::Credential.into(),
        observed_revision: 1,
        ..Default::default()
    }
}

fn batch(verdicts: Vec<dp::Verdict>) -> dp::ReportVerdictsRequest {
    dp::ReportVerdictsRequest { proxy_id: "proxy-1".into(), verdicts, epoch: String::new() }
}

fn fields(batch: dp::ReportVerdictsRequest) -> Vec<String> {
    let status = check::verdicts(batch).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let bad = status.get_details_bad_request().expect("every refusal names its fields");
    bad.field_violations.into_iter().map(|v| v.field).collect()
}

#[test]
fn part7_every_mistake_of_a_batch_is_named() {
    assert!(check::verdicts(batch(vec![verdict()])).is_ok());
    let wrong = dp::Verdict {
        verdict_id: "one".into(),
        subject: Some(pb::Subject { kind: Some(pb::subject::Kind::CredentialId(-1)) }),
        cause: 99,
        observed_revision: -1,
        age: Some(prost_types::Duration { seconds: -1, nanos: 0 }),
        ..Default::default()
    };
    let mut both = batch(vec![verdict(), wrong]);
    both.proxy_id.clear();
    let found = ["verdict_id", "subject", "cause", "observed_revision", "age"];
    let mut expected = vec!["proxy_id".to_owned()];
    expected.extend(found.map(|field| format!("verdicts[1].{field}")));
    assert_eq!(fields(both), expected);
    assert_eq!(fields(batch(vec![verdict(); check::MAX_VERDICTS + 1])), ["verdicts"]);
}

#[test]
fn part7_long_evidence_is_cut_not_refused() {
    let excerpt = "é".repeat(400) + "\0";
    let long = dp::Verdict {
        evidence: Some(pb::Evidence { excerpt, rule_id: "r\0".into(), ..Default::default() }),
        ..verdict()
    };
    let taken = check::verdicts(batch(vec![long])).unwrap();
    let evidence = taken.verdicts[0].evidence.as_ref().unwrap();
    assert_eq!(evidence.excerpt, "é".repeat(128));
    assert_eq!(evidence.rule_id, "r");
}
