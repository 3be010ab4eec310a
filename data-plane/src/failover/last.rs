//! How a request ends that no upstream answered: what is passed on, and which error of ours it is.

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use spareline_core::{
    Class,
    classify::Limit,
    pick::{Left, NoneLeft, Reason},
    policy::RequestPolicy,
};
use spareline_upstream::Failed;

use super::Outcome;
use crate::{
    http::error::{ApiError, Code},
    plan::Plan,
};

/// Nothing is left to pick.
pub(super) fn none_left(none: &NoneLeft, plan: &Plan, limit: Option<Limit>) -> ApiError {
    let model: String = plan.model.chars().take(128).collect();
    match none.reason {
        Reason::ModelNotFound => {
            ApiError::new(Code::ModelNotFound, format!("no model `{model}` for this caller")).param("model")
        }
        Reason::EndpointNotAvailable => {
            let endpoint = plan.endpoint.map_or("that path", |e| e.as_str());
            ApiError::new(Code::EndpointNotAvailable, format!("model `{model}` does not have {endpoint}"))
        }
        Reason::ChannelNotFound => {
            ApiError::new(Code::ChannelNotFound, format!("the named channel does not serve `{model}`"))
        }
        Reason::AllThrottled => {
            let text = format!("no channel of `{model}` can be used for now{}", standing(none.left));
            let error = ApiError::new(Code::AllThrottled, text);
            match none.retry_after {
                Some(wait) => error.retry_after(wait),
                None => error,
            }
        }
        Reason::AllFailed => match limit {
            Some(limit) => timed_out(limit),
            None => {
                let text = format!("no channel of `{model}` could answer{}", standing(none.left));
                ApiError::new(Code::AllChannelsFailed, text)
            }
        },
    }
}

/// In numbers, since names are not for every caller; empty where there is nothing to say.
fn standing(left: Left) -> String {
    let words = [
        (left.tried, "tried"),
        (left.throttled, "asked to wait"),
        (left.failing, "failing"),
        (left.disabled, "disabled"),
    ];
    let words: Vec<String> =
        words.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) }
}

/// Enough was tried.
pub(super) fn enough(limit: Option<Limit>) -> ApiError {
    match limit {
        Some(limit) => timed_out(limit),
        None => ApiError::new(Code::MaxAttemptsExceeded, "every attempt failed"),
    }
}

/// One of our limits ended it.
pub(super) fn timed_out(limit: Limit) -> ApiError {
    ApiError::new(Code::UpstreamTimeout, format!("the upstream took too long: {} fired", limit.as_str()))
}

/// Passes on what the upstream said. Its 401, 402 and 403 never reach the caller, who would think that its own key is
/// wrong: a refusal of the request itself passes as 400, anything about our key as an error of ours. `meant`: the policy
/// wants such answers passed on; otherwise a success that is no answer becomes an error of ours.
pub(super) fn pass<A>(failed: Failed, policy: &RequestPolicy, meant: bool) -> Outcome<A> {
    let Some(rejected) = failed.response else {
        return Outcome::Failed(match failed.limit {
            Some(limit) => timed_out(limit),
            None => ApiError::new(Code::AllChannelsFailed, "the upstream could not be reached"),
        });
    };
    let mut status = rejected.status;
    if status.is_success() && !meant && failed.verdict.class != Class::Transparent {
        // Nothing, or half an answer, under a status that says all is well: the caller must not take it for one.
        let text = format!("the upstream's answer was none ({})", failed.verdict.detail);
        return Outcome::Failed(ApiError::new(Code::AllChannelsFailed, text));
    }
    // A dead key comes under any status.
    if failed.verdict.class == Class::Disable || matches!(status.as_u16(), 401 | 402 | 403 | 407) {
        if failed.verdict.class != Class::Transparent {
            let text = "the upstream refused the key or the account of this channel";
            return Outcome::Failed(ApiError::new(Code::AllChannelsFailed, text));
        }
        status = StatusCode::BAD_REQUEST;
    }
    let mut headers = rejected.headers;
    let mut body = rejected.body;
    if !policy.error_text.is_passthrough() {
        let text = policy.error_text.body(&body);
        if *text != *body {
            body = Bytes::from(text.into_owned());
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
    }
    Outcome::Passed { status, headers, body }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::HeaderMap;
    use spareline_core::{
        Provider,
        classify::{Evidence, Input, Rules, check_success, classify},
    };
    use spareline_upstream::attempt::Rejected;

    use super::*;

    #[test]
    fn an_error_says_what_is_out_and_names_nobody() {
        assert_eq!(standing(Left::default()), "");
        let left = Left { tried: 1, throttled: 0, failing: 2, disabled: 3 };
        assert_eq!(standing(left), ": 1 tried, 2 failing, 3 disabled");
    }

    #[test]
    fn a_dead_key_is_no_concern_of_the_callers_whatever_its_status() {
        let quota = br#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;
        for status in [200, 400, 429] {
            let headers = HeaderMap::new();
            let evidence = Evidence::Response { status, headers: &headers, body: quota };
            let input = Input {
                provider: Provider::OpenAi,
                vendor: None,
                endpoint: Some(spareline_core::Endpoint::ChatCompletions),
                stream: false,
                evidence,
            };
            let verdict = Box::new(classify(&input, &Rules::builtin(), SystemTime::now()));
            let status = StatusCode::from_u16(status).unwrap();
            let response = Some(Rejected { status, headers, body: Bytes::from_static(quota) });
            let failed = Failed { verdict, limit: None, response, silent: false, overloaded: false };
            match pass::<()>(failed, &RequestPolicy::resolve(None, None), true) {
                Outcome::Failed(error) => assert_eq!(error.code, Code::AllChannelsFailed),
                _ => panic!("{status}"),
            }
        }
    }

    #[test]
    fn a_success_that_is_no_answer_is_passed_on_only_where_the_policy_means_it() {
        for (body, meant) in [("", false), ("{\"data\":[{\"url\":", false), ("{\"data\":[{\"url\":", true)] {
            let headers = HeaderMap::new();
            let evidence = Evidence::Response { status: 200, headers: &headers, body: body.as_bytes() };
            let input = Input {
                provider: Provider::OpenAi,
                vendor: None,
                endpoint: Some(spareline_core::Endpoint::Images),
                stream: false,
                evidence,
            };
            let verdict = check_success(&input, &Rules::builtin(), SystemTime::now()).unwrap_err();
            let response = Some(Rejected { status: StatusCode::OK, headers, body: Bytes::from(body) });
            let failed = Failed { verdict, limit: None, response, silent: false, overloaded: false };
            match pass::<()>(failed, &RequestPolicy::resolve(None, None), meant) {
                Outcome::Failed(error) if !meant => assert_eq!(error.code, Code::AllChannelsFailed),
                Outcome::Passed { status, body: passed, .. } if meant => {
                    assert_eq!((status, &*passed), (StatusCode::OK, body.as_bytes()));
                }
                _ => panic!("meant {meant}: {body}"),
            }
        }
    }
}
