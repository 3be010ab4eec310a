//! What a proxy would make of an upstream's answer, with the policy in force: what to ask before writing a rule.

use std::time::SystemTime;

use http::{HeaderMap, HeaderName, HeaderValue};
use spareline_core::classify::{Evidence, Input, Rules, classify_recorded};
use spareline_core::policy::RequestPolicy;
use spareline_core::{Class, Endpoint, Provider, convert};
use spareline_proto::admin::v1::{ClassifyRequest, ClassifyResponse};
use spareline_proto::registry::v1 as pb;
use tonic::Status;

use super::Admin;
use crate::refuse::{Violations, of_store};

impl Admin {
    pub(super) async fn classified(&self, request: ClassifyRequest) -> Result<ClassifyResponse, Status> {
        let mut violations = Violations::default();
        let provider = request.provider.parse::<Provider>();
        if let Err(why) = &provider {
            violations.add("provider", why.to_string());
        }
        let status = u16::try_from(request.http_status).unwrap_or_default();
        if !(100..=599).contains(&status) {
            violations.add("http_status", format!("{} is not between 100 and 599", request.http_status));
        }
        let endpoint = match pb::Endpoint::try_from(request.endpoint) {
            Ok(pb::Endpoint::Unspecified) => Some(Endpoint::ChatCompletions),
            Ok(wire) => convert::endpoint(wire.into()),
            Err(_) => None,
        };
        if endpoint.is_none() {
            violations.add("endpoint", "is not an endpoint");
        }
        let headers = headers(&request, &mut violations);
        violations.done()?;
        let Ok(provider) = provider else { return Err(Status::internal("unreachable")) };

        let global = self.store.policy("").await.map_err(of_store)?;
        let group = match request.group.as_str() {
            "" => None,
            group => self.store.policy(group).await.map_err(of_store)?,
        };
        let rules = match &global {
            // What is stored was validated when it was written; a rule that an older build took is left out.
            Some(global) => Rules::with_operator(&global.rules).unwrap_or_else(|_| Rules::builtin()),
            None => Rules::builtin(),
        };
        let vendor = (!request.vendor.is_empty()).then_some(request.vendor.as_str());
        let input = Input {
            provider,
            vendor,
            endpoint,
            stream: request.stream,
            evidence: Evidence::Response { status, headers: &headers, body: request.body.as_bytes() },
        };
        let verdict = classify_recorded(&input, &rules, SystemTime::now()).verdict;
        let policy = RequestPolicy::resolve(global.as_ref(), group.as_ref());
        let reaction = policy.reaction(verdict.kind, provider, status);
        let blameless = matches!(verdict.class, Class::Ok | Class::None);
        Ok(ClassifyResponse {
            class: verdict.class.as_str().to_owned(),
            scope: verdict.scope.as_str().to_owned(),
            cause: verdict.cause.map_or(0, |cause| convert::cause_ref(cause).into()),
            confirm: verdict.confirm,
            switches: reaction.switch && !blameless,
            rule_id: verdict.rule.to_string(),
            also_matched: verdict.also.iter().map(ToString::to_string).collect(),
            retry_after: verdict.retry_after.as_ref().map(|hint| convert::duration_ref(hint.read)),
            reason: verdict.reason(),
        })
    }
}

fn headers(request: &ClassifyRequest, violations: &mut Violations) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        match (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            (Ok(name), Ok(value)) => drop(headers.insert(name, value)),
            _ => violations.add(format!("headers.{name}"), "is not a header"),
        }
    }
    headers
}
