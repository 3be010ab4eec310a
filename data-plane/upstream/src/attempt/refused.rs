//! An answer that is not 2xx: read as far as it can be used, and judged.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use spareline_core::classify::Evidence;
use tokio::time::timeout;

use super::timer::Timer;
use super::{Failed, Run};
use crate::source::{Incoming, Source};

/// Most bytes of a refusal that are read, and passed on where it is the request's own fault.
const REFUSED_LIMIT: usize = 1024 * 1024;
/// A refusal whose body does not come is judged by what came.
const REFUSED_WAIT: Duration = Duration::from_secs(5);

impl Run<'_> {
    pub(super) async fn refused(
        &mut self,
        status: StatusCode,
        body: Incoming,
        timer: &mut Timer,
    ) -> Box<Failed> {
        let body = match Source::decoded(body, &mut Arc::make_mut(&mut self.facts).headers) {
            Some(mut source) => {
                let mut parts: Vec<Bytes> = Vec::new();
                let mut left = REFUSED_LIMIT;
                let read = async {
                    while let Some(Ok(bytes)) = source.next().await {
                        let bytes = bytes.slice(..bytes.len().min(left));
                        left -= bytes.len();
                        parts.push(bytes);
                        if left == 0 {
                            break;
                        }
                    }
                };
                let _ = timer.run(pin!(timeout(REFUSED_WAIT, read))).await;
                joined(parts)
            }
            None => Bytes::new(),
        };
        let evidence =
            Evidence::Response { status: status.as_u16(), headers: &self.facts.headers, body: &body };
        let mut failed = self.failed(self.facts.judge(evidence));
        failed.response = Some(self.said(status, body));
        failed
    }
}

/// In one piece; a single part is not copied.
pub(super) fn joined(mut parts: Vec<Bytes>) -> Bytes {
    match parts.len() {
        0 => Bytes::new(),
        1 => parts.swap_remove(0),
        _ => Bytes::from(parts.concat()),
    }
}
