//! The classifier against recorded and documented answers of providers: `tests/data/corpus/*.jsonl`, one case a line.
//!
//! Every case is read with its vendor known and hidden, re-serialised, compressed, and (where a code decides) with
//! another message; streams go event by event. A failure prints id, what was expected, what came, and the rule.

#![allow(clippy::unwrap_used, clippy::panic)] // a broken case file is a failure too

#[path = "corpus/case.rs"]
mod case;
#[path = "corpus/variants.rs"]
mod variants;

use case::{Case, Read, all};
use spareline_core::classify::Rules;

/// Runs `read` over all cases and fails with every difference at once.
fn table(what: &str, cases: &[Case], read: impl Fn(&Case) -> Option<Read>) {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for case in cases {
        let Some(got) = read(case) else { continue };
        seen += 1;
        if let Err(why) = case.check(&got) {
            wrong.push(format!(
                "{}: expected {}/{}, got {}/{} by {} (also {:?}, code {:?}): {why}",
                case.id, case.class, case.scope, got.class, got.scope, got.rule, got.also, got.code
            ));
        }
    }
    assert!(seen > 0, "{what}: no case was read");
    assert!(wrong.is_empty(), "{what}: {} of {seen} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn part1_vendor_known() {
    table("vendor known", &all(), |case| Some(case.read(true)));
}

#[test]
fn part1_vendor_hidden() {
    table("vendor hidden", &all(), |case| Some(case.read(false)));
}

#[test]
fn part1_reserialised() {
    table("re-serialised", &all(), |case| variants::reserialised(case).map(|case| case.read(true)));
    table("re-serialised, hidden", &all(), |case| variants::reserialised(case).map(|case| case.read(false)));
}

#[test]
fn part1_gzipped() {
    table("gzipped", &all(), |case| variants::gzipped(case).map(|case| case.read(true)));
    table("deflated", &all(), |case| variants::deflated(case).map(|case| case.read(false)));
}

#[test]
fn part1_streams_split_at_every_byte() {
    let streams: Vec<_> = all().into_iter().filter(|case| case.stream && case.is_event_stream()).collect();
    assert!(streams.len() > 30);
    for case in streams {
        for at in 0..=case.body_bytes().len() {
            let got = case.read_split(at);
            assert!(
                case.check(&got).is_ok(),
                "{} split at {at}: {:?} by {}",
                case.id,
                case.check(&got),
                got.rule
            );
        }
    }
}

#[test]
fn part1_a_code_decides_whatever_the_message() {
    table("message replaced", &all(), |case| variants::without_message(case).map(|case| case.read(true)));
}

#[test]
fn part1_no_rule_copies_a_body() {
    let bodies: Vec<String> = case::recorded().into_iter().map(|case| case.body).collect();
    for text in Rules::builtin_texts().filter(|text| text.len() > 60) {
        assert!(
            !bodies.iter().any(|body| body.contains(text)),
            "longer than 60 bytes and out of a body: {text}"
        );
    }
}

#[test]
fn part1_every_rule_has_a_case() {
    let mut hit = std::collections::HashSet::new();
    for case in all() {
        for known in [true, false] {
            let got = case.read(known);
            hit.insert(got.rule.clone());
        }
    }
    let missed: Vec<_> = Rules::builtin_ids().filter(|id| !hit.contains(*id)).collect();
    assert!(missed.is_empty(), "rules that decide no case: {missed:?}");
}
