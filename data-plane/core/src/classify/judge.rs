//! From facts to a verdict: the rules decide, the rest is filled in around what they say.

use std::time::SystemTime;

use http::HeaderMap;

use super::facts::{Code, Facts, Place, Shape};
use super::input::{Input, StreamFault, Transport};
use super::redact;
use super::rules::{self, Hit};
use super::verdict::{Detail, EvidenceKind, RuleId, Verdict};
use super::{Rules, hints, vendor};
use crate::words::{Cause, Class, Scope};

/// What decided, before the details are filled in.
struct Decision {
    rule: RuleId,
    also: Vec<RuleId>,
    class: Class,
    cause: Option<Cause>,
    confirm: bool,
    code: Option<usize>,
}

/// Reads an answer that is an error. `status` is as received, `effective` what it stands for (a 2xx may name another;
/// zero: none).
pub(super) fn judge(
    input: &Input<'_>,
    rules: &Rules,
    headers: &HeaderMap,
    body: &[u8],
    status: u16,
    effective: Option<u16>,
    now: SystemTime,
) -> Verdict {
    let mut facts = Facts::read(headers, body);
    let family = input.vendor.and_then(vendor::family);
    minimax_number(&mut facts, family);
    let effective = effective.unwrap_or_else(|| named_status(&facts));
    let decision = decide(input, rules, &facts, family, status, effective);
    let class = decision.class;
    let waits = matches!(class, Class::Throttle | Class::Retryable);
    let retry_after = if waits { hints::read(headers, &facts, class == Class::Throttle, now) } else { None };
    // `model_not_found` says more than the `invalid_request_error` it comes with.
    let telling = || facts.codes.iter().position(|code| !code.text.ends_with("_error"));
    let code = decision.code.or_else(telling).or_else(|| (!facts.codes.is_empty()).then_some(0));
    let mut provider_code =
        code.and_then(|at| facts.codes.get(at)).map(|code| code.text.clone()).unwrap_or_default();
    if provider_code.contains(' ') || provider_code.len() > 40 {
        provider_code = redact::excerpt(&provider_code);
        redact::cut(&mut provider_code, 128);
    }
    let egress = decision.rule.as_str() == "status.egress_proxy";
    Verdict {
        class,
        scope: if egress { Scope::None } else { scope(class, &facts, effective) },
        cause: decision.cause,
        confirm: decision.confirm,
        unknown_outcome: matches!(effective, 504 | 524),
        kind: if egress { EvidenceKind::Network } else { kind(class, effective) },
        detail: Detail::Status(status),
        status,
        rule: decision.rule,
        also: decision.also,
        retry_after,
        provider_code,
        excerpt: if facts.shape == Shape::Html {
            title(body)
        } else {
            redact::excerpt(facts.first_message())
        },
    }
}

fn decide(
    input: &Input<'_>,
    rules: &Rules,
    facts: &Facts,
    family: Option<&str>,
    status: u16,
    effective: u16,
) -> Decision {
    let ruling = vendor::ruling(input.vendor);
    let hits = rules::hits(facts, ruling, effective);
    let all = rules::all();
    let mut builtin = hits.iter().filter_map(|hit| all.get(hit.rule).map(|rule| (*hit, *rule)));
    let own: Vec<_> = rules
        .operator
        .iter()
        .filter(|rule| rule.claims(facts, input.provider, family, status, effective))
        .collect();
    let first = if own.is_empty() { builtin.next() } else { None };
    let mut also: Vec<RuleId> = own.iter().skip(1).map(|rule| RuleId::Operator(rule.id.clone())).collect();
    // That the status alone would have said something goes without saying.
    also.extend(
        builtin
            .map(|(_, rule)| rule)
            .filter(|rule| !rule.id.starts_with("status."))
            .map(|rule| RuleId::Builtin(rule.id)),
    );
    if let Some(rule) = own.first() {
        let cause = match rule.class {
            Class::Disable => Some(Cause::Credential),
            class => cause_of(class),
        };
        let (rule, class, confirm) = (RuleId::Operator(rule.id.clone()), rule.class, rule.confirm);
        return Decision { rule, also, class, cause, confirm, code: None };
    }
    let (hit, rule) = match first {
        Some(found) => found,
        None => {
            return Decision {
                rule: RuleId::Builtin("status.server"),
                also,
                class: Class::Retryable,
                cause: None,
                confirm: false,
                code: None,
            };
        }
    };
    let Hit { code, .. } = hit;
    // A vendor's own number read without knowing the vendor may be somebody else's.
    let guessed = !rule.vendors.is_empty() && ruling.is_none();
    Decision {
        rule: RuleId::Builtin(rule.id),
        also,
        class: rule.class,
        cause: rule.cause.or_else(|| cause_of(rule.class)),
        confirm: rule.confirm || (guessed && rule.class == Class::Disable),
        code,
    }
}

fn cause_of(class: Class) -> Option<Cause> {
    match class {
        Class::Throttle => Some(Cause::Throttled),
        Class::ModelUnavailable => Some(Cause::ModelUnavailable),
        _ => None,
    }
}

/// The narrowest scope: a rate limit that names a model, tokens or a tier is one of that model.
fn scope(class: Class, facts: &Facts, _effective: u16) -> Scope {
    match class {
        Class::None | Class::Ok => Scope::None,
        Class::Transparent => Scope::Request,
        Class::Retryable | Class::ModelUnavailable => Scope::Ability,
        Class::EndpointMissing => Scope::Endpoint,
        Class::Disable => Scope::Credential,
        Class::Throttle if names_model(facts) => Scope::Ability,
        Class::Throttle => Scope::Credential,
    }
}

fn names_model(facts: &Facts) -> bool {
    facts.per_model
        || facts.quoted.is_some()
        || facts.codes.iter().any(|code| names_limit(&code.text))
        || facts.messages.iter().take(2).any(|message| names_limit(message))
}

/// Whether the start of `text` has a word for a model, tokens or a tier in it.
fn names_limit(text: &str) -> bool {
    let bytes = text.as_bytes();
    let bytes = bytes.get(..400).unwrap_or(bytes);
    let at = |at: usize, word: &[u8]| {
        bytes.get(at..at + word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    bytes.iter().enumerate().any(|(start, byte)| match byte {
        b'm' | b'M' => at(start, b"model"),
        b't' | b'T' => at(start, b"token") || at(start, b"tpm") || at(start, b"tier"),
        0xE6 => at(start, "模型".as_bytes()),
        _ => false,
    })
}

fn kind(class: Class, status: u16) -> EvidenceKind {
    match class {
        Class::None | Class::Ok => EvidenceKind::Nothing,
        Class::Transparent => EvidenceKind::OtherClientError,
        Class::Throttle => EvidenceKind::Throttle,
        Class::Disable => EvidenceKind::DeadKey,
        Class::ModelUnavailable => EvidenceKind::ModelUnavailable,
        Class::EndpointMissing => EvidenceKind::EndpointMissing,
        Class::Retryable => match status {
            504 | 524 => EvidenceKind::UnknownOutcome,
            408 => EvidenceKind::RequestTimeout,
            300..400 => EvidenceKind::Redirect,
            _ => EvidenceKind::ServerError,
        },
    }
}

/// The status a 2xx error stands for: the number it names, else the one its type is usually sent with, else none.
fn named_status(facts: &Facts) -> u16 {
    facts.status.or_else(|| facts.codes.iter().find_map(implied)).unwrap_or(0)
}

fn implied(code: &Code) -> Option<u16> {
    Some(match code.plain.as_str() {
        "invalidrequesterror"
        | "badrequesterror"
        | "invalidrequest"
        | "badrequest"
        | "validationerror"
        | "invalidargument"
        | "validationexception"
        | "invalidparameter"
        | "invalidparametervalue"
        | "missingparameter" => 400,
        "unauthorized" => 401,
        "forbidden" | "permissionerror" | "permissiondenied" | "accessdenied" => 403,
        "notfound" => 404,
        _ => return None,
    })
}

/// MiniMax writes its number in parentheses at the end of the message: "insufficient balance (1008)".
fn minimax_number(facts: &mut Facts, family: Option<&str>) {
    if !(facts.http_code || family == Some("minimax")) {
        return;
    }
    let message = facts.first_message().trim_end();
    let number =
        message.strip_suffix(')').and_then(|message| message.rsplit_once('(')).map(|(_, number)| number);
    if let Some(number) = number.filter(|n| n.len() == 4 && n.bytes().all(|byte| byte.is_ascii_digit())) {
        let code = Code::number(Place::BaseResp, number);
        facts.codes.push(code);
    }
}

/// The title of a page.
fn title(body: &[u8]) -> String {
    const TAG: &[u8] = b"<title>";
    let start = body.get(..2048).unwrap_or(body);
    let text = memchr::memchr_iter(b'<', start).find_map(|at| {
        let tag = start.get(at..at + TAG.len())?;
        if tag.eq_ignore_ascii_case(TAG) { start.get(at + TAG.len()..) } else { None }
    });
    let title = text.and_then(|text| text.get(..memchr::memchr(b'<', text)?)).unwrap_or_default();
    redact::excerpt(String::from_utf8_lossy(title).trim())
}

/// A verdict that needs no rules: nothing was said that could be read.
pub(super) fn bare(
    rule: &'static str,
    class: Class,
    scope: Scope,
    kind: EvidenceKind,
    detail: Detail,
    status: u16,
) -> Verdict {
    Verdict {
        class,
        scope,
        cause: None,
        confirm: false,
        unknown_outcome: false,
        kind,
        detail,
        status,
        rule: RuleId::Builtin(rule),
        also: Vec::new(),
        retry_after: None,
        provider_code: String::new(),
        excerpt: String::new(),
    }
}

/// A 2xx that is no answer.
pub(super) fn no_answer(rule: &'static str, word: &'static str, status: u16) -> Verdict {
    let kind = EvidenceKind::UnknownOutcome;
    let verdict = bare(rule, Class::Retryable, Scope::Ability, kind, Detail::Word(word), status);
    Verdict { unknown_outcome: true, ..verdict }
}

/// No response.
pub(super) fn transport(fault: Transport) -> Verdict {
    let unknown_outcome = fault.unknown_outcome();
    let kind = if unknown_outcome { EvidenceKind::UnknownOutcome } else { EvidenceKind::Network };
    let rule = match fault {
        Transport::Dns => "transport.dns",
        Transport::Refused => "transport.refused",
        Transport::Tls => "transport.tls",
        Transport::Reset { .. } => "transport.reset",
        Transport::NotHttp => "transport.not_http",
        Transport::Timeout(_) => "transport.timeout",
    };
    let verdict = bare(rule, Class::Retryable, Scope::Channel, kind, Detail::Word(fault.as_str()), 0);
    Verdict { unknown_outcome, ..verdict }
}

/// A stream that came to nothing.
pub(super) fn stream(fault: StreamFault) -> Verdict {
    match fault {
        StreamFault::Empty => no_answer("stream.empty", "empty_response", 200),
        StreamFault::Cut => no_answer("stream.cut", "reset", 200),
        StreamFault::NotAStream => no_answer("stream.not_a_stream", "parse_error", 200),
    }
}
