//! Pages of listings: how long they are, and tokens that only fit the listing they came from, since with other filters they would
//! skip what was never shown.

use tonic::Status;
use xxhash_rust::xxh3::Xxh3;

use crate::refuse::{Violations, invalid_field};

/// Rows of a page of small things, and of things that hold whole channels: usual, at most.
pub(crate) const ROWS: (u32, u32) = (100, 1000);
pub(super) const SPECS: (u32, u32) = (20, 100);

/// How many rows a page has: as asked for, `usual` where nobody asked, at most `most`.
pub(crate) fn size(asked: i32, (usual, most): (u32, u32)) -> Result<u32, Status> {
    match u32::try_from(asked) {
        Ok(0) => Ok(usual),
        Ok(n) => Ok(n.min(most)),
        Err(_) => Err(invalid_field("page_size", format!("{asked} is negative"))),
    }
}

/// Where the next page of a listing starts, for its caller; empty on the last page.
///
/// `question`: everything that was asked, but for the page.
pub(super) fn seal(place: &str, listing: &str, question: &[u8]) -> String {
    if place.is_empty() { String::new() } else { format!("{:016x}.{place}", hash(listing, question)) }
}

/// The place in a token; the start for none, or for one that is not from this listing, which is noted.
pub(super) fn open<'t>(
    token: &'t str,
    listing: &str,
    question: &[u8],
    violations: &mut Violations,
) -> &'t str {
    if token.is_empty() {
        return token;
    }
    let ours = format!("{:016x}", hash(listing, question));
    match token.split_once('.').filter(|(seal, _)| *seal == ours) {
        Some((_, place)) => place,
        None => {
            violations.add("page_token", "is not from a page of this listing with these filters");
            ""
        }
    }
}

fn hash(listing: &str, question: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(listing.as_bytes());
    hasher.update(question);
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part5_pages_are_as_long_as_asked_and_tokens_fit_their_listing_only() {
        assert_eq!([0, 1, 20, 5000].map(|asked| size(asked, ROWS).unwrap()), [100, 1, 20, 1000]);
        assert_eq!([0, 1, 5000].map(|asked| size(asked, SPECS).unwrap()), [20, 1, 100]);
        assert!(size(-1, ROWS).unwrap_err().message().contains("negative"));

        let token = seal("7.2", "events", b"kind");
        let read = |listing, question: &[u8]| {
            let mut violations = Violations::default();
            let place = open(&token, listing, question, &mut violations).to_owned();
            (place, violations.done().is_ok())
        };
        assert_eq!(read("events", b"kind"), ("7.2".to_owned(), true));
        assert_eq!(read("events", b"other"), (String::new(), false));
        assert_eq!(read("channels", b"kind"), (String::new(), false));
        assert_eq!(seal("", "events", b"kind"), "", "the last page has no next one");
    }
}
