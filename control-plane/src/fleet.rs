//! `FleetService`: which proxies there are, what they serve, and whether all have caught up.
//!
//! Rows of the database for the whole fleet, overlaid with what this replica knows first-hand of its own sessions. A
//! proxy is up to date when the digest it acknowledged equals that of what it should serve.

mod filter;
mod roster;
mod wait;

use std::collections::BTreeMap;
use std::time::Duration;

use spareline_proto::admin::v1 as pb;
use spareline_proto::admin::v1::fleet_service_server::{FleetService as Service, FleetServiceServer};
use tonic::{Code, Request, Response, Status};

use crate::admin::page;
use crate::refuse::{Violations, of_store, refused};
use crate::store::Store;
use crate::watch::Presence;
use crate::world::Worlds;
use filter::{Facts, Filter};
use roster::{Entry, Roster};

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct FleetService {
    store: Store,
    worlds: Worlds,
    presence: Presence,
}

impl FleetService {
    /// Reads from these.
    pub(crate) fn new(store: Store, worlds: Worlds, presence: Presence) -> Self {
        Self { store, worlds, presence }
    }

    /// To be mounted.
    pub(crate) fn into_server(self) -> FleetServiceServer<Self> {
        FleetServiceServer::new(self)
    }

    async fn roster(&self) -> Result<Roster, Status> {
        let world = self.worlds.current();
        let (rows, now) = self.store.proxies().await.map_err(of_store)?;
        Ok(Roster::new(rows, now, self.presence.sessions(), self.presence.replica_id(), world, &self.worlds))
    }
}

#[tonic::async_trait]
impl Service for FleetService {
    async fn list_proxies(
        &self,
        request: Request<pb::ListProxiesRequest>,
    ) -> Result<Response<pb::ListProxiesResponse>, Status> {
        let request = request.into_inner();
        let mut violations = Violations::default();
        let size = page::size(request.page_size, page::ROWS)? as usize;
        let filter = Filter::parse(&request.filter).unwrap_or_else(|error| {
            violations.add("filter", error.to_string());
            Filter::default()
        });
        let after = (!request.page_token.is_empty())
            .then(|| roster::read_token(&request.page_token, &request.filter));
        if after == Some(None) {
            violations.add("page_token", "is not from a page of this listing");
        }
        violations.done()?;

        let roster = self.roster().await?;
        let mut entries: Vec<&Entry> = roster.entries.iter().filter(|e| e.passes(&filter)).collect();
        entries.sort_by_key(|e| e.order());
        if let Some(Some(after)) = after {
            entries.retain(|e| e.order() > after);
        }
        let more = entries.len() > size;
        entries.truncate(size);
        let next_page_token = match entries.last() {
            Some(last) if more => roster::token(&last.order(), &request.filter),
            _ => String::new(),
        };
        let proxies = entries.into_iter().map(|e| e.proxy.clone()).collect();
        Ok(Response::new(pb::ListProxiesResponse { proxies, next_page_token }))
    }

    async fn get_proxy(
        &self,
        request: Request<pb::GetProxyRequest>,
    ) -> Result<Response<pb::GetProxyResponse>, Status> {
        let id = request.into_inner().proxy_id;
        let mut violations = Violations::default();
        if id.is_empty() {
            violations.add("proxy_id", "is required");
        }
        violations.done()?;
        let roster = self.roster().await?;
        let of_id = roster.entries.into_iter().filter(|e| e.proxy_id() == id);
        // Where two live instances share the id, the one that connected last.
        let found = of_id.max_by_key(|e| (e.proxy.connected, e.opened)).map(|e| e.proxy);
        match found {
            Some(proxy) => Ok(Response::new(pb::GetProxyResponse { proxy: Some(proxy) })),
            None => Err(refused(Code::NotFound, "not_found", format!("proxy {id} not found"))),
        }
    }

    async fn get_fleet_summary(
        &self,
        _: Request<pb::GetFleetSummaryRequest>,
    ) -> Result<Response<pb::GetFleetSummaryResponse>, Status> {
        let head = self.store.head().await.map_err(of_store)?;
        let roster = self.roster().await?;
        let connected: Vec<_> = roster.entries.iter().filter(|e| e.proxy.connected).collect();
        let count = |wanted: fn(&Entry) -> bool| {
            i32::try_from(connected.iter().filter(|e| wanted(e)).count()).unwrap_or(i32::MAX)
        };
        Ok(Response::new(pb::GetFleetSummaryResponse {
            head_revision: head.revision,
            connected: count(|_| true),
            current: count(|e| e.current),
            rejecting: count(|e| !e.proxy.rejections.is_empty()),
            min_applied_revision: connected.iter().map(|e| e.applied_revision()).min().unwrap_or(0),
        }))
    }

    async fn wait_for_revision(
        &self,
        request: Request<pb::WaitForRevisionRequest>,
    ) -> Result<Response<pb::WaitForRevisionResponse>, Status> {
        let request = request.into_inner();
        let mut violations = Violations::default();
        if request.revision < 0 {
            violations.add("revision", "must not be negative");
        }
        let limit = match request.timeout.map(Duration::try_from) {
            None => Duration::from_secs(10),
            Some(Ok(limit)) if limit <= wait::LONGEST => limit,
            Some(_) => {
                violations.add("timeout", "must lie between 0 and 600 s");
                Duration::ZERO
            }
        };
        violations.done()?;
        wait::for_revision(self, request.revision, limit).await.map(Response::new)
    }
}

impl Entry {
    fn passes(&self, filter: &Filter) -> bool {
        let node = self.proxy.node.as_ref();
        let none = BTreeMap::new();
        filter.matches(Facts {
            connected: self.proxy.connected,
            lagging: self.proxy.connected && !self.current,
            build: node.map_or("", |n| n.build.as_str()),
            rollouts: &self.proxy.rollout_ids,
            labels: node.map_or(&none, |n| &n.labels),
        })
    }
}

#[cfg(test)]
mod tests;
