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

/// Why a secret cannot stand in a header, where it has to; `None`: it can. It is not repeated in the complaint.
pub(crate) fn problem(secret: &str) -> Option<&'static str> {
    if secret.is_empty() {
        Some("is empty")
    } else if secret.len() > 8192 {
        Some("is longer than 8192 bytes")
    } else if !secret.bytes().all(|b| b.is_ascii_graphic()) {
        Some("has blanks or characters that do not fit into a header")
    } else {
        None
    }
}

/// As an error about `field`.
pub(super) fn check(field: &str, secret: &str) -> Result<()> {
    problem(secret).map_or(Ok(()), |problem| Err(StoreError::invalid(field, problem)))
}
