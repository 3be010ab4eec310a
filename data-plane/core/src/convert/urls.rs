//! URLs that operators write. What is wrong with one is never said with its text: it may hold a secret.

#[cfg(test)]
mod tests;

use url::Url;

use super::check::{Check, Violation};

/// Longest URL, in bytes.
const LONGEST: usize = 2048;

/// Paths of endpoints, as people paste them behind a base URL.
const ENDPOINTS: [&str; 13] = [
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/responses",
    "/messages",
    "/models",
    "/moderations",
    "/rerank",
    "/images/generations",
    "/images/edits",
    "/audio/speech",
    "/audio/transcriptions",
    "/audio/translations",
];

/// http or https, a host, nothing secret.
pub(super) fn base_url(check: &mut Check, text: &str) -> Option<Url> {
    let url = web_url(check, "base_url", text)?;
    let before = check.violations.len();
    if url.query_pairs().any(|(name, _)| names_a_secret(&name)) {
        check.add("base_url", "must not carry a secret in its query: add it as a credential");
    }
    (check.violations.len() == before).then_some(url)
}

pub(super) fn web_url(check: &mut Check, field: &str, text: &str) -> Option<Url> {
    let before = check.violations.len();
    if text.len() > LONGEST {
        check.add(field, format!("must be at most {LONGEST} bytes"));
        return None;
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        check.add(field, "must not have spaces or control characters");
        return None;
    }
    let begins =
        |scheme: &str| text.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
    if !begins("http://") && !begins("https://") {
        check.add(field, "must start with http:// or https://, such as https://api.example.com");
        return None;
    }
    match Url::parse(text) {
        Err(e) => check.add(field, format!("must be a URL such as https://api.example.com: {e}")),
        Ok(url) => {
            if !url.username().is_empty() || url.password().is_some() {
                check.add(field, "must not carry a user or a password");
            }
            if url.fragment().is_some() {
                check.add(field, "must not have a fragment");
            }
            if text.contains('\\') {
                check.add(field, "must not have a backslash");
            }
            if url.host_str().is_none_or(str::is_empty) {
                check.add(field, "must have a host");
            }
            if url.port() == Some(0) {
                check.add(field, "must not name port 0");
            }
            return (check.violations.len() == before).then_some(url);
        }
    }
    None
}

fn names_a_secret(parameter: &str) -> bool {
    let name = parameter.to_ascii_lowercase();
    ["key", "token", "secret", "passw", "auth", "credential", "sig"].iter().any(|word| name.contains(word))
}

/// What can only be a mistake in a base URL that works all the same or never can: an endpoint's path at its end, a version or a
/// slash twice in a row. Asked where somebody writes one; what is stored already stays as it is.
pub fn mistaken(base_url: &str) -> Option<Violation> {
    let url = Url::parse(base_url).ok()?;
    let path = url.path().trim_end_matches('/');
    let problem = if let Some(shorter) = without_endpoint(path) {
        let endpoint = path.strip_prefix(shorter).unwrap_or_default();
        let ends = match shorter.rsplit('/').next() {
            Some(last) if !last.is_empty() => format!("ends in /{last}"),
            _ => "ends with the host".to_owned(),
        };
        format!("ends in {endpoint}, which is one endpoint of the API: leave that off, so that it {ends}")
    } else {
        let segments: Vec<&str> = path.split('/').collect();
        let mut pairs = segments.windows(2);
        // `/https://host` is how some relays are told where to.
        let empty = |two: &[&str]| two[1].is_empty() && !two[0].ends_with(':');
        match pairs.find(|two| empty(two) || (two[0] == two[1] && is_version(two[0])))? {
            [_, ""] => "has // in its path: write / once".to_owned(),
            twice => format!("has /{0}/{0} in it: write /{0} once", twice[0]),
        }
    };
    Some(Violation::new("base_url", problem))
}

/// A base URL's path without the endpoint's path at its end, if it has one: behind a version, or `/chat/completions` anywhere. A path
/// such as `/models` alone is a prefix that some upstreams have. Neither ends in a slash.
pub fn without_endpoint(path: &str) -> Option<&str> {
    let shorter = |endpoint: &&str| path.strip_suffix(*endpoint);
    let plain = |shorter: &&str| shorter.rsplit('/').next().is_some_and(is_version);
    let whole = path.strip_suffix(ENDPOINTS[0]);
    whole.or_else(|| ENDPOINTS.iter().find_map(|endpoint| shorter(endpoint).filter(plain)))
}

/// Whether a path's segment is a version, such as `v1` or `v1beta`.
pub fn is_version(segment: &str) -> bool {
    let mut bytes = segment.bytes();
    matches!(bytes.next(), Some(b'v' | b'V')) && bytes.next().is_some_and(|digit| digit.is_ascii_digit())
}
