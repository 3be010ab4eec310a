//! The audit log, which is also what replicas follow.

use spareline_proto::admin::v1 as admin;

use super::{ChannelKey, Page, Result, Store};

/// Plain filters; unset means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// About this channel, or something beneath it.
    pub channel: Option<ChannelKey>,
    /// Of this kind.
    pub kind: Option<String>,
}

/// One event of a transaction under way.
#[derive(Clone, Debug)]
pub(super) struct Event {}

impl Store {
    /// A page of events, newest first. `page_size` 1 to 1000.
    ///
    /// # Errors
    /// `Invalid` for a page token that is not ours; `NotFound` for a channel never known.
    pub async fn events(
        &self,
        filter: &EventFilter,
        page_size: u32,
        page_token: &str,
    ) -> Result<Page<admin::Event>> {
        let _ = (filter, page_size, page_token);
        todo!()
    }
}
