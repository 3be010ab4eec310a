//! What stands before the services: what is answered while there is nothing behind it yet, how long a call may take, and
//! the pages for machines: `/metrics`, `/healthz`, `/readyz`.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response, StatusCode, header};
use tonic::service::Routes;
use tonic::{Code, Status};

use crate::metrics::Metrics;
use crate::refuse::refused;

/// How long a call may take until its answer begins: longer than any statement, so that only a database that fell silent
/// reaches it.
const ANSWER: Duration = Duration::from_secs(15);
/// The same for calls that wait for something else on purpose: the fleet, or a provider.
const PATIENT: (Duration, [&str; 3]) =
    (Duration::from_secs(11 * 60), ["/WaitForRevision", "/ProbeNow", "/AddCredential"]);

/// Routes that may not be there yet. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    routes: Arc<OnceLock<Routes>>,
    metrics: Arc<Metrics>,
    pages: bool,
}

impl Gate {
    /// Answers UNAVAILABLE to every call; with pages or without.
    pub(super) fn closed(metrics: Arc<Metrics>, pages: bool) -> Self {
        Self { routes: Arc::default(), metrics, pages }
    }

    /// From now on calls go through; opened once, it stays open.
    pub(super) fn open(&self, routes: Routes) {
        // A second set of routes would be a fault of ours; the first one is kept.
        let _ = self.routes.set(routes.prepare());
    }

    /// Whether it answers `/metrics` and the like.
    pub(super) fn has_pages(&self) -> bool {
        self.pages
    }

    fn page(&self, path: &str) -> Option<Response<Body>> {
        let text = |status, text: &str| page(status, "text/plain; charset=utf-8", text.to_owned());
        match path {
            _ if !self.pages => None,
            "/metrics" => Some(match self.metrics.encode() {
                Ok(metrics) => page(
                    StatusCode::OK,
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    metrics,
                ),
                Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"),
            }),
            "/healthz" => Some(text(StatusCode::OK, "ok\n")),
            "/readyz" if self.metrics.database_up.get() == 1 => Some(text(StatusCode::OK, "ready\n")),
            "/readyz" => Some(text(StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n")),
            _ => None,
        }
    }
}

fn page(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(Bytes::from(text))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

impl Service<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Routes are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        if let Some(page) = self.page(path) {
            return Box::pin(async { Ok(page) });
        }
        let patient = PATIENT.1.iter().any(|name| path.ends_with(name));
        let limit = if patient { PATIENT.0 } else { ANSWER };
        let Some(routes) = self.routes.get() else {
            let status = Status::unavailable("the control plane waits for its database: try again later");
            return Box::pin(async { Ok(status.into_http()) });
        };
        let answer = routes.clone().call(request);
        let metrics = self.metrics.clone();
        Box::pin(async move {
            if let Ok(answer) = tokio::time::timeout(limit, answer).await {
                return answer;
            }
            metrics.calls_unanswered.inc();
            let message = "the database is unavailable: it did not answer in time; what was asked for may still happen, \
                           try again later";
            Ok(refused(Code::Unavailable, "database_unavailable", message).into_http())
        })
    }
}
