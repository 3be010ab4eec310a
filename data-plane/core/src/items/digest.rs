//! One hash per item, so that two sides can prove that they hold the same.
//!
//! The sum over all items is the digest of [`Position`](spareline_proto::dataplane::v1::Position). The form is fixed by
//! golden vectors in the tests: a change of it makes every proxy ask for a snapshot once.

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use super::ItemKey;
use crate::ids::Subject;

/// What one item at one version adds to the sum: xxh3_64 of the kind byte, the id as 8 bytes LE (a text counts as its
/// own xxh3_64), for abilities the model's UTF-8 and the credential id (zero for all) as 8 bytes LE, and the version as
/// 8 bytes LE. Kinds: 1 channel, 2 credential, 3 status, 4 policy.
pub fn item(key: &ItemKey, version: i64) -> u64 {
    match key {
        ItemKey::Channel(id) => plain(1, id.0, version),
        ItemKey::Credential(id) => plain(2, id.0, version),
        ItemKey::Policy(group) => plain(4, xxh3_64(group.as_bytes()).cast_signed(), version),
        ItemKey::Status(Subject::Channel(id)) => plain(3, id.0, version),
        ItemKey::Status(Subject::Credential(id)) => plain(3, id.0, version),
        ItemKey::Status(Subject::Ability { channel, model, credential }) => {
            let mut hash = Xxh3Default::new();
            hash.update(&[3]);
            hash.update(&channel.0.to_le_bytes());
            hash.update(model.as_bytes());
            hash.update(&credential.map_or(0, |c| c.0).to_le_bytes());
            hash.update(&version.to_le_bytes());
            hash.digest()
        }
    }
}

fn plain(kind: u8, id: i64, version: i64) -> u64 {
    let mut bytes = [0; 17];
    bytes[0] = kind;
    bytes[1..9].copy_from_slice(&id.to_le_bytes());
    bytes[9..].copy_from_slice(&version.to_le_bytes());
    xxh3_64(&bytes)
}
