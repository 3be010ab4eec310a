//! Keyed hashes of secrets: equality and fingerprints without the secret.

/// This database's random key. Never leaves the store.
#[derive(Clone)]
pub(super) struct SecretKey(pub(super) std::sync::Arc<[u8]>);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(<redacted>)")
    }
}
