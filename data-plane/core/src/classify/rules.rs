//! The built-in rules: data with ids, tried in order, the first hit wins. The files below hold the data; this one how a
//! rule is written and looked up.
//!
//! Order: quoted and special answers, endpoints and objects, anchored phrases, codes (dead, model, request, overload,
//! rate), words of unknown codes, status. Within one body an earlier rule beats a later one wherever it stands in the
//! text.

mod codes;
mod endpoints;
mod numbers;
mod phrases;
mod special;
mod status;
mod words;

use std::collections::HashMap;
use std::sync::OnceLock;

use super::facts::{Code, Facts, Place, Shape, normalise};
use crate::words::{Cause, Class};

/// One rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) id: &'static str,
    /// Whose answers it reads; empty: everybody's. An unknown vendor may be anybody.
    pub(super) vendors: &'static [&'static str],
    /// Inclusive ranges of effective statuses; empty: any. Zero: a 2xx answer that names no status.
    pub(super) on: &'static [(u16, u16)],
    pub(super) find: Find,
    pub(super) class: Class,
    pub(super) cause: Option<Cause>,
    /// Only a probe makes it true for the fleet.
    pub(super) confirm: bool,
}

/// What a rule looks for.
#[derive(Debug)]
pub(super) enum Find {
    /// Codes by spelling-insensitive name; `abc*` and `*abc` match the start and the end.
    Codes(&'static [&'static str]),
    /// Numbers in one place of the body.
    Numbers(Place, &'static [&'static str]),
    /// The start of the error's own message: `*` is one word or quoted name, `…` up to 80 bytes; a `$` at the end
    /// means that nothing may follow. ASCII case does not matter.
    Start(&'static [&'static str]),
    /// Words of a code nobody listed: one of each set.
    Words(&'static [&'static [&'static str]]),
    /// Whatever the function sees.
    If(Test),
}

/// Looks at the facts and the effective status.
type Test = fn(&Facts, u16) -> bool;

/// Where a rule hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hit {
    /// Its place in the order.
    pub(super) rule: usize,
    /// Which of its entries.
    pub(super) entry: usize,
    /// Which of the body's codes, where it was one.
    pub(super) code: Option<usize>,
}

/// All rules, in order.
pub(super) fn all() -> &'static [&'static Rule] {
    &index().rules
}

const fn rule(id: &'static str, find: Find, class: Class) -> Rule {
    let confirm = matches!(class, Class::ModelUnavailable);
    Rule { id, vendors: &[], on: &[], find, class, cause: None, confirm }
}

const fn dead(id: &'static str, cause: Cause, find: Find) -> Rule {
    Rule { cause: Some(cause), ..rule(id, find, Class::Disable) }
}

// === impl Rule ===

impl Rule {
    const fn of(self, vendors: &'static [&'static str]) -> Self {
        Self { vendors, ..self }
    }

    const fn on(self, on: &'static [(u16, u16)]) -> Self {
        Self { on, ..self }
    }

    const fn confirmed(self) -> Self {
        Self { confirm: true, ..self }
    }

    fn applies(&self, vendor: Option<&str>, status: u16) -> bool {
        let of = self.vendors.is_empty() || vendor.is_none_or(|vendor| self.vendors.contains(&vendor));
        of && (self.on.is_empty() || self.on.iter().any(|(from, to)| (*from..=*to).contains(&status)))
    }
}

/// The rules by what they look for, so that a body costs a few look-ups and not a walk over all of them.
struct Index {
    rules: Vec<&'static Rule>,
    words: HashMap<String, Vec<(usize, usize)>>,
    numbers: HashMap<(Place, &'static str), Vec<(usize, usize)>>,
    /// Starts and ends of codes.
    affixes: Vec<(Affix, usize, usize)>,
    /// Phrases by their first byte in lower case; those that begin with a wildcard under 0.
    starts: Vec<Vec<Phrase>>,
    word_sets: Vec<usize>,
    functions: Vec<(usize, Test)>,
}

/// A phrase taken apart, its rule and its entry.
type Phrase = (Vec<Part>, usize, usize);

/// A part of a phrase.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// These bytes, in any ASCII case.
    Text(&'static str),
    /// One word or quoted name.
    Name,
    /// Up to 80 bytes, then these.
    Upto(&'static str),
    /// Nothing more.
    End,
}

enum Affix {
    Start(String),
    End(String),
}

fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(Index::build)
}

/// Every rule that claims `facts` under `status`, the winner first.
pub(super) fn hits(facts: &Facts, vendor: Option<&str>, status: u16) -> Vec<Hit> {
    let index = index();
    let mut hits = Hits { index, vendor, status, found: Vec::with_capacity(8) };
    for (at, code) in facts.codes.iter().enumerate() {
        if code.place == Place::Word {
            hits.word(code, at);
        } else if let Some(found) = index.numbers.get(&(code.place, code.text.as_str())) {
            found.iter().for_each(|(rule, entry)| hits.claim(*rule, *entry, Some(at)));
        }
    }
    if facts.shape != Shape::Html {
        facts.messages.iter().take(4).for_each(|message| hits.message(message.trim_start()));
    }
    for (rule, function) in &index.functions {
        if hits.applies(*rule) && function(facts, status) {
            hits.claim(*rule, 0, None);
        }
    }
    let mut found = hits.found;
    found.sort_unstable();
    found.dedup_by_key(|hit| hit.rule);
    found
}

struct Hits<'a> {
    index: &'static Index,
    vendor: Option<&'a str>,
    status: u16,
    found: Vec<Hit>,
}

impl Hits<'_> {
    fn applies(&self, rule: usize) -> bool {
        self.index.rules.get(rule).is_some_and(|rule| rule.applies(self.vendor, self.status))
    }

    fn claim(&mut self, rule: usize, entry: usize, code: Option<usize>) {
        if self.applies(rule) {
            self.found.push(Hit { rule, entry, code });
        }
    }

    fn word(&mut self, code: &Code, at: usize) {
        let plain = normalise(&code.text);
        let mut listed = false;
        for (rule, entry) in self.index.words.get(&plain).into_iter().flatten() {
            listed = true;
            self.claim(*rule, *entry, Some(at));
        }
        for (affix, rule, entry) in &self.index.affixes {
            let matched = match affix {
                Affix::Start(start) => plain.starts_with(start.as_str()),
                Affix::End(end) => plain.ends_with(end.as_str()),
            };
            if matched {
                listed = true;
                self.claim(*rule, *entry, Some(at));
            }
        }
        if listed || words::NEUTRAL.contains(&plain.as_str()) {
            return;
        }
        let parts = words::split(&code.text);
        for rule in &self.index.word_sets {
            let Some(Find::Words(sets)) = self.index.rules.get(*rule).map(|rule| &rule.find) else {
                continue;
            };
            if sets.iter().all(|set| set.iter().any(|word| parts.iter().any(|part| part == word))) {
                self.claim(*rule, 0, Some(at));
            }
        }
    }

    fn message(&mut self, message: &str) {
        let first = message.as_bytes().first().map_or(0, u8::to_ascii_lowercase);
        for bucket in [usize::from(first), 0] {
            for (phrase, rule, entry) in self.index.starts.get(bucket).into_iter().flatten() {
                if starts(message, phrase) {
                    self.claim(*rule, *entry, None);
                }
            }
            if bucket == 0 {
                break;
            }
        }
    }
}

// === impl Find ===

impl Find {
    /// The strings in it.
    pub(super) fn texts(&self) -> &'static [&'static str] {
        match self {
            Self::Codes(texts) | Self::Numbers(_, texts) | Self::Start(texts) => texts,
            Self::Words(_) | Self::If(_) => &[],
        }
    }
}

// === impl Index ===

impl Index {
    fn build() -> Self {
        let tables = [
            special::RULES,
            endpoints::RULES,
            phrases::RULES,
            numbers::RULES,
            codes::RULES,
            words::RULES,
            status::RULES,
        ];
        let mut index = Self {
            rules: tables.iter().flat_map(|table| table.iter()).collect(),
            words: HashMap::new(),
            numbers: HashMap::new(),
            affixes: Vec::new(),
            starts: vec![Vec::new(); 256],
            word_sets: Vec::new(),
            functions: Vec::new(),
        };
        index.rules.sort_by_key(|rule| order(rule));
        for at in 0..index.rules.len() {
            let Some(rule) = index.rules.get(at).copied() else { continue };
            index.add(at, rule);
        }
        index
    }

    fn add(&mut self, at: usize, rule: &'static Rule) {
        match &rule.find {
            Find::Codes(codes) => {
                for (entry, code) in codes.iter().enumerate() {
                    if let Some(start) = code.strip_suffix('*') {
                        self.affixes.push((Affix::Start(normalise(start)), at, entry));
                    } else if let Some(end) = code.strip_prefix('*') {
                        self.affixes.push((Affix::End(normalise(end)), at, entry));
                    } else {
                        self.words.entry(normalise(code)).or_default().push((at, entry));
                    }
                }
            }
            Find::Numbers(place, numbers) => {
                for (entry, number) in numbers.iter().enumerate() {
                    self.numbers.entry((*place, number)).or_default().push((at, entry));
                }
            }
            Find::Start(patterns) => {
                for (entry, pattern) in patterns.iter().enumerate() {
                    let wild = pattern.starts_with(['*', '…']);
                    let first = if wild {
                        0
                    } else {
                        pattern.bytes().next().map_or(0, |byte| byte.to_ascii_lowercase())
                    };
                    if let Some(bucket) = self.starts.get_mut(usize::from(first)) {
                        bucket.push((parts(pattern), at, entry));
                    }
                }
            }
            Find::Words(_) => self.word_sets.push(at),
            Find::If(function) => self.functions.push((at, *function)),
        }
    }
}

/// Tables are in order; among codes and numbers the class orders: what is dead, then the model, the request, overload,
/// and rates last.
fn order(rule: &Rule) -> u8 {
    let by_class = match rule.class {
        Class::Disable => 0,
        Class::ModelUnavailable | Class::EndpointMissing => 1,
        Class::Transparent => 2,
        Class::Retryable => 3,
        _ => 4,
    };
    match rule.id.split('.').next() {
        Some("special" | "aggregator") => 0,
        Some("endpoint" | "object") => 1,
        Some("phrase") => 2,
        // They stand beside a type that says nothing, `api_error`.
        Some("number") if rule.id.starts_with("number.xfyun.compat") => 9,
        Some("code" | "number") => 10 + by_class,
        Some("words") => 20 + by_class,
        _ => 30,
    }
}

/// A phrase taken apart.
fn parts(pattern: &'static str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let tail = rest.get(first.len_utf8()..).unwrap_or_default();
        let literal = |text: &'static str| text.split_at(text.find(['*', '…', '$']).unwrap_or(text.len()));
        match first {
            '*' => {
                parts.push(Part::Name);
                rest = tail;
            }
            '$' => {
                parts.push(Part::End);
                rest = tail;
            }
            '…' => {
                let (text, after) = literal(tail);
                parts.push(Part::Upto(text));
                rest = after;
            }
            _ => {
                let (text, after) = literal(rest);
                parts.push(Part::Text(text));
                rest = after;
            }
        }
    }
    parts
}

/// Whether `message` begins as the phrase says.
fn starts(message: &str, parts: &[Part]) -> bool {
    let mut text = message;
    for part in parts {
        text = match part {
            Part::Text(literal) => match strip(text, literal) {
                Some(rest) => rest,
                None => return false,
            },
            Part::Name => text.get(name(text)..).unwrap_or_default(),
            Part::Upto(literal) => {
                let reach = text.as_bytes().get(..80 + literal.len()).unwrap_or(text.as_bytes());
                match memchr::memmem::find(reach, literal.as_bytes()) {
                    Some(at) => text.get(at + literal.len()..).unwrap_or_default(),
                    None => return false,
                }
            }
            Part::End => return text.trim_end_matches(['.', ' ', '\n', '!', '。']).is_empty(),
        };
    }
    true
}

fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let start = text.as_bytes().get(..prefix.len())?;
    if start.eq_ignore_ascii_case(prefix.as_bytes()) { text.get(prefix.len()..) } else { None }
}

/// The length of one word, or of one name in quotes or brackets, at most 200 bytes.
fn name(text: &str) -> usize {
    let close = match text.chars().next() {
        Some(quote @ ('\'' | '"' | '`')) => Some(quote),
        Some('“') => Some('”'),
        Some('‘') => Some('’'),
        Some('[') => Some(']'),
        Some('<') => Some('>'),
        Some('(') => Some(')'),
        _ => None,
    };
    let end = match close {
        Some(close) => {
            text.char_indices().skip(1).find(|(_, c)| *c == close).map(|(at, c)| at + c.len_utf8())
        }
        None => Some(text.find([' ', '\n', ',', '，']).unwrap_or(text.len())),
    };
    let end = end.filter(|end| *end <= 200).unwrap_or(0);
    // "Model x: not found"
    if close.is_none() && text.get(..end).is_some_and(|name| name.ends_with(':')) { end - 1 } else { end }
}

#[cfg(test)]
mod tests;
