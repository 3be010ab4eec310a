//! Codes: words in any spelling, and numbers that mean something only in their place.

use crate::classify::redact::cut;

/// Where a number was found: the same number means different things in different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::classify) enum Place {
    /// A word: means the same everywhere.
    Word,
    /// `error.code`, `error.type`.
    Error,
    /// `code` beside `message`, without `error`.
    Top,
    /// `base_resp.status_code`.
    BaseResp,
    /// `error_code`.
    ErrorCode,
    /// `header.code`.
    Header,
    /// `errors[].code`.
    Errors,
}

/// A code, type or reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::classify) struct Code {
    pub(in crate::classify) place: Place,
    pub(in crate::classify) text: String,
    /// Of words: how [`normalise`] spells it.
    pub(in crate::classify) plain: String,
}

impl Code {
    pub(in crate::classify) fn word(text: &str) -> Self {
        let text = short(text);
        Self { place: Place::Word, plain: normalise(&text), text }
    }

    pub(in crate::classify) fn number(place: Place, number: &str) -> Self {
        Self { place, text: short(number), plain: String::new() }
    }
}

pub(super) fn short(text: &str) -> String {
    if text.len() <= 128 && !text.bytes().any(|byte| byte.is_ascii_control()) {
        return text.to_owned();
    }
    let mut text = text.chars().filter(|c| !c.is_control()).take(128).collect();
    cut(&mut text, 128);
    text
}

/// A code without case and punctuation: `invalid_api_key`, `InvalidApiKey` and `INVALID-API-KEY` are one.
pub(in crate::classify) fn normalise(code: &str) -> String {
    if !code.is_ascii() {
        return code.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
    }
    let mut plain = code.to_ascii_lowercase();
    plain.retain(|c| c.is_ascii_alphanumeric());
    plain
}
