//! What a proxy could not use, so that the digest speaks about what it really serves.

use std::collections::BTreeMap;

use spareline_core::items::{ItemKey, Items, digest};
use spareline_proto::dataplane::v1 as dp;

#[derive(Debug, Default)]
pub(super) struct Rejected {
    items: BTreeMap<ItemKey, dp::Rejection>,
}

impl Rejected {
    /// After a frame that brought `keys` (`None`: everything) was acknowledged: what it brought is settled anew. A
    /// rejection of something that was not sent at that version is not believed.
    pub(super) fn settle(
        &mut self,
        keys: Option<Vec<ItemKey>>,
        rejections: Vec<dp::Rejection>,
        sent: &Items,
    ) {
        match keys {
            None => self.items.clear(),
            Some(keys) => keys.iter().for_each(|key| {
                self.items.remove(key);
            }),
        }
        for rejection in rejections {
            let key = rejection.item.as_ref().and_then(ItemKey::from_ref);
            if let Some(key) = key.filter(|key| sent.version(key) == Some(rejection.version)) {
                self.items.insert(key, rejection);
            }
        }
    }

    /// The digest of what was sent, rejected items counted at the version kept.
    pub(super) fn digest_of(&self, sent: &Items) -> u64 {
        self.items.iter().fold(sent.digest(), |sum, (key, rejection)| {
            let kept = match rejection.kept_version {
                0 => 0,
                version => digest::item(key, version),
            };
            sum.wrapping_sub(digest::item(key, rejection.version)).wrapping_add(kept)
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &dp::Rejection> {
        self.items.values()
    }
}
