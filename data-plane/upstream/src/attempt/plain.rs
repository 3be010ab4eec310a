//! A 2xx answer that is not taken as a stream: held whole and checked, or relayed where there is nothing to check.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use spareline_core::classify::{self, CountsAt, Evidence, Input, Transport, Verdict};
use spareline_core::commit::Usage;
use spareline_core::sse;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::refused::joined;
use super::timer::Timer;
use super::{Answer, Body, Failed, PLAIN_LIMIT, Run};
use crate::body::Relay;
use crate::budget::Reservation;
use crate::headers::to_caller;
use crate::source::{Incoming, Source};

impl Run<'_> {
    /// JSON, or what should be.
    pub(super) async fn plain(
        mut self,
        status: StatusCode,
        body: Incoming,
        usage_added: bool,
        permit: OwnedSemaphorePermit,
        mut timer: Timer,
    ) -> Result<Answer, Box<Failed>> {
        let Some(mut source) = Source::decoded(body, &mut Arc::make_mut(&mut self.facts).headers) else {
            return Err(self.undecodable());
        };
        let mut reservation = self.attempt.budget.empty();
        let mut parts: Vec<Bytes> = Vec::new();
        let mut length = 0;
        loop {
            let bytes = match timer.run(pin!(source.next())).await {
                Err(limit) => return Err(self.wire(Transport::Timeout(limit))),
                Ok(Some(Err(_))) => return Err(self.wire(Transport::Reset { sent: true })),
                Ok(None) => break,
                Ok(Some(Ok(bytes))) => bytes,
            };
            if !reservation.grow(bytes.len()) {
                return Err(self.overloaded());
            }
            if parts.is_empty() && self.facts.stream && sse::looks_like_events(&bytes) {
                // An event stream under another name.
                drop(reservation);
                return Box::pin(self.hold(status, source, Some(bytes), usage_added, permit, timer)).await;
            }
            length += bytes.len();
            parts.push(bytes);
            if length > PLAIN_LIMIT {
                let held = VecDeque::from(parts);
                return Ok(self.relay(status, held, reservation, source, permit));
            }
        }
        drop((source, permit));
        // Where an answer in JSON was asked for, an empty one is none.
        if status == StatusCode::NO_CONTENT && !self.wants_json() {
            return Ok(self.answer(status, Bytes::new(), Usage::default(), reservation));
        }
        self.checked(status, joined(parts), reservation)
    }

    fn checked(
        self,
        status: StatusCode,
        body: Bytes,
        reservation: Reservation,
    ) -> Result<Answer, Box<Failed>> {
        let counts = self.judged(status, &body)?;
        let usage = Usage::of_answer_at(&body, counts);
        Ok(self.answer(status, body, usage, reservation))
    }

    /// What is wrong with a whole answer.
    pub(super) fn no_answer(&self, status: StatusCode, body: &Bytes) -> Option<Box<Failed>> {
        self.judged(status, body).err()
    }

    /// Where an answer has its counts, if it is one.
    fn judged(&self, status: StatusCode, body: &Bytes) -> Result<CountsAt, Box<Failed>> {
        let evidence = Evidence::Response { status: status.as_u16(), headers: &self.facts.headers, body };
        let input = Input {
            provider: self.facts.provider,
            vendor: self.facts.vendor.as_deref(),
            endpoint: self.facts.endpoint,
            stream: self.insists_on_stream(),
            evidence,
        };
        classify::check_success(&input, self.attempt.rules, self.attempt.now)
            .map_err(|verdict| self.rejected(verdict, status, body.clone()))
    }

    fn rejected(&self, verdict: Box<Verdict>, status: StatusCode, body: Bytes) -> Box<Failed> {
        let mut failed = self.failed(verdict);
        failed.response = Some(self.said(status, body));
        failed
    }

    fn answer(&self, status: StatusCode, body: Bytes, usage: Usage, reservation: Reservation) -> Answer {
        Answer {
            status,
            headers: to_caller(&self.facts.headers),
            body: Body::whole(body, usage, reservation),
            usage,
            first_content: self.started.elapsed(),
            stream: false,
        }
    }

    /// `response_timeout` goes on after the commit; the request's deadline does not.
    fn response_deadline(&self) -> Instant {
        let response = self.attempt.limits.response;
        self.started.checked_add(response).unwrap_or_else(|| self.started + Duration::from_secs(86_400))
    }

    /// Audio, images and the like: committed at the first byte.
    pub(super) async fn opaque(
        self,
        status: StatusCode,
        body: Incoming,
        permit: OwnedSemaphorePermit,
        timer: &mut Timer,
    ) -> Result<Answer, Box<Failed>> {
        let mut source = Source::raw(body);
        let reservation = self.attempt.budget.empty();
        let first = match timer.run(pin!(source.next())).await {
            Err(limit) => return Err(self.wire(Transport::Timeout(limit))),
            Ok(Some(Err(_))) => return Err(self.wire(Transport::Reset { sent: true })),
            Ok(None) => return self.checked(status, Bytes::new(), reservation),
            Ok(Some(Ok(bytes))) => bytes,
        };
        Ok(self.relay(status, VecDeque::from([first]), reservation, source, permit))
    }

    fn relay(
        self,
        status: StatusCode,
        held: VecDeque<Bytes>,
        reservation: Reservation,
        source: Source,
        permit: OwnedSemaphorePermit,
    ) -> Answer {
        let headers = to_caller(&self.facts.headers);
        let first_content = self.started.elapsed();
        let limits = (self.response_deadline(), self.attempt.limits.idle);
        let relay = Relay::new(held, reservation, source, limits, self.facts, permit);
        Answer {
            status,
            headers,
            body: Body::relay(relay),
            usage: Usage::default(),
            first_content,
            stream: false,
        }
    }

    /// An encoding that nobody asked for and that cannot be read: as good as not JSON.
    fn undecodable(&self) -> Box<Failed> {
        self.wire(Transport::NotHttp)
    }
}
