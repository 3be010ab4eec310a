//! The built-in rules: data with ids, tried in order, the first hit wins. The files below hold the data; this one how a
//! rule is written and looked up.
//!
//! Order: quoted and special answers, endpoints and objects, anchored phrases, codes (dead, model, request, overload,
//! rate), words of unknown codes, status. Within one body an earlier rule beats a later one wherever it stands in the
//! text.

mod codes;
mod endpoints;
mod index;
mod models;
mod numbers;
mod openings;
mod phrase;
mod phrases;
mod rates;
mod special;
mod status;
mod words;

use std::sync::OnceLock;

use self::index::Index;
pub(super) use self::openings::Opening;
use super::facts::{Facts, Place};
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
    /// Words of a code nobody listed: one of each set, and none of a set that begins with `!`.
    Words(&'static [&'static [&'static str]]),
    /// Whatever the function sees.
    If(Test),
    /// Every answer that a relay passes on and that would have condemned a key or an account: they are not ours.
    Passed,
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
    index().rules()
}

/// Every rule that claims `facts` under `status`, the winner first. Of the status defaults only the winner, and only
/// where nothing else hit.
pub(super) fn hits(facts: &Facts, vendor: Option<&str>, status: u16) -> Vec<Hit> {
    index().hits(facts, vendor, status)
}

fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(Index::build)
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

// === impl Find ===

impl Find {
    /// The strings in it.
    pub(super) fn texts(&self) -> &'static [&'static str] {
        match self {
            Self::Codes(texts) | Self::Numbers(_, texts) | Self::Start(texts) => texts,
            Self::Words(_) | Self::If(_) | Self::Passed => &[],
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

#[cfg(test)]
mod tests;
