//! Pages of a listing: sizes and opaque tokens.
//!
//! A token holds where the next page begins and a hash of the other fields, which must stay the same between pages. It is no
//! secret and no promise: it ends with a checksum so that a mangled one is refused, not misread.

use tonic::Status;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::problem::invalid_field;

const SEED: u64 = 0x7370_6172_656c_696e;

/// Where the next page begins: after the row with these two numbers, in the order of the listing.
pub(super) type Cursor = (i64, i64);

/// 1 to 1000 rows; zero means 100.
pub(super) fn size(asked: i32) -> Result<usize, Status> {
    match usize::try_from(asked) {
        Ok(0) => Ok(100),
        Ok(n) => Ok(n.min(1000)),
        Err(_) => Err(invalid_field("page_size", format!("{asked} is negative"))),
    }
}

/// The token for a page after `cursor`.
pub(super) fn token(cursor: Cursor, filter: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(xxh3_64(filter).to_le_bytes());
    bytes.extend(cursor.0.to_le_bytes());
    bytes.extend(cursor.1.to_le_bytes());
    bytes.extend(xxh3_64_with_seed(&bytes, SEED).to_le_bytes());
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// And back; an empty token is the first page.
pub(super) fn cursor(token: &str, filter: &[u8]) -> Result<Option<Cursor>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    let Some([hash, first, second]) = decode(token) else {
        return Err(invalid_field("page_token", "is not a token of this listing"));
    };
    if hash != xxh3_64(filter).to_le_bytes() {
        return Err(invalid_field("page_token", "belongs to a listing with other filters"));
    }
    Ok(Some((i64::from_le_bytes(first), i64::from_le_bytes(second))))
}

fn decode(token: &str) -> Option<[[u8; 8]; 3]> {
    if token.len() != 64 || !token.is_ascii() {
        return None;
    }
    let bytes: Option<Vec<u8>> = (0..32)
        .map(|i| token.get(2 * i..2 * i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect();
    let bytes = bytes?;
    let (body, sum) = bytes.split_at_checked(24)?;
    if xxh3_64_with_seed(body, SEED).to_le_bytes() != sum {
        return None;
    }
    let word = |i: usize| body.get(8 * i..8 * i + 8)?.try_into().ok();
    Some([word(0)?, word(1)?, word(2)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part5_page_tokens_come_back_and_mangled_ones_do_not() {
        let token = token((7, -3), b"filter");
        assert_eq!(cursor(&token, b"filter").unwrap(), Some((7, -3)));
        assert_eq!(cursor("", b"filter").unwrap(), None);
        assert!(cursor(&token, b"other").unwrap_err().message().contains("other filters"));
        for i in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[i] = if bytes[i] == b'0' { b'1' } else { b'0' };
            assert!(cursor(std::str::from_utf8(&bytes).unwrap(), b"filter").is_err());
        }
        for bad in ["x", "ä", &token[1..], &"ä".repeat(32)] {
            assert_eq!(cursor(bad, b"filter").unwrap_err().code(), tonic::Code::InvalidArgument);
        }
    }

    #[test]
    fn part5_page_sizes() {
        assert_eq!((size(0).unwrap(), size(5).unwrap(), size(5000).unwrap()), (100, 5, 1000));
        assert!(size(-1).unwrap_err().message().contains("page_size"));
    }
}
