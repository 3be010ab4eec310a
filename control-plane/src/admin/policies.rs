//! Policies: how requests are handled, per group and for all.

use spareline_core::policy::effective;
use spareline_proto::admin::v1::policy_admin_service_server::PolicyAdminService;
use spareline_proto::admin::v1::*;
use spareline_proto::registry::v1 as pb;
use tonic::{Request, Response, Status};

use super::{Admin, Answer, actor, check_text, mask, violations_of_policy};
use crate::refuse::{Refusal, Violations, invalid_field, of_store};
use crate::store::Written;

/// Fields that the server sets, and the one that says which.
pub(super) const FIXED: &[&str] = &["group", "revision", "etag"];

#[tonic::async_trait]
impl PolicyAdminService for Admin {
    /// A group that has no policy of its own is answered with what is in force for it, and no `policy`.
    async fn get_policy(&self, request: Request<GetPolicyRequest>) -> Answer<GetPolicyResponse> {
        let group = request.into_inner().group;
        check_group(&group)?;
        let global = self.store.policy("").await.map_err(of_store)?;
        let (policy, effective) = if group.is_empty() {
            let policy = Some(global.clone().unwrap_or_default());
            (policy, effective(global.as_ref(), None))
        } else {
            let own = self.store.policy(&group).await.map_err(of_store)?;
            let named = pb::Policy { group: group.clone(), ..pb::Policy::default() };
            let effective = effective(global.as_ref(), Some(own.as_ref().unwrap_or(&named)));
            (own, effective)
        };
        let effective = Some(pb::Policy { group, ..effective });
        Ok(Response::new(GetPolicyResponse { policy, effective }))
    }

    async fn list_policies(&self, _: Request<ListPoliciesRequest>) -> Answer<ListPoliciesResponse> {
        let policies = self.store.policies().await.map_err(of_store)?;
        Ok(Response::new(ListPoliciesResponse { policies }))
    }

    async fn update_policy(&self, request: Request<UpdatePolicyRequest>) -> Answer<UpdatePolicyResponse> {
        let actor = actor(request.metadata());
        let UpdatePolicyRequest { policy, update_mask, validate_only } = request.into_inner();
        let Some(wanted) = policy else { return Err(invalid_field("policy", "is required")) };
        let mut violations = Violations::default();
        check_text("policy.group", &wanted.group, &mut violations);
        violations.done()?;
        let written: Result<Written<pb::Policy>, Refusal> = self
            .store
            .write(&actor, |tx| {
                Box::pin(async move {
                    if validate_only {
                        tx.dry_run();
                    }
                    let current = tx.policy(&wanted.group).await?.unwrap_or_default();
                    let mut violations = Violations::default();
                    let mut next =
                        mask::apply(&current, &wanted, update_mask.as_ref(), FIXED, &mut violations)?;
                    next.group.clone_from(&wanted.group);
                    violations.extend("policy", violations_of_policy(&next));
                    violations.done()?;
                    next.etag = wanted.etag;
                    Ok(tx.put_policy(next).await?)
                })
            })
            .await;
        let written = written.map_err(Status::from)?;
        Ok(Response::new(UpdatePolicyResponse { policy: Some(written.value) }))
    }

    async fn delete_policy(&self, request: Request<DeletePolicyRequest>) -> Answer<DeletePolicyResponse> {
        let actor = actor(request.metadata());
        let group = request.into_inner().group;
        check_group(&group)?;
        let written: Result<Written<()>, Refusal> =
            self.store.write(&actor, |tx| Box::pin(async move { Ok(tx.delete_policy(&group).await?) })).await;
        let written = written.map_err(Status::from)?;
        Ok(Response::new(DeletePolicyResponse { revision: written.revision }))
    }
}

/// A group that can have a policy; empty: all.
fn check_group(group: &str) -> Result<(), Status> {
    let named = pb::Policy { group: group.to_owned(), ..pb::Policy::default() };
    let mut violations = Violations::default();
    for violation in violations_of_policy(&named) {
        violations.add(violation.field, violation.problem);
    }
    violations.done()
}
