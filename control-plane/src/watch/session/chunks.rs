//! A snapshot in pieces, made as the transport takes them.

use prost::Message as _;
use spareline_core::items::{Item, Items};
use spareline_proto::dataplane::v1 as dp;

use super::MAX_FRAME;

/// What the frame itself may add to its items, and each item to its own size.
const OVERHEAD: usize = 1024;
const PER_ITEM: usize = 6;

#[derive(Debug)]
pub(super) struct Chunks {
    frame: u64,
    position: dp::Position,
    allow_empty: bool,
    items: std::iter::Peekable<std::vec::IntoIter<Item>>,
}

impl Chunks {
    pub(super) fn new(frame: u64, position: dp::Position, items: &Items, allow_empty: bool) -> Self {
        let items: Vec<_> = items.iter().collect();
        Self { frame, position, allow_empty, items: items.into_iter().peekable() }
    }

    /// The next chunk, and whether it is the last.
    pub(super) fn next(&mut self, time: prost_types::Timestamp) -> Option<(dp::SnapshotChunk, bool)> {
        let mut chunk = dp::SnapshotChunk { frame: self.frame, ..Default::default() };
        let mut left = MAX_FRAME - OVERHEAD;
        let mut first = true;
        while let Some(item) = self.items.next_if(|item| first || size(item) <= left) {
            left = left.saturating_sub(size(&item));
            first = false;
            match item {
                Item::Channel(m) => chunk.channels.push((*m).clone()),
                Item::Credential(m) => chunk.credentials.push((*m).clone()),
                Item::Status(m) => chunk.statuses.push((*m).clone()),
                Item::Policy(m) => chunk.policies.push((*m).clone()),
            }
        }
        let last = self.items.peek().is_none();
        if last {
            chunk.last = true;
            chunk.position = Some(self.position.clone());
            chunk.allow_empty = self.allow_empty;
            chunk.server_time = Some(time);
        }
        Some((chunk, last))
    }
}

fn size(item: &Item) -> usize {
    PER_ITEM
        + match item {
            Item::Channel(m) => m.encoded_len(),
            Item::Credential(m) => m.encoded_len(),
            Item::Status(m) => m.encoded_len(),
            Item::Policy(m) => m.encoded_len(),
        }
}
