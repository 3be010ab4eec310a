//! The filter of `ListProxies`: terms over `connected`, `lagging`, `build`, `rollout` and `labels.*`, joined by `AND`.
//!
//! A subset of AIP-160 that fits on one line: `connected AND NOT lagging AND labels.zone = "eu-1" AND build != 1.4.2`.
//! There is no `OR` and there are no parentheses; what is not understood is refused with the place it stands at.

use std::collections::BTreeMap;
use std::iter::Peekable;

/// A parsed filter; the empty one lets everything pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter(Vec<Term>);

/// What one term asks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: Field,
    /// The value looked for; for the flags, `true` or `false`.
    value: String,
    negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Connected,
    Lagging,
    Build,
    Rollout,
    Label(String),
}

/// A filter that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{problem} at character {at}; terms are connected, lagging, build = X, rollout = ID, labels.NAME = X, joined by AND"
)]
pub(super) struct BadFilter {
    /// Where, from 1.
    pub(super) at: usize,
    /// What is wrong there.
    pub(super) problem: String,
}

/// What a filter looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// Whether a session is open.
    pub(super) connected: bool,
    /// Whether it serves something else than it should.
    pub(super) lagging: bool,
    /// The build it said it is.
    pub(super) build: &'a str,
    /// The rollouts whose cohort it is in.
    pub(super) rollouts: &'a [String],
    /// Its labels.
    pub(super) labels: &'a BTreeMap<String, String>,
}

// === impl Filter ===

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// When a field is unknown, a value is missing, or terms are joined by anything but `AND`.
    pub(super) fn parse(text: &str) -> Result<Self, BadFilter> {
        let tokens = tokens(text)?;
        let mut tokens = tokens.into_iter().peekable();
        let mut terms = Vec::new();
        while tokens.peek().is_some() {
            if !terms.is_empty() {
                let (at, token) = tokens.next().unwrap_or((text.len(), Token::Word(String::new())));
                if !matches!(&token, Token::Word(word) if word.eq_ignore_ascii_case("and")) {
                    return Err(BadFilter { at: at + 1, problem: "expected AND".into() });
                }
            }
            terms.push(term(&mut tokens, text.len())?);
        }
        Ok(Self(terms))
    }

    /// Whether a proxy passes.
    pub(super) fn matches(&self, facts: Facts<'_>) -> bool {
        self.0.iter().all(|term| term.matches(facts))
    }
}

// === impl Term ===

impl Term {
    fn matches(&self, facts: Facts<'_>) -> bool {
        let equal = match &self.field {
            Field::Connected => facts.connected == (self.value == "true"),
            Field::Lagging => facts.lagging == (self.value == "true"),
            Field::Build => facts.build == self.value,
            Field::Rollout => facts.rollouts.contains(&self.value),
            Field::Label(name) => facts.labels.get(name).is_some_and(|value| *value == self.value),
        };
        equal != self.negated
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Quoted(String),
    Equal,
    NotEqual,
    Not,
}

fn term(tokens: &mut Peekable<impl Iterator<Item = (usize, Token)>>, end: usize) -> Result<Term, BadFilter> {
    let bad = |at: usize, problem: &str| BadFilter { at: at + 1, problem: problem.into() };
    let mut negated = false;
    let (at, name) = loop {
        match tokens.next() {
            Some((_, Token::Not)) => negated = !negated,
            Some((_, Token::Word(word))) if word.eq_ignore_ascii_case("not") => negated = !negated,
            Some((at, Token::Word(word))) => break (at, word),
            Some((at, _)) => return Err(bad(at, "expected a field")),
            None => return Err(bad(end, "expected a field")),
        }
    };
    let (field, flag) = match name.as_str() {
        "connected" => (Field::Connected, true),
        "lagging" => (Field::Lagging, true),
        "build" => (Field::Build, false),
        "rollout" => (Field::Rollout, false),
        other => match other.strip_prefix("labels.") {
            Some(label) if !label.is_empty() => (Field::Label(label.to_owned()), false),
            _ => return Err(bad(at, &format!("unknown field `{other}`"))),
        },
    };
    match tokens.peek() {
        Some((_, Token::Equal)) => {}
        Some((_, Token::NotEqual)) => negated = !negated,
        _ if flag => return Ok(Term { field, value: "true".into(), negated }),
        _ => return Err(bad(at, &format!("`{name}` needs `= VALUE`"))),
    }
    tokens.next();
    match tokens.next() {
        Some((at, Token::Word(value))) if flag && value != "true" && value != "false" => {
            Err(bad(at, "expected true or false"))
        }
        Some((_, Token::Word(value) | Token::Quoted(value))) => Ok(Term { field, value, negated }),
        Some((at, _)) => Err(bad(at, "expected a value")),
        None => Err(bad(end, "expected a value")),
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, BadFilter> {
    let mut found = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            '=' => found.push((at, Token::Equal)),
            '-' => found.push((at, Token::Not)),
            '!' if chars.next_if(|(_, c)| *c == '=').is_some() => found.push((at, Token::NotEqual)),
            '"' => {
                let mut value = String::new();
                loop {
                    match chars.next() {
                        Some((_, '"')) => break,
                        Some((_, '\\')) => value.extend(chars.next().map(|(_, c)| c)),
                        Some((_, c)) => value.push(c),
                        None => return Err(BadFilter { at: at + 1, problem: "unfinished quote".into() }),
                    }
                }
                found.push((at, Token::Quoted(value)));
            }
            c if word_char(c) => {
                let mut word = String::from(c);
                while let Some((_, c)) = chars.next_if(|(_, c)| word_char(*c) || *c == '-') {
                    word.push(c);
                }
                found.push((at, Token::Word(word)));
            }
            c => return Err(BadFilter { at: at + 1, problem: format!("unexpected `{c}`") }),
        }
    }
    Ok(found)
}

fn word_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '/' | ':' | '@')
}

#[cfg(test)]
mod tests;
