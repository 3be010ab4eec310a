//! Page tokens that only fit the listing they came from: with other filters they would skip what was never shown.

use xxhash_rust::xxh3::Xxh3;

use crate::refuse::Violations;

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
