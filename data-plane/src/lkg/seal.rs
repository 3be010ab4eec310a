//! Sealing: a key of its own for every file, derived from the one key and a random salt, so that no nonce is ever used
//! twice.

use ring::{aead, digest, hkdf, rand::SecureRandom as _};

/// Random bytes that make each file's key its own.
pub(super) const SALT: usize = 32;

/// What files are sealed with.
pub(super) struct Key {
    prk: hkdf::Prk,
    /// Tells keys apart without telling them.
    pub(super) id: [u8; 8],
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(<redacted>)")
    }
}

/// It was sealed with another key, or changed since; or the machine gives no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("the seal does not hold")]
pub(super) struct Broken;

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Key {
    /// From secret material that nobody can guess.
    pub(super) fn new(material: &[u8]) -> Result<Self, Broken> {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"spareline last known good").extract(material);
        let mut id = [0; 8];
        prk.expand(&[b"id"], Length(id.len())).and_then(|okm| okm.fill(&mut id)).map_err(|_| Broken)?;
        Ok(Self { prk, id })
    }

    fn of_file(&self, salt: &[u8]) -> Result<aead::LessSafeKey, Broken> {
        let info = [b"file".as_slice(), salt];
        let okm = self.prk.expand(&info, &aead::CHACHA20_POLY1305).map_err(|_| Broken)?;
        Ok(aead::LessSafeKey::new(aead::UnboundKey::from(okm)))
    }

    /// Seals in place; `around` is protected too, but stays readable.
    pub(super) fn seal(&self, salt: &[u8], around: &[u8], bytes: &mut Vec<u8>) -> Result<(), Broken> {
        let nonce = aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN]);
        self.of_file(salt)?
            .seal_in_place_append_tag(nonce, aead::Aad::from(around), bytes)
            .map_err(|_| Broken)
    }

    /// Opens in place.
    pub(super) fn open<'a>(
        &self,
        salt: &[u8],
        around: &[u8],
        bytes: &'a mut [u8],
    ) -> Result<&'a [u8], Broken> {
        let nonce = aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN]);
        let opened = self.of_file(salt)?.open_in_place(nonce, aead::Aad::from(around), bytes);
        opened.map(|plain| &*plain).map_err(|_| Broken)
    }
}

/// What a sealed text is longer by.
pub(super) fn overhead() -> usize {
    aead::CHACHA20_POLY1305.tag_len()
}

/// Random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Broken> {
    let mut bytes = [0; N];
    ring::rand::SystemRandom::new().fill(&mut bytes).map_err(|_| Broken)?;
    Ok(bytes)
}

/// SHA-256 of parts that follow each other.
pub(super) fn checksum(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    let mut sum = [0; 32];
    sum.copy_from_slice(context.finish().as_ref());
    sum
}

/// As text.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
