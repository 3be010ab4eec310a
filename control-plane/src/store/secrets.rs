//! Keyed hashes of secrets: equality and fingerprints without the secret.

use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{Result, StoreError};

/// This database's random key. Never leaves the store.
#[derive(Clone)]
pub(super) struct SecretKey(Arc<[u8]>);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(<redacted>)")
    }
}

impl SecretKey {
    pub(super) fn new(key: Vec<u8>) -> SecretKey {
        SecretKey(key.into())
    }

    /// A keyed hash of `data`; `purpose` keeps uses apart.
    pub(super) fn hash(&self, purpose: &str, data: &[u8]) -> Result<Vec<u8>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .map_err(|_| StoreError::Corrupt("the settings row secret_key".into()))?;
        mac.update(purpose.as_bytes());
        mac.update(&[0]);
        mac.update(data);
        Ok(mac.finalize().into_bytes().to_vec())
    }

    /// By which equal secrets are found.
    pub(super) fn secret_hash(&self, secret: &str) -> Result<Vec<u8>> {
        self.hash("secret", secret.as_bytes())
    }

    /// The last four characters and a short keyed hash. Of a short secret no character is shown.
    pub(super) fn fingerprint(&self, secret: &str) -> Result<String> {
        let hash = self.secret_hash(secret)?;
        let short: String = hash.iter().take(4).map(|b| format!("{b:02x}")).collect();
        let count = secret.chars().count();
        let tail: String = if count < 12 { "****".into() } else { secret.chars().skip(count - 4).collect() };
        Ok(format!("{tail}-{short}"))
    }
}

/// What can stand in a header.
pub(super) fn check(field: &str, secret: &str) -> Result<()> {
    let problem = if secret.is_empty() {
        "must not be empty"
    } else if secret.len() > 8192 {
        "must not be longer than 8192 bytes"
    } else if !secret.bytes().all(|b| (0x21..=0x7e).contains(&b)) {
        "must be visible ASCII without spaces: it is sent in a header"
    } else {
        return Ok(());
    };
    Err(StoreError::invalid(field, problem))
}
