//! A quick hash for our own maps: ids, and names that operators chose. Not for keys that callers can add.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds [`Quick`].
pub(crate) type QuickBuild = BuildHasherDefault<Quick>;
/// A persistent map with it.
pub(crate) type QuickMap<K, V> = imbl::GenericHashMap<K, V, QuickBuild, imbl::shared_ptr::DefaultSharedPtr>;

/// Multiplies and folds, eight bytes at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quick(u64);

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0.rotate_left(23) ^ n ^ ODD) * u128::from(ODD);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write_i64(&mut self, n: i64) {
        self.write_u64(n.cast_unsigned());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
