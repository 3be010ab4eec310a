//! What admin reads: channels with everything known beneath them. Never a secret.

use spareline_proto::registry::v1 as pb;

use super::{ChannelKey, Result, Store};
use crate::decide;

/// Plain filters; unset means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelFilter {
    /// Serves this model.
    pub model: Option<String>,
    /// Is in this group.
    pub group: Option<String>,
    /// Speaks this dialect.
    pub provider: Option<String>,
    /// Is in this state (derived).
    pub state: Option<pb::ServingState>,
}

/// A page of something.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page starts; empty on the last.
    pub next_page_token: String,
    /// The revision it was read at.
    pub revision: i64,
}

impl Store {
    /// One channel, with its credentials and statuses.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn channel(&self, key: &ChannelKey) -> Result<decide::Channel> {
        let _ = key;
        todo!()
    }

    /// A page of channels, newest spec revision first. `page_size` 1 to 1000.
    ///
    /// # Errors
    /// `Invalid` for a page token that is not ours.
    pub async fn channels(
        &self,
        filter: &ChannelFilter,
        page_size: u32,
        page_token: &str,
    ) -> Result<Page<decide::Channel>> {
        let _ = (filter, page_size, page_token);
        todo!()
    }
}
