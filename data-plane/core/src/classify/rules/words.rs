//! Codes that nobody listed, read by their words: `account_credits_depleted` is money. What they condemn a probe has to
//! confirm.

use super::{Find, Rule, dead, rule};
use crate::words::{Cause, Class};

const BAD: &[&str] = &[
    "invalid",
    "incorrect",
    "expired",
    "revoked",
    "disabled",
    "deactivated",
    "suspended",
    "banned",
    "blocked",
    "leaked",
    "missing",
];

pub(super) static RULES: &[Rule] = &[
    dead(
        "words.balance",
        Cause::Quota,
        Find::Words(&[
            &[
                "balance",
                "credit",
                "credits",
                "billing",
                "payment",
                "funds",
                "account",
                "subscription",
                "arrears",
                "arrear",
            ],
            &[
                "insufficient",
                "exhausted",
                "depleted",
                "overdue",
                "arrears",
                "arrear",
                "empty",
                "inactive",
                "unpaid",
                "enough",
                "low",
                "expired",
                "required",
                "paused",
                "frozen",
            ],
        ]),
    )
    .confirmed(),
    // A limit in money that is reached; a budget of tokens is the request's.
    dead(
        "words.spend",
        Cause::Quota,
        Find::Words(&[
            &["spend", "spending", "budget"],
            &["limit", "limits", "exceeded", "exceed", "reached", "exhausted", "cap"],
            &["!", "token", "tokens", "thinking", "reasoning", "context", "time", "flight", "alert"],
        ]),
    )
    .confirmed(),
    dead("words.api_key", Cause::Credential, Find::Words(&[&["api"], &["key"], BAD])).confirmed(),
    dead(
        "words.account",
        Cause::Credential,
        Find::Words(&[
            &["apikey", "credential", "credentials", "authentication", "account", "organization", "org"],
            BAD,
        ]),
    )
    .confirmed(),
    rule(
        "words.model",
        Find::Words(&[
            &["model", "deployment"],
            &[
                "unknown",
                "invalid",
                "unsupported",
                "unavailable",
                "deprecated",
                "decommissioned",
                "retired",
                "removed",
                "disabled",
                "denied",
                "forbidden",
                "found",
                "exist",
                "supported",
                "available",
                "allowed",
                "only",
                "restricted",
                "gated",
                "inaccessible",
            ],
            // What is wrong with a part of the request is not wrong with the model.
            &[
                "!",
                "config",
                "configuration",
                "parameter",
                "parameters",
                "params",
                "setting",
                "settings",
                "option",
                "options",
                "schema",
                "input",
                "output",
                "response",
                "format",
            ],
        ]),
        Class::ModelUnavailable,
    )
    // What is unavailable at a 5xx will be back.
    .on(&[(0, 499)]),
    rule(
        "words.request",
        Find::Words(&[
            &["context", "prompt", "input", "content", "moderation", "safety", "sensitive"],
            &[
                "length",
                "long",
                "exceeded",
                "exceeds",
                "blocked",
                "filtered",
                "violation",
                "flagged",
                "risk",
                "unsafe",
                "detected",
                "rejected",
            ],
        ]),
        Class::Transparent,
    ),
    // A check of contents that could not be made is no verdict on them.
    rule(
        "words.moderation",
        Find::Words(&[
            &["moderation", "moderated", "censorship", "nsfw", "guardrail", "guardrails", "safety"],
            &["!", "unavailable", "timeout", "overloaded", "internal"],
        ]),
        Class::Transparent,
    )
    .on(&[(0, 499)]),
    rule(
        "words.content_policy",
        Find::Words(&[
            &["content"],
            &["policy", "policies", "filter", "filtering", "safety", "prohibited"],
            &["!", "unavailable"],
        ]),
        Class::Transparent,
    )
    .on(&[(0, 499)]),
    rule(
        "words.overload",
        Find::Words(&[&["overloaded", "overload", "busy", "saturated", "saturation"]]),
        Class::Retryable,
    ),
    rule(
        "words.rate",
        Find::Words(&[
            &[
                "rate",
                "ratelimit",
                "rpm",
                "tpm",
                "qps",
                "concurrency",
                "concurrent",
                "frequency",
                "throttled",
                "throttle",
            ],
            &["limit", "limited", "exceeded", "exceed", "reached", "throttled", "throttle", "ratelimit"],
        ]),
        Class::Throttle,
    )
    .on(&[(0, 412), (414, 599)]),
];

/// Words that say nothing about what is wrong; not worth taking apart.
pub(super) const NEUTRAL: &[&str] = &[
    "invalidrequesterror",
    "invalidrequest",
    "badrequest",
    "badrequesterror",
    "tokens",
    "requests",
    "newapierror",
    "oneapierror",
    "validationerror",
    "forbidden",
    "unauthorized",
    "permissiondenied",
    "permissionerror",
    "accessdenied",
    "invalidargument",
    "failedprecondition",
    "upstreamerror",
    "unknownerror",
];

/// The words of a code, in lower case: at punctuation and where capitals begin.
pub(super) fn split(code: &str) -> Vec<String> {
    // Sentences are not codes.
    if code.contains(' ') || code.len() > 64 {
        return Vec::new();
    }
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut lower) = (String::new(), false);
    for c in code.chars() {
        let starts = c.is_ascii_uppercase() && lower;
        if (starts || !c.is_ascii_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        lower = c.is_ascii_lowercase();
        if c.is_ascii_alphanumeric() {
            word.push(c.to_ascii_lowercase());
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
