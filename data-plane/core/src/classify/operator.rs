//! An operator's own rules: checked when they are written, tried before the built-in ones.

use std::sync::Arc;

use spareline_proto::registry::v1 as pb;

use super::RuleViolation;
use super::facts::Facts;
use super::vendor;
use crate::words::{Class, Provider};

/// Most rules of an operator's.
const MOST: usize = 200;

/// Longest phrase, in bytes.
const PHRASE: usize = 200;

/// One rule, ready to be tried.
#[derive(Clone, Debug)]
pub(super) struct OperatorRule {
    pub(super) id: Arc<str>,
    provider: Option<String>,
    statuses: Vec<(u16, u16)>,
    code: String,
    phrase: String,
    pub(super) class: Class,
    /// By status alone.
    pub(super) confirm: bool,
}

impl OperatorRule {
    /// Whether it claims an answer of `status` (as received) and `effective` status.
    pub(super) fn claims(
        &self,
        facts: &Facts,
        provider: Provider,
        vendor: Option<&str>,
        status: u16,
        effective: u16,
    ) -> bool {
        let of =
            self.provider.as_deref().is_none_or(|name| name == provider.as_str() || vendor == Some(name));
        let within = |status: u16| self.statuses.iter().any(|(from, to)| (*from..=*to).contains(&status));
        of && (self.statuses.is_empty() || within(status) || within(effective))
            && (self.code.is_empty()
                || facts.codes.iter().any(|code| code.text.eq_ignore_ascii_case(&self.code)))
            && (self.phrase.is_empty()
                || facts.messages.iter().any(|message| {
                    let start = message.trim_start().get(..self.phrase.len());
                    start.is_some_and(|start| start.eq_ignore_ascii_case(&self.phrase))
                }))
    }
}

/// All of an operator's rules.
///
/// # Errors
/// Every mistake at once.
pub(super) fn compile(rules: &[pb::Rule]) -> Result<Vec<OperatorRule>, Vec<RuleViolation>> {
    let mut problems = Vec::new();
    let mut problem = |at: usize, field: &str, text: String| {
        problems.push(RuleViolation { field: format!("rules[{at}].{field}"), problem: text });
    };
    if rules.len() > MOST {
        problem(MOST, "rule_id", format!("at most {MOST} rules"));
    }
    let mut compiled: Vec<OperatorRule> = Vec::with_capacity(rules.len());
    for (at, rule) in rules.iter().enumerate() {
        if rule.rule_id.is_empty()
            || rule.rule_id.len() > 64
            || !rule.rule_id.bytes().all(|b| b.is_ascii_graphic())
        {
            problem(at, "rule_id", "must be 1 to 64 characters without spaces".to_owned());
        } else if rules.iter().take(at).any(|earlier| earlier.rule_id == rule.rule_id) {
            problem(at, "rule_id", format!("`{}` is used twice", rule.rule_id));
        }
        let provider = rule.provider.trim();
        let known = provider.parse::<Provider>().is_ok() || vendor::family(provider) == Some(provider);
        if !provider.is_empty() && !known {
            let dialects: Vec<_> = Provider::ALL.iter().map(|p| p.as_str()).collect();
            let known = format!(
                "must be a dialect ({}) or a vendor ({})",
                dialects.join(", "),
                vendor::known().join(", ")
            );
            problem(at, "provider", known);
        }
        let statuses = statuses(&rule.statuses).unwrap_or_else(|text| {
            problem(at, "statuses", text);
            Vec::new()
        });
        if rule.statuses.trim().is_empty() && rule.code.is_empty() && rule.phrase.is_empty() {
            problem(at, "statuses", "one of statuses, code and phrase must be set".to_owned());
        }
        if rule.code.len() > 128 {
            problem(at, "code", "must be at most 128 bytes".to_owned());
        }
        if rule.phrase.len() > PHRASE || (!rule.phrase.is_empty() && rule.phrase.trim().chars().count() < 4) {
            problem(at, "phrase", format!("must be 4 to {PHRASE} bytes: shorter ones match by accident"));
        }
        let class = match rule.class.parse::<Class>() {
            Ok(
                class @ (Class::Transparent
                | Class::Retryable
                | Class::Throttle
                | Class::Disable
                | Class::ModelUnavailable),
            ) => class,
            _ => {
                let text = "must be one of transparent, retryable, throttle, disable, model_unavailable";
                problem(at, "class", text.to_owned());
                Class::Transparent
            }
        };
        compiled.push(OperatorRule {
            id: Arc::from(rule.rule_id.as_str()),
            provider: (!provider.is_empty()).then(|| provider.to_owned()),
            statuses,
            code: rule.code.clone(),
            phrase: rule.phrase.trim_start().to_owned(),
            class,
            // A throttle ends by itself: it needs no probe, least of all one that finds the key alive.
            confirm: class == Class::ModelUnavailable
                || (class == Class::Disable && rule.code.is_empty() && rule.phrase.is_empty()),
        });
    }
    if problems.is_empty() { Ok(compiled) } else { Err(problems) }
}

/// `429,500-503,505-599` as inclusive ranges; empty text: none.
///
/// # Errors
/// What is wrong with it, for a person to read.
pub(super) fn statuses(text: &str) -> Result<Vec<(u16, u16)>, String> {
    let status = |text: &str| {
        let number = text.trim().parse::<u16>().ok().filter(|status| (100..=599).contains(status));
        number.ok_or_else(|| format!("`{}` is not a status between 100 and 599", text.trim()))
    };
    let mut ranges = Vec::new();
    for part in text.split(',').filter(|_| !text.trim().is_empty()) {
        let range = match part.split_once('-') {
            Some((from, to)) => (status(from)?, status(to)?),
            None => (status(part)?, status(part)?),
        };
        if range.0 > range.1 {
            return Err(format!("`{}` runs backwards", part.trim()));
        }
        ranges.push(range);
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests;
