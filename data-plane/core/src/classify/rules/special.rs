//! Answers that mean something else than their codes say.

use super::{Find, Rule, dead, rule};
use crate::classify::facts::Facts;
use crate::words::{Cause, Class};

pub(super) static RULES: &[Rule] = &[
    // An aggregator quotes somebody else's answer: never our own key's fault.
    rule("aggregator.request", Find::If(quoted_request), Class::Transparent).on(&[(400, 400), (413, 422)]),
    rule("aggregator.throttle", Find::If(quoted_throttle), Class::Throttle).on(&[(429, 429)]),
    rule("aggregator.fault", Find::If(quotes), Class::Retryable),
    rule("aggregator.account_rate", Find::Passed, Class::Throttle).on(&[(429, 429)]),
    rule("aggregator.account", Find::Passed, Class::Retryable),
    rule("special.moderation", Find::If(|facts, _| facts.flagged), Class::Transparent),
    // A relay whose deployments are cooling down says for how long.
    rule(
        "special.cooling_down",
        Find::Start(&["No deployments available for selected model, Try again in"]),
        Class::Throttle,
    )
    .on(&[(429, 429)]),
    // A rate limit that no waiting cures for this request.
    rule(
        "special.too_large",
        Find::Start(&[
            "Request too large for",
            "Extra usage is required",
            "Usage credits are required",
            "Usage credits required for",
            "Request too large.",
        ]),
        Class::Transparent,
    ),
    // A caller's wish was too dear for what is left: others may still be served, and only a probe of our own can tell.
    dead("special.afford", Cause::Quota, Find::Start(&["This request requires more credits, or fewer"]))
        .confirmed(),
    rule("special.quota_limit_zero", Find::If(limit_zero), Class::ModelUnavailable),
    dead(
        "special.prepaid_used_up",
        Cause::Quota,
        Find::Start(&[
            "Your prepayment credits are depleted",
            "Your prepay credit balance is depleted",
            "Your project has exceeded its monthly spending cap",
        ]),
    ),
    rule(
        "special.resource_exhausted",
        Find::If(|facts, _| facts.has_word("resourceexhausted")),
        Class::Throttle,
    )
    .on(&[(0, 299), (429, 429), (500, 599)]),
    rule("special.token_limit", Find::If(token_limit), Class::Throttle).of(&["dashscope"]),
    rule("special.free_quota", Find::Start(&["Free allocated quota exceeded"]), Class::ModelUnavailable),
    rule(
        "special.allocated_quota",
        Find::Start(&[
            "Allocated quota exceeded",
            "hour allocated quota exceeded",
            "week allocated quota exceeded",
            "month allocated quota exceeded",
            "concurrency allocated quota exceeded",
            "Request rate increased too quickly",
        ]),
        Class::Throttle,
    ),
    // What is being spent now takes up the credits: they come back as it ends.
    rule(
        "special.in_flight",
        Find::Codes(&["openrouter_in_flight_budget", "in_flight_budget_exhausted"]),
        Class::Throttle,
    ),
    // A trial key's month is a quota, its minute a rate.
    dead("special.trial_month", Cause::Quota, Find::If(trial_month)).on(&[(429, 429)]),
];

fn quotes(facts: &Facts, _status: u16) -> bool {
    facts.messages.iter().any(|message| {
        let message = message.strip_prefix("Error from provider: ").unwrap_or(message);
        message.starts_with("Provider returned error")
    }) || (facts.aggregated && facts.first_message().starts_with("Error from provider"))
}

fn inner(facts: &Facts) -> Option<Facts> {
    let quoted = facts.quoted.as_deref()?.trim();
    quoted.starts_with('{').then(|| Facts::read(&http::HeaderMap::new(), quoted.as_bytes()))
}

fn quoted_request(facts: &Facts, status: u16) -> bool {
    const REQUEST: &[&str] =
        &["contextlengthexceeded", "contentfilter", "unsupportedparameter", "unsupportedvalue"];
    const MAYBE: &[&str] = &["invalidrequesterror", "invalidargument", "badrequesterror"];
    let Some(inner) = quotes(facts, status).then(|| inner(facts)).flatten() else { return false };
    let names = |words: &[&str]| inner.codes.iter().any(|code| words.contains(&&*code.plain));
    // Balances and models come under these words too: only where nothing else is read.
    let passed_on = || {
        let hits = super::hits(&inner, None, status);
        hits.first()
            .and_then(|hit| super::all().get(hit.rule))
            .is_some_and(|rule| rule.class == Class::Transparent)
    };
    names(REQUEST) || (names(MAYBE) && passed_on())
}

fn quoted_throttle(facts: &Facts, status: u16) -> bool {
    quotes(facts, status)
        && !inner(facts).is_some_and(|inner| {
            inner.codes.iter().any(|code| code.plain.contains("quota"))
                || inner.first_message().contains("insufficient balance")
        })
}

/// `limit: 0` is a model this key never gets; `limit: 0.5` or `limit: 05` would be something else.
fn limit_zero(facts: &Facts, _status: u16) -> bool {
    if !facts.has_word("resourceexhausted") {
        return false;
    }
    facts.quota_zero
        || facts.messages.iter().any(|message| {
            message.match_indices("limit: 0").any(|(at, found)| {
                let next = message.get(at + found.len()..).unwrap_or_default();
                let mut next = next.chars();
                match next.next() {
                    Some('.') => !next.next().is_some_and(|c| c.is_ascii_digit()),
                    Some(c) => !c.is_ascii_digit(),
                    None => true,
                }
            })
        })
}

/// The code says quota, the link that it is a rate.
fn token_limit(facts: &Facts, _status: u16) -> bool {
    facts.has_word("insufficientquota")
        && facts.messages.iter().any(|message| message.contains("error-code#token-limit"))
}

fn trial_month(facts: &Facts, _status: u16) -> bool {
    let message = facts.first_message();
    message.starts_with("You are using a Trial key") && message.contains("/ month")
}
