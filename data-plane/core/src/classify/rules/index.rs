//! The rules by what they look for, so that a body costs a few look-ups and not a walk over all of them.

use std::collections::HashMap;

use super::phrase::Phrases;
use super::{Find, Hit, Rule, Test, order};
use super::{codes, endpoints, models, numbers, openings, phrases, rates, special, status, words};
use crate::classify::chinese;
use crate::classify::facts::{Code, Facts, Place, Shape, normalise};
use crate::hash::QuickBuild;
use crate::words::Class;

/// Messages of a body that are read.
const MESSAGES: usize = 4;

/// A rule and which of its entries.
type Entry = (usize, usize);

type Map<K> = HashMap<K, Vec<Entry>, QuickBuild>;

pub(super) struct Index {
    rules: Vec<&'static Rule>,
    /// Codes by their plain spelling; those that say nothing have no entries.
    words: Map<Box<str>>,
    numbers: Map<(Place, &'static str)>,
    /// Starts and ends of codes, in plain spelling.
    affixes: Vec<(Affix, Entry)>,
    phrases: Phrases,
    word_sets: Vec<(usize, &'static [&'static [&'static str]])>,
    functions: Vec<(usize, Test)>,
    /// Status defaults, in order.
    defaults: Vec<(usize, Test)>,
    /// What takes the place of rules that condemn, where the answer is not about us.
    passed: Vec<usize>,
}

enum Affix {
    Start(Box<str>),
    End(Box<str>),
}

/// The claims on one body.
struct Claims<'a> {
    index: &'a Index,
    vendor: Option<&'a str>,
    status: u16,
    /// Rules that condemn a key or an account do not count.
    relayed: bool,
    /// One of them would have hit.
    spared: bool,
    found: Vec<Hit>,
}

// === impl Index ===

impl Index {
    pub(super) fn build() -> Self {
        let tables = [
            special::RULES,
            endpoints::RULES,
            phrases::RULES,
            models::RULES,
            rates::RULES,
            numbers::RULES,
            codes::RULES,
            words::RULES,
            status::RULES,
        ];
        let mut index = Self {
            rules: tables.iter().flat_map(|table| table.iter()).collect(),
            words: Map::default(),
            numbers: Map::default(),
            affixes: Vec::new(),
            phrases: Phrases::new(),
            word_sets: Vec::new(),
            functions: Vec::new(),
            defaults: Vec::new(),
            passed: Vec::new(),
        };
        index.rules.sort_by_key(|rule| order(rule));
        for at in 0..index.rules.len() {
            let Some(rule) = index.rules.get(at).copied() else { continue };
            index.add(at, rule);
        }
        for neutral in words::NEUTRAL {
            index.words.entry((*neutral).into()).or_default();
        }
        index
    }

    pub(super) fn rules(&self) -> &[&'static Rule] {
        &self.rules
    }

    /// See [`super::hits`].
    pub(super) fn hits(&self, facts: &Facts, vendor: Option<&str>, status: u16) -> Vec<Hit> {
        let known = || facts.codes.iter().any(|code| self.words.contains_key(code.plain.as_str()));
        let relayed = facts.relayed || (facts.marked && known());
        let mut claims =
            Claims { index: self, vendor, status, relayed, spared: false, found: Vec::with_capacity(8) };
        for (at, code) in facts.codes.iter().enumerate() {
            if code.place == Place::Word {
                claims.word(code, at);
            } else if let Some(entries) = self.numbers.get(&(code.place, code.text.as_str())) {
                for entry in entries {
                    if !claims.misplaced(entry.0, facts) {
                        claims.claim(*entry, Some(at));
                    }
                }
            }
        }
        if facts.shape != Shape::Html {
            for message in facts.messages.iter().take(MESSAGES) {
                let message = chinese::simplified(message.trim_start());
                let mut claim = |rule, entry| claims.claim((rule, entry), None);
                self.phrases.find(&message, &mut claim);
                if let Some(message) = openings::unlabelled(&message, status) {
                    self.phrases.find(message, &mut claim);
                }
            }
        }
        for (rule, function) in &self.functions {
            if claims.applies(*rule) && function(facts, status) {
                claims.claim((*rule, 0), None);
            }
        }
        if claims.found.is_empty() && !claims.spared {
            let winner =
                self.defaults.iter().find(|(rule, test)| claims.applies(*rule) && test(facts, status));
            if let Some((rule, _)) = winner {
                claims.claim((*rule, 0), None);
            }
        }
        if claims.found.is_empty() && claims.spared {
            self.passed.iter().for_each(|rule| claims.claim((*rule, 0), None));
        }
        let mut found = claims.found;
        found.sort_unstable();
        found.dedup_by_key(|hit| hit.rule);
        found
    }

    fn add(&mut self, at: usize, rule: &'static Rule) {
        match &rule.find {
            Find::Codes(codes) => {
                for (entry, code) in codes.iter().enumerate() {
                    if let Some(start) = code.strip_suffix('*') {
                        self.affixes.push((Affix::Start(normalise(start).into()), (at, entry)));
                    } else if let Some(end) = code.strip_prefix('*') {
                        self.affixes.push((Affix::End(normalise(end).into()), (at, entry)));
                    } else {
                        self.words.entry(normalise(code).into()).or_default().push((at, entry));
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
                    self.phrases.add(pattern, at, entry);
                }
            }
            Find::Words(sets) => self.word_sets.push((at, sets)),
            Find::If(test) if rule.id.starts_with("status.") => self.defaults.push((at, *test)),
            Find::If(test) => self.functions.push((at, *test)),
            Find::Passed => self.passed.push(at),
        }
    }
}

// === impl Claims ===

impl Claims<'_> {
    fn applies(&self, rule: usize) -> bool {
        self.index.rules.get(rule).is_some_and(|rule| rule.applies(self.vendor, self.status))
    }

    fn claim(&mut self, (rule, entry): Entry, code: Option<usize>) {
        if !self.applies(rule) {
            return;
        }
        let condemns = || self.index.rules.get(rule).is_some_and(|rule| rule.class == Class::Disable);
        if self.relayed && condemns() {
            self.spared = true;
        } else {
            self.found.push(Hit { rule, entry, code });
        }
    }

    /// A vendor's number that condemns, where the vendor is not known and a type beside it blames the request: it is
    /// somebody else's number.
    fn misplaced(&self, rule: usize, facts: &Facts) -> bool {
        let guessed = self.vendor.is_none() && matches!(self.status, 0 | 400 | 422);
        guessed
            && self
                .index
                .rules
                .get(rule)
                .is_some_and(|rule| !rule.vendors.is_empty() && rule.class == Class::Disable)
            && facts.has_word("invalidrequesterror")
    }

    fn word(&mut self, code: &Code, at: usize) {
        let plain = code.plain.as_str();
        let mut listed = false;
        if let Some(entries) = self.index.words.get(plain) {
            listed = true;
            entries.iter().for_each(|entry| self.claim(*entry, Some(at)));
        }
        for (affix, entry) in &self.index.affixes {
            // Most differ in one byte: spares the call that compares.
            let matched = match affix {
                Affix::Start(start) => {
                    plain.as_bytes().first() == start.as_bytes().first() && plain.starts_with(&**start)
                }
                Affix::End(end) => {
                    plain.as_bytes().last() == end.as_bytes().last() && plain.ends_with(&**end)
                }
            };
            if matched {
                listed = true;
                self.claim(*entry, Some(at));
            }
        }
        if listed {
            return;
        }
        let parts = words::split(&code.text);
        for (rule, sets) in &self.index.word_sets {
            let any = |set: &[&str]| set.iter().any(|word| parts.iter().any(|part| part == word));
            if sets.iter().all(|set| any(set) != (set.first() == Some(&"!"))) {
                self.claim((*rule, 0), Some(at));
            }
        }
    }
}
