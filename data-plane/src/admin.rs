//! The admin port: `/healthz`, `/readyz`, `/metrics`, `/debug/registry`. It lives on the control thread, so that a
//! scrape of many series never delays a request.

mod debug;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::state::Shared;

/// Serves until the task is dropped.
pub async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let shared = shared.clone();
        let service = service_fn(move |request| {
            let answer = answer(&shared, &request);
            async move { Ok::<_, Infallible>(answer) }
        });
        let served = http.serve_connection(TokioIo::new(socket), service);
        tokio::spawn(async move {
            let _ = served.await;
        });
    }
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" => match shared.readiness() {
            Ok(()) => text(StatusCode::OK, "ready\n"),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        "/metrics" => {
            shared.refresh_gauges();
            match shared.metrics.encode() {
                Ok(metrics) => typed(
                    StatusCode::OK,
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    metrics,
                ),
                Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"),
            }
        }
        "/debug/registry" => typed(StatusCode::OK, "application/json", debug::registry(shared)),
        _ => text(StatusCode::NOT_FOUND, "/healthz, /readyz, /metrics, /debug/registry\n"),
    }
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", body.to_owned())
}

fn typed(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
