//! One file: a header that anybody can check, and a sealed registry.
//!
//! ```text
//! 0  magic          8   SPRLNLKG
//! 8  format         4   little-endian, as all numbers
//! 12 sequence       8   one more with every write: the newer file wins
//! 20 sealed length  8   what follows the header
//! 28 key id         8   which key it was sealed with
//! 36 salt          32
//! 68 checksum      32   SHA-256 of bytes 0 to 68 and of the sealed part
//! 100 sealed            the message [`Kept`]; bytes 0 to 68 are authenticated with it
//! ```
//! Magic and format stay where they are in every format to come.

use prost::Message as _;
use prost_types::Timestamp;
use spareline_core::items::{Item, Items};
use spareline_proto::dataplane::v1 as dp;

use super::seal::{self, Key, SALT};

/// The format written, and the only one read.
pub(super) const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"SPRLNLKG";
const SUMMED: usize = 68;
const HEADER: usize = 100;

/// What is kept.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Kept {
    /// Every item, with the position held.
    #[prost(message, optional, tag = "1")]
    pub(super) registry: Option<dp::SnapshotChunk>,
    /// The groups it was narrowed to, sorted.
    #[prost(string, repeated, tag = "2")]
    pub(super) groups: Vec<String>,
    /// When it was last known to be current, by the local clock.
    #[prost(message, optional, tag = "3")]
    pub(super) confirmed: Option<Timestamp>,
    /// When it was written, by the local clock.
    #[prost(message, optional, tag = "4")]
    pub(super) written: Option<Timestamp>,
    /// How far the server's clock was ahead of ours.
    #[prost(sint64, tag = "5")]
    pub(super) clock_offset_ms: i64,
    /// Who wrote it, for humans.
    #[prost(string, tag = "6")]
    pub(super) build: String,
}

/// Why a file is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// It is cut, or longer than it says.
    #[error("{have} bytes where {wanted} were written")]
    Length {
        /// What is there.
        have: u64,
        /// What should be.
        wanted: u64,
    },
    /// Something else.
    #[error("not a registry file")]
    NotOurs,
    /// From another build.
    #[error("written in format {0}, this build reads format {FORMAT}")]
    Format(u32),
    /// Damaged.
    #[error("the checksum does not match")]
    Checksum,
    /// Sealed with a key that is not ours.
    #[error("sealed with another key")]
    OtherKey,
    /// The checksum holds, but the seal does not.
    #[error("the seal does not hold: it was changed on purpose")]
    Seal,
    /// What was sealed is not a registry.
    #[error("holds no registry: {0}")]
    Content(String),
    /// The items do not add up to the position.
    #[error("the registry inside has digest {have:016x}, not {wanted:016x}")]
    Digest {
        /// Of the items.
        have: u64,
        /// Of the position.
        wanted: u64,
    },
    /// Another proxy's.
    #[error("written for the groups {0}")]
    Groups(String),
    /// From a control plane where none is used, or the other way round.
    #[error("from {0}")]
    Origin(&'static str),
    /// Nothing in it can be used by this build.
    #[error("none of its {0} channels can be used by this build")]
    Unusable(usize),
}

impl Refusal {
    /// Whether the file is broken, and not just somebody else's.
    pub(super) fn is_damage(&self) -> bool {
        !matches!(
            self,
            Self::Format(_) | Self::OtherKey | Self::Groups(_) | Self::Origin(_) | Self::Unusable(_)
        )
    }
}

/// A file whose checksum holds; nothing inside was looked at yet.
#[derive(Debug)]
pub(super) struct Whole {
    bytes: Vec<u8>,
    /// The newer file has the higher one.
    pub(super) sequence: u64,
    /// What tells its content from any other.
    pub(super) checksum: [u8; 32],
}

/// What a file held.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) kept: Kept,
    pub(super) items: Items,
    pub(super) position: dp::Position,
}

/// The bytes of a file.
pub(super) fn encode(kept: &Kept, sequence: u64, key: &Key) -> Result<Vec<u8>, seal::Broken> {
    let mut sealed = Vec::with_capacity(kept.encoded_len() + seal::overhead());
    // Grows as needed: it cannot fail.
    let _ = kept.encode(&mut sealed);
    let salt: [u8; SALT] = seal::random()?;
    let length = (sealed.len() + seal::overhead()) as u64;
    let mut file = Vec::with_capacity(HEADER + sealed.len() + seal::overhead());
    file.extend(MAGIC);
    file.extend(FORMAT.to_le_bytes());
    file.extend(sequence.to_le_bytes());
    file.extend(length.to_le_bytes());
    file.extend(key.id);
    file.extend(salt);
    key.seal(&salt, &file, &mut sealed)?;
    let sum = seal::checksum(&[&file, &sealed]);
    file.extend(sum);
    file.extend(sealed);
    Ok(file)
}

/// Checks a file from outside.
pub(super) fn check(bytes: Vec<u8>) -> Result<Whole, Refusal> {
    let have = bytes.len() as u64;
    let short = Refusal::Length { have, wanted: HEADER as u64 };
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(short.clone())?;
    if *magic != MAGIC {
        return Err(Refusal::NotOurs);
    }
    let (format, rest) = rest.split_first_chunk::<4>().ok_or(short.clone())?;
    let format = u32::from_le_bytes(*format);
    if format != FORMAT {
        return Err(Refusal::Format(format));
    }
    let (sequence, rest) = rest.split_first_chunk::<8>().ok_or(short.clone())?;
    let (length, _) = rest.split_first_chunk::<8>().ok_or(short.clone())?;
    let wanted = u64::from_le_bytes(*length).saturating_add(HEADER as u64);
    if have != wanted {
        return Err(Refusal::Length { have, wanted });
    }
    let (summed, rest) = bytes.split_at_checked(SUMMED).ok_or(short.clone())?;
    let (checksum, sealed) = rest.split_first_chunk::<32>().ok_or(short)?;
    if seal::checksum(&[summed, sealed]) != *checksum {
        return Err(Refusal::Checksum);
    }
    let (sequence, checksum) = (u64::from_le_bytes(*sequence), *checksum);
    Ok(Whole { bytes, sequence, checksum })
}

impl Whole {
    /// Opens it and checks what is inside.
    pub(super) fn open(mut self, key: &Key) -> Result<Opened, Refusal> {
        let (header, sealed) = self.bytes.split_at_mut_checked(HEADER).ok_or(Refusal::NotOurs)?;
        let around = header.get(..SUMMED).unwrap_or_default();
        if around.get(28..36) != Some(&key.id) {
            return Err(Refusal::OtherKey);
        }
        let salt = around.get(36..).unwrap_or_default();
        let plain = key.open(salt, around, sealed).map_err(|_| Refusal::Seal)?;
        let mut kept = Kept::decode(plain).map_err(|why| Refusal::Content(why.to_string()))?;
        let registry = kept.registry.take().unwrap_or_default();
        let position = registry.position.clone().ok_or_else(|| Refusal::Content("no position".into()))?;
        let items = items(registry);
        let (have, wanted) = (items.digest(), position.digest);
        if have != wanted {
            return Err(Refusal::Digest { have, wanted });
        }
        Ok(Opened { kept, items, position })
    }
}

fn items(registry: dp::SnapshotChunk) -> Items {
    let policies = registry.policies.into_iter().map(|m| Item::Policy(m.into()));
    let credentials = registry.credentials.into_iter().map(|m| Item::Credential(m.into()));
    let channels = registry.channels.into_iter().map(|m| Item::Channel(m.into()));
    let statuses = registry.statuses.into_iter().map(|m| Item::Status(m.into()));
    policies.chain(credentials).chain(channels).chain(statuses).collect()
}
