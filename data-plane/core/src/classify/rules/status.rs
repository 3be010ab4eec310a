//! What is left to the status: every answer ends here at the latest. A probe confirms what these condemn.

use super::openings;
use super::{Find, Rule, dead, rule};
use crate::classify::chinese;
use crate::classify::facts::{Facts, Shape};
use crate::words::{Cause, Class};

pub(super) static RULES: &[Rule] = &[
    rule("status.egress_proxy", Find::If(|_, _| true), Class::Retryable).on(&[(407, 407)]),
    rule("status.cloudflare_text", Find::If(cloudflare_text), Class::Retryable).on(&[(0, 428), (430, 999)]),
    dead("status.names_money", Cause::Quota, Find::If(openings::names_money)).confirmed().on(&[
        (0, 401),
        (403, 404),
        (422, 422),
        (429, 429),
        (500, 599),
    ]),
    dead("status.names_who", Cause::Credential, Find::If(openings::names_who)).confirmed().on(&[
        (0, 400),
        (404, 404),
        (422, 422),
        (429, 429),
        (500, 599),
    ]),
    rule("status.names_rate", Find::If(openings::names_rate), Class::Throttle).on(&[(400, 400), (422, 422)]),
    rule("status.names_busy", Find::If(openings::names_busy), Class::Retryable).on(&[(400, 400), (422, 422)]),
    rule("status.names_model", Find::If(openings::names_model), Class::ModelUnavailable)
        .on(&[(0, 400), (422, 422)]),
    dead("status.payment", Cause::Quota, Find::If(|_, _| true)).confirmed().on(&[(402, 402), (412, 412)]),
    rule("status.content_denied", Find::If(denies_content), Class::Transparent).on(&[(403, 403)]),
    rule("status.rate_denied", Find::If(denies_rate), Class::Throttle).on(&[(403, 403)]),
    rule("status.denied_for_now", Find::If(denies_for_now), Class::Retryable).on(&[(403, 403)]),
    rule("status.model_denied", Find::If(denies_model), Class::ModelUnavailable)
        .on(&[(401, 401), (403, 403)]),
    dead("status.unauthorized", Cause::Credential, Find::If(|_, _| true)).confirmed().on(&[(401, 401)]),
    dead("status.forbidden", Cause::Credential, Find::If(is_json)).confirmed().on(&[(403, 403)]),
    rule("status.forbidden_page", Find::If(|facts, _| !is_json(facts, 0)), Class::Retryable)
        .on(&[(403, 403)]),
    rule("status.model_named", Find::If(names_model), Class::ModelUnavailable).on(&[(404, 404), (410, 410)]),
    rule("status.not_found", Find::If(is_json), Class::EndpointMissing).on(&[(404, 404)]),
    rule("status.not_found_page", Find::If(|facts, _| !is_json(facts, 0)), Class::Retryable)
        .on(&[(404, 404)]),
    rule("status.rate", Find::If(|_, _| true), Class::Throttle).on(&[(429, 429)]),
    rule("status.transient", Find::If(|_, _| true), Class::Retryable).on(&[(408, 409), (423, 425)]),
    rule("status.request", Find::If(|_, _| true), Class::Transparent).on(&[(400, 499)]),
    rule("status.server", Find::If(|_, _| true), Class::Retryable),
];

/// A JSON body with something in it.
fn is_json(facts: &Facts, _status: u16) -> bool {
    facts.shape == Shape::Json
}

/// `error code: 1010`
fn cloudflare_text(facts: &Facts, _status: u16) -> bool {
    facts.shape == Shape::Text
        && facts.first_message().trim().get(..11).is_some_and(|s| s.eq_ignore_ascii_case("error code:"))
}

/// A refusal whose own message is about too many requests, as some send under 403.
fn denies_rate(facts: &Facts, _status: u16) -> bool {
    const RATE: &[&str] = &[
        "rate limit",
        "rate-limit",
        "ratelimit",
        "too many requests",
        "concurrent",
        "concurrency",
        "requests per",
        "per minute",
        "per second",
        "throttled",
        "qps",
        "rpm",
        "tpm",
        "too quickly",
        "too frequent",
        "slow down",
        "daily limit",
        "hourly limit",
        "request limit",
        "速率",
        "请求次数",
        "请求过快",
        "频率",
        "頻率",
        "频繁",
        "頻繁",
        "并发",
        "並發",
        "限流",
    ];
    refuses(facts, RATE)
}

/// A refusal whose own message is about what was asked, and not about who asks: "Request rejected by content moderation".
fn denies_content(facts: &Facts, _status: u16) -> bool {
    const CONTENT: &[&str] = &[
        "content moderation",
        "content policy",
        "content safety",
        "content filter",
        "guardrail",
        "sensitive content",
        "prohibited content",
        "prompt violates",
        "content violates",
        "content was blocked",
        "prompt was blocked",
        "response was blocked",
        "safety policy",
        "safety check",
        "safety system",
        "内容审计",
        "内容审核",
        "内容安全",
        "敏感内容",
        "敏感词",
        "敏感信息",
        "违规内容",
        "内容违规",
        "风险规则",
    ];
    speaks(facts, CONTENT, WHO)
}

/// Who asks, and what can have happened to them.
const WHO: &[&str] = &[
    "account",
    "organization",
    "workspace",
    "your project",
    "your resource",
    "api key",
    "api-key",
    "your key",
    "this key",
    "your token",
    "this token",
    "suspended",
    "banned",
    "disabled",
    "terminated",
    "账号",
    "账户",
    "帐号",
    "令牌",
    "用户",
    "封禁",
    "禁用",
    "冻结",
];

/// A refusal whose own message says that it is one for now, of whoever asks: "temporarily unavailable, try again later".
fn denies_for_now(facts: &Facts, _status: u16) -> bool {
    const NOW: &[&str] = &[
        "try again later",
        "try again in",
        "retry later",
        "temporarily unavailable",
        "稍后重试",
        "稍后再试",
        "均请求失败",
    ];
    refuses(facts, NOW) && !speaks(facts, WHO, &[])
}

/// A refusal whose own message is about a model: "This model is only available to Pro users".
fn denies_model(facts: &Facts, _status: u16) -> bool {
    refuses(facts, &["model", "modèle", "модел", "模型", "モデル", "모델", "mô hình"])
}

/// What can be wrong with a key, an account or the request.
const OTHER: &[&str] = &[
    "invalid",
    "incorrect",
    "expired",
    "missing",
    "suspended",
    "disabled",
    "blocked",
    "banned",
    "unauthorized",
    "unauthenticated",
    "authenticat",
    "credential",
    "log in",
    "login",
    "sign in",
    "quota",
    "credit",
    "balance",
    "billing",
    "payment",
    "spending",
    "usage",
    "context",
    "prompt",
    "permission '",
    "无效",
    "無效",
    "过期",
    "過期",
    "额度",
    "額度",
    "余额",
    "餘額",
    "欠费",
    "欠費",
    "禁用",
    "封禁",
];

/// Whether the error's own message speaks of one of `words`, and of nothing that could be wrong with the key, the account or
/// the request.
fn refuses(facts: &Facts, words: &[&str]) -> bool {
    speaks(facts, words, OTHER)
}

/// Whether the start of the error's own message has one of `words`, and none of `others`.
fn speaks(facts: &Facts, words: &[&str], others: &[&str]) -> bool {
    if facts.shape != Shape::Json {
        return false;
    }
    let message = chinese::simplified(facts.first_message());
    let start = message.get(..message.floor_char_boundary(300)).unwrap_or(&message).to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| start.contains(word));
    has(words) && !has(others)
}

/// A 404 or 410 whose code, parameter or message is about a model.
fn names_model(facts: &Facts, _status: u16) -> bool {
    if facts.shape != Shape::Json {
        return false;
    }
    let named = |text: &str| {
        let text = text.get(..text.len().min(300)).unwrap_or(text).to_ascii_lowercase();
        ["model", "deployment", "模型", "engine"].iter().any(|word| text.contains(word))
    };
    facts.param == "model"
        || facts.codes.iter().any(|code| named(&code.text))
        || facts.messages.iter().take(3).any(|message| named(message))
}
