//! One request after the other: admission, route, group, body, then the failover loop; and one answer for whatever
//! came of it.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body::Body as _;
use hyper::body::Incoming;
use spareline_core::view::View;

use super::{
    answer::{FrontBody, mark},
    body, cors,
    error::{ApiError, Code, Dialect},
    intake,
    io::Connection,
    models,
    routes::{self, Route},
    through::Through,
    trace,
    watched::Watched,
};
use crate::{
    failover::{self, Worker},
    record::Record,
};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A connection's service.
#[derive(Clone)]
pub(crate) struct Front(Arc<Ends>);

/// What lies behind and before it.
struct Ends {
    worker: Arc<Worker>,
    connection: Arc<Connection>,
}

/// What a request came to, before its answer is dressed.
enum Served {
    /// Bytes of ours.
    Own(Response<Bytes>),
    /// The loop's.
    Loop(Box<failover::Outcome>),
}

impl Front {
    pub(crate) fn new(worker: Arc<Worker>, connection: Arc<Connection>) -> Self {
        Self(Arc::new(Ends { worker, connection }))
    }
}

impl hyper::service::Service<Request<Incoming>> for Front {
    type Response = Response<FrontBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let ends = self.0.clone();
        let chunks = request.version() == http::Version::HTTP_11 && request.method() == http::Method::POST;
        ends.connection.begin(chunks);
        let (mut parts, body) = request.into_parts();
        Box::pin(async move { Ok(ends.answer(&mut parts, body).await) })
    }
}

impl Ends {
    async fn answer(&self, parts: &mut Parts, body: Incoming) -> Response<FrontBody> {
        let shared = &self.worker.shared;
        let dialect = routes::dialect(parts.uri.path());
        let http2 = parts.version == http::Version::HTTP_2;
        let bare = http2 && parts.method == http::Method::HEAD;
        let origin = cors::allowed(&shared.config.cors_origins, &parts.headers);
        let request_id = trace::request_id(&parts.headers);
        let (trace_id, traceparent) = trace::join(&parts.headers);
        let shown_id = HeaderValue::from_str(&request_id).ok();
        // Beside the caller's own, since its map has no room and would be made anew.
        let mut added = Vec::with_capacity(2);
        added.extend(shown_id.clone().map(|id| (trace::REQUEST_ID, id)));
        added.extend(traceparent.map(|parent| (trace::TRACEPARENT, parent)));
        let group = shared.config.group.clone();
        let mut record = Record::begin(self.worker.recorder.clone(), request_id, trace_id, group);
        record.method = parts.method.clone();
        record.path = shortened(parts.uri.path());
        record.idempotency_key = text(parts, &IDEMPOTENCY_KEY);

        let view = shared.view();
        let expects = parts.headers.contains_key(header::EXPECT);
        let mut body = Some(body);
        let served = {
            let mut serving = pin!(self.serve(&view, &mut *parts, added, &mut body, &mut record));
            if http2 {
                // Its own task, which nobody wakes for it.
                tokio::select! {
                    biased;
                    served = serving => served,
                    () = shared.cutting() => Err(shutting_down()),
                }
            } else {
                poll_fn(|cx| match serving.as_mut().poll(cx) {
                    Poll::Pending if self.worker.stopping.is_cut() => Poll::Ready(Err(shutting_down())),
                    polled => polled,
                })
                .await
            }
        };
        let at_once = expects || matches!(&served, Err(error) if error.code == Code::Overloaded);
        let closes = self.leave_unread(body, at_once).await;
        let mut response = match served {
            Ok(Served::Own(response)) => {
                record.status = response.status().as_u16();
                record.finish("complete");
                response.map(FrontBody::from)
            }
            Ok(Served::Loop(outcome)) => self.dress(*outcome, record, dialect, &view, http2),
            Err(error) => refuse(&error, record, dialect, &view),
        };
        if bare {
            response = without_body(response);
        }
        let headers = response.headers_mut();
        if let Some(value) = shown_id {
            headers.insert(trace::REQUEST_ID, value);
        }
        if let Some(origin) = origin {
            cors::decorate(headers, origin);
        }
        if closes && !http2 {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// What to do with a body that nobody wanted. A caller that is still sending would meet a reset before it read our
    /// answer, and its connection would be gone without a word. Answers whether the connection has to end.
    async fn leave_unread(&self, body: Option<Incoming>, at_once: bool) -> bool {
        let Some(body) = body.filter(|body| !body.is_end_stream()) else { return false };
        if at_once {
            // What little is here already is no obstacle.
            return body.size_hint().exact().is_none_or(|size| size > 4096);
        }
        let config = &self.worker.shared.config;
        let limits = body::Limits { size: config.body_limit, silence: config.body_read_timeout };
        !Box::pin(body::discard(body, limits)).await
    }

    async fn serve(
        &self,
        view: &Arc<View>,
        parts: &mut Parts,
        added: Vec<(HeaderName, HeaderValue)>,
        body: &mut Option<Incoming>,
        record: &mut Record,
    ) -> Result<Served, ApiError> {
        let shared = &self.worker.shared;
        let route = routes::route(&parts.method, parts.uri.path(), &parts.headers);
        record.place = Some(shared.admit()?);
        match route {
            Route::Preflight => return self.preflight(parts).map(Served::Own),
            Route::Upgrade => {
                return Err(ApiError::new(Code::EndpointNotSupported, "WebSockets are not supported"));
            }
            Route::Unknown => {
                let text = format!("no such path: {} {}", parts.method, record.path);
                return Err(ApiError::new(Code::EndpointNotAvailable, text));
            }
            Route::WrongMethod(allow) => {
                let text = format!("{} has {allow} only", record.path);
                return Err(ApiError { allow: Some(allow), ..ApiError::new(Code::MethodNotAllowed, text) });
            }
            _ => {}
        }
        record.group = self.group(parts)?;
        if !shared.is_ready() {
            return Err(ApiError::new(
                Code::RegistryNotReady,
                "this proxy has no registry yet, try again shortly",
            )
            .retry_after(Duration::from_secs(1)));
        }
        let policy = view.policy(&record.group);
        let received = if intake::has_body(&parts.method)
            && let Some(body) = body.take()
        {
            let limits =
                body::Limits { size: shared.config.body_limit, silence: shared.config.body_read_timeout };
            Some(body::receive(body, &parts.headers, limits, &shared.budget).await?)
        } else {
            None
        };
        let (bytes, _reservation) = received.map(|r| (r.bytes, r.reservation)).unzip();
        let bytes = bytes.unwrap_or_default();
        record.request_bytes = bytes.len() as u64;
        let mut plan = match route {
            Route::Models => {
                return Ok(Served::Own(models::list(view, &record.group, parts.uri.query(), shared.now())));
            }
            Route::OneModel(id) => {
                return models::one(view, &record.group, &id, shared.now()).map(Served::Own);
            }
            Route::Model { endpoint, path } => {
                record.endpoint = endpoint;
                intake::model_request(parts, bytes, endpoint, &path, record.group.clone(), policy)?
            }
            Route::Stored { path } => intake::stored_request(parts, bytes, &path, record.group.clone()),
            _ => return Err(ApiError::new(Code::Internal, "a route without a handler")),
        };
        record.model =
            if plan.model.len() > 128 { shortened(&plan.model).into() } else { plan.model.clone() };
        record.stream = plan.outgoing.stream;
        plan.outgoing.added = added;
        let outcome = failover::run(shared, &self.worker.clients, &plan, record).await;
        Ok(Served::Loop(Box::new(outcome)))
    }

    fn preflight(&self, parts: &Parts) -> Result<Response<Bytes>, ApiError> {
        if self.worker.shared.config.cors_origins.is_empty() {
            let text = "OPTIONS is for browsers, and no origin is configured";
            return Err(ApiError { allow: Some("GET, POST"), ..ApiError::new(Code::MethodNotAllowed, text) });
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = StatusCode::NO_CONTENT;
        cors::preflight(response.headers_mut(), &parts.headers);
        Ok(response)
    }

    /// Who asks: a configured header, else the proxy's own group.
    fn group(&self, parts: &Parts) -> Result<Arc<str>, ApiError> {
        let config = &self.worker.shared.config;
        let Some(value) = config.group_header.as_ref().and_then(|name| parts.headers.get(name)) else {
            return Ok(config.group.clone());
        };
        let known = config.groups.iter().find(|g| g.as_bytes() == value.as_bytes());
        known
            .cloned()
            .ok_or_else(|| ApiError::new(Code::GroupNotAllowed, "this proxy does not serve that group"))
    }

    /// Turns the loop's outcome into an answer, and hands the record to whatever ends last.
    fn dress(
        &self,
        outcome: failover::Outcome,
        mut record: Record,
        dialect: Dialect,
        view: &View,
        http2: bool,
    ) -> Response<FrontBody> {
        let policy = view.policy(&record.group);
        let attempts = record.attempts_text(policy.expose_channels);
        let channel = record.attempts.last().map(|a| &*a.channel).filter(|_| policy.expose_channels);
        match outcome {
            failover::Outcome::Answer(committed) => {
                self.connection.set_write_timeout(committed.write_timeout);
                // Over HTTP/2 a caller may take nothing of one answer while others flow on the same socket.
                let taker = if http2 {
                    Connection::stream_of(&self.connection, committed.write_timeout)
                } else {
                    self.connection.clone()
                };
                let answer = committed.answer;
                let mut response = Response::new(FrontBody::Full(None));
                *response.status_mut() = answer.status;
                *response.headers_mut() = answer.headers;
                mark(response.headers_mut(), attempts, channel);
                if answer.stream {
                    let headers = response.headers_mut();
                    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
                    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
                }
                record.status = answer.status.as_u16();
                record.first_content = Some(record.started().elapsed());
                let mut body = answer.body;
                failover::watch_body(
                    &self.worker,
                    &mut body,
                    answer.stream,
                    committed.account,
                    record,
                    taker.clone(),
                );
                let through = answer.stream
                    && self.connection.takes_chunks()
                    && !response.headers().contains_key(header::CONTENT_LENGTH);
                *response.body_mut() = if http2 {
                    FrontBody::Watched(Watched::new(body, taker))
                } else if through {
                    FrontBody::Through(Box::new(Through::new(body, taker)))
                } else {
                    FrontBody::Upstream(Box::new(body))
                };
                response
            }
            failover::Outcome::Passed { status, mut headers, body } => {
                mark(&mut headers, attempts, channel);
                let mut response = Response::new(FrontBody::from(body));
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                record.status = status.as_u16();
                record.finish("transparent");
                response
            }
            failover::Outcome::Failed(error) => refuse(&error, record, dialect, view),
        }
    }
}

/// One of our own errors.
fn refuse(error: &ApiError, mut record: Record, dialect: Dialect, view: &View) -> Response<FrontBody> {
    let policy = view.policy(&record.group);
    let entries = record.entries(policy.expose_channels);
    let mut error = error.clone();
    if let Some(text) = policy.error_text.text_for(error.code.as_str()) {
        text.clone_into(&mut error.message);
    }
    let mut response = error.response(dialect, &entries, &record.request_id);
    mark(response.headers_mut(), record.attempts_text(policy.expose_channels), None);
    if error.left {
        // Dropped, the record says so.
        return response.map(FrontBody::from);
    }
    record.status = response.status().as_u16();
    record.code = error.code.as_str();
    record.finish("error");
    response.map(FrontBody::from)
}

/// As HEAD wants it; the library leaves bodies out by itself over HTTP/1 only.
fn without_body(mut response: Response<FrontBody>) -> Response<FrontBody> {
    if let FrontBody::Full(bytes) = response.body_mut()
        && let Some(bytes) = bytes.take()
    {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    }
    response
}

fn shutting_down() -> ApiError {
    ApiError::new(Code::Overloaded, "this proxy is shutting down")
        .retry_after(Duration::from_secs(1))
        .closing()
}

fn shortened(path: &str) -> String {
    let mut end = path.len().min(128);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    path[..end].to_owned()
}

fn text(parts: &Parts, header: &HeaderName) -> Option<String> {
    parts.headers.get(header)?.to_str().ok().map(|v| v.chars().take(128).collect())
}
