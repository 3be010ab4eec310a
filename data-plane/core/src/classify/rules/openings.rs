//! What an error says in its first words, where neither a code nor a known phrase tells. Up to where both the subject and
//! what is wrong with it are named, every word has to be one of a few: no text that somebody sent or wrote begins like
//! that. These are defaults: nothing else has hit, and a probe confirms what they condemn.

use std::collections::HashSet;
use std::sync::OnceLock;

use crate::classify::chinese;
use crate::classify::facts::{Facts, Shape};
use crate::hash::QuickBuild;

/// As far as is read, in bytes and in words.
const START: usize = 200;
const WORDS: usize = 16;

/// One thing that may be wrong. Lists of words, with spaces between them.
struct Topic {
    heads: &'static str,
    faults: &'static str,
    /// What it is not, where it says `not`.
    wanted: &'static str,
    /// That there is none is a fault.
    none: bool,
}

const MONEY: &[Topic] = &[
    Topic {
        heads: "balance credit credits funds wallet billing payment invoice",
        faults: "insufficient low negative zero exhausted depleted expired overdue unpaid empty failed used out disabled",
        wanted: "enough sufficient enabled remaining left",
        none: true,
    },
    Topic {
        heads: "spending spend budget cost",
        faults: "exceeded reached hit exhausted",
        wanted: "",
        none: false,
    },
    Topic {
        heads: "subscription trial plan package",
        faults: "expired ended lapsed cancelled canceled inactive required",
        wanted: "active",
        none: true,
    },
];

/// Under 429 it may come back in a minute.
const QUOTA: Topic = Topic {
    heads: "quota",
    faults: "exhausted used depleted insufficient",
    wanted: "enough remaining left",
    none: true,
};

const PAY: &[&str] =
    &["please top up", "please recharge", "please add credit", "please add funds", "please add a payment"];

const WHO: &[Topic] = &[
    Topic {
        heads: "apikey",
        faults: "invalid expired revoked disabled deactivated suspended banned blocked inactive unknown unrecognized \
                 incorrect wrong leaked terminated missing required",
        wanted: "valid found recognized active exist correct",
        none: true,
    },
    Topic {
        heads: "key token",
        faults: "revoked disabled deactivated suspended banned expired inactive terminated",
        wanted: "active",
        none: false,
    },
    Topic {
        heads: "account user organization organisation org team project workspace tenant",
        faults: "suspended banned disabled deactivated blocked inactive frozen terminated locked closed",
        wanted: "active",
        none: false,
    },
];

/// Where from.
const PLACE: Topic = Topic {
    heads: "region country location territory ip",
    faults: "unsupported blocked forbidden unauthorized unavailable denied",
    wanted: "supported available allowed permitted whitelisted authorized whitelist allowlist",
    none: false,
};

const RATE: &[Topic] = &[
    Topic { heads: "requests", faults: "many frequent frequently quickly fast", wanted: "", none: false },
    Topic { heads: "request", faults: "throttled frequently", wanted: "", none: false },
    Topic {
        heads: "concurrency concurrent rate frequency qps rpm tpm",
        faults: "exceeded reached limited",
        wanted: "",
        none: false,
    },
];

const BUSY: &[Topic] = &[
    Topic {
        heads: "server servers service system engine model upstream gateway workers queue",
        faults: "busy overloaded full timeout temporarily",
        wanted: "",
        none: false,
    },
    Topic {
        heads: "capacity demand load gpu",
        faults: "high insufficient out exceeded",
        wanted: "",
        none: true,
    },
    Topic { heads: "upstream", faults: "error failed unavailable", wanted: "", none: false },
    Topic { heads: "internal", faults: "error", wanted: "", none: false },
    Topic { heads: "request", faults: "timed timeout", wanted: "", none: false },
];

/// What may be wrong besides the key itself, or blocked besides the account.
const ELSE: &[&str] = &[
    "model",
    "scope",
    "permission",
    "tool",
    "mcp",
    "connector",
    "file",
    "request",
    "prompt",
    "input",
    "message",
    "output",
    "response",
];

/// What a request asks of a model, or does not say.
const ASKED: &[&str] = &[
    "in request",
    "in the request",
    "body",
    "field",
    "parameter",
    "stream",
    "tool",
    "function",
    "thinking",
    "reasoning",
    "response_format",
    "that support",
    " input",
];

const NOT: &str = "no not don't doesn't isn't aren't hasn't haven't cannot can't couldn't without unable";

const BETWEEN: &str = "a an the this that your our you we you've you're we're it is are was were has have had been be \
                       being to for of on in with from or and do does did could too all any up run ran now right longer \
                       currently already temporarily permanently please experiencing sending current provided supplied \
                       given associated requested selected specified remaining available free paid prepaid monthly daily \
                       last per minute second hour maximum api account user users organization team project workspace \
                       wallet limit cap method service server access address request requests active valid enough";

/// The same of Chinese: what it is about, and what is wrong with it.
type Pair = (&'static str, &'static str);

const MONEY_ZH: &[Pair] = &[
    ("余额 额度 积分 点数 资源包余量 资源包 套餐 订阅", "不足 用完 用尽 耗尽 到期 过期 未购买 未订阅"),
    ("账户 账号 帐户 帐号", "欠费"),
    ("停机 停服 停用", "欠费"),
];

const WHO_ZH: &[Pair] = &[
    ("api密钥 密钥 令牌 apikey", "无效 失效 过期 不存在 错误 吊销 封禁 禁用 停用 冻结"),
    ("账号 账户 帐号 帐户 用户", "封禁 禁用 停用 冻结 封停 注销"),
    ("鉴权 认证 签名", "失败 错误"),
];

const RATE_ZH: &[Pair] = &[
    ("请求 访问 调用", "频繁 过快 频率过高 频率超限"),
    ("并发 频率 速率 限流 qps", "过高 超限 超过 超出 达到 触发"),
];

const BUSY_ZH: &[Pair] = &[(
    "系统 服务器 服务 模型 上游 网络 算力 内部",
    "繁忙 过载 负载过高 负载已饱和 超时 错误 暂不可用 暂时不可用 异常 不足",
)];

const MODEL_ZH: &[Pair] = &[(
    "模型",
    "不存在 未找到 找不到 未开通 未启用 下线 下架 停用 弃用 不可用 无权 没有权限 未授权 名称错误 不支持",
)];

const BETWEEN_ZH: &str = "您的 你的 您 你 该 此 当前 剩余 可用 免费 用户 账户 账号 令牌 已被 已经 已 被 或 未 无 数 的 太 \
                          过于 使用 访问 请求 调用 次数 限制 暂 请 分组 系统 内部";

pub(super) fn names_money(facts: &Facts, status: u16) -> bool {
    begins(facts, status, |start| {
        MONEY.iter().any(|topic| says(start, topic))
            || (status != 429 && says(start, &QUOTA))
            || PAY.iter().any(|pay| start.starts_with(pay))
            || MONEY_ZH.iter().any(|pair| says_zh(start, *pair))
    })
}

pub(super) fn names_who(facts: &Facts, status: u16) -> bool {
    begins(facts, status, |start| {
        (WHO.iter().any(|topic| says(start, topic)) && !any(sentence(start), ELSE))
            || (says(start, &PLACE) && (start.contains("your ") || start.contains("ip ")))
            || WHO_ZH.iter().any(|pair| says_zh(start, *pair))
    })
}

pub(super) fn names_rate(facts: &Facts, status: u16) -> bool {
    begins(facts, status, |start| {
        (RATE.iter().any(|topic| says(start, topic))
            && !any(start, &["batch", "array", " in one", " in a single"]))
            || ["slow down", "throttled", "request limit"].iter().any(|word| start.starts_with(word))
            || RATE_ZH.iter().any(|pair| says_zh(start, *pair))
    })
}

pub(super) fn names_busy(facts: &Facts, status: u16) -> bool {
    begins(facts, status, |start| {
        BUSY.iter().any(|topic| says(start, topic)) || BUSY_ZH.iter().any(|pair| says_zh(start, *pair))
    })
}

pub(super) fn names_model(facts: &Facts, status: u16) -> bool {
    begins(facts, status, |start| {
        (of_model(start) && !any(start, ASKED)) || MODEL_ZH.iter().any(|pair| says_zh(start, *pair))
    })
}

/// What stands behind a label that says no more than that something is wrong: `Error: …`, `401 Unauthorized: …`. Not behind
/// `OpenAI error: …`, which somebody quotes, nor where a request is refused, whose text may stand behind it.
pub(super) fn unlabelled(message: &str, status: u16) -> Option<&str> {
    const LABEL: usize = 40;
    const LABELS: &str = "error exception unauthorized forbidden bad request not found authentication authorization \
                          permission denied access invalid internal server payment required client http status \
                          valueerror runtimeerror badrequesterror authenticationerror permissiondeniederror \
                          notfounderror httpexception permission_denied invalid_argument failed_precondition \
                          unauthenticated authentication_error invalid_request_error permission_error billing_error";
    if matches!(status, 400 | 413 | 422) {
        return None;
    }
    let head = message.get(..message.floor_char_boundary(LABEL))?;
    let at = head.find([':', '-', '–'])?;
    let label = head.get(..at)?;
    let rest = message.get(at..)?.trim_start_matches([':', '-', '–']);
    let known = |word: &str| {
        LABELS.split(' ').any(|other| other.eq_ignore_ascii_case(word))
            || matches!(word.parse::<u16>(), Ok(400..=599))
    };
    (rest.starts_with(' ') && label.split_whitespace().all(known)).then(|| rest.trim_start())
}

/// What the start of the error's own message says, in small letters and simplified characters.
fn begins(facts: &Facts, status: u16, test: impl Fn(&str) -> bool) -> bool {
    // An engine's own word for a request it could not use: its template may have raised what a caller wrote.
    let engine = matches!(status, 400 | 422) && facts.has_word("badrequesterror");
    if facts.shape != Shape::Json || engine {
        return false;
    }
    let message = facts.first_message().trim_start();
    let message =
        chinese::simplified(message.get(..message.floor_char_boundary(2 * START)).unwrap_or(message));
    let message = unlabelled(&message, status).unwrap_or(&message);
    test(&message.get(..message.floor_char_boundary(START)).unwrap_or(message).to_lowercase())
}

fn any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Looked up for almost every word.
fn is_between(word: &str) -> bool {
    static WORDS: OnceLock<HashSet<&'static str, QuickBuild>> = OnceLock::new();
    WORDS.get_or_init(|| BETWEEN.split(' ').collect()).contains(word)
}

fn is(word: &str, list: &str) -> bool {
    list.split(' ').any(|other| other == word)
}

/// Chinese has no spaces: piece by piece. Behind a model its name may stand; what it does not support is not the matter.
fn says_zh(start: &str, (heads, faults): Pair) -> bool {
    if start.is_ascii() {
        return false;
    }
    let start = start.replacen("api key", "apikey", 1);
    let (mut head, mut fault, mut rest) = (false, false, start.as_str());
    for _ in 0..WORDS {
        rest = rest.trim_start();
        if let Some(after) = strip(rest, faults) {
            if rest.starts_with("不支持") && head {
                return false;
            }
            (fault, rest) = (true, after);
        } else if let Some(after) = strip(rest, heads) {
            (head, rest) = (true, after);
            if heads == "模型" {
                rest = rest
                    .trim_start()
                    .trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c));
            }
        } else if let Some(after) = strip(rest, BETWEEN_ZH) {
            rest = after;
        } else {
            return false;
        }
        if head && fault {
            return true;
        }
    }
    false
}

fn strip<'a>(text: &'a str, list: &str) -> Option<&'a str> {
    list.split(' ').find_map(|piece| text.strip_prefix(piece))
}

fn sentence(start: &str) -> &str {
    let start = start.split([',', ';', ':', '!', '\n', '(', '—']).next().unwrap_or_default();
    start.split(". ").next().unwrap_or_default()
}

/// The words of the first sentence; the names of a key are one: `apikey`.
fn words(start: &str) -> impl Iterator<Item = &str> {
    let mut raw = sentence(start).split_whitespace().map(|word| word.trim_end_matches('.')).peekable();
    std::iter::from_fn(move || {
        let word = raw.next()?;
        let key =
            is(word, "api access auth bearer secret") && raw.next_if(|next| is(next, "key token")).is_some();
        Some(if key || is(word, "api-key api_key") { "apikey" } else { word })
    })
    .take(WORDS)
}

fn says(start: &str, topic: &Topic) -> bool {
    let (mut head, mut fault, mut not) = (false, false, false);
    for word in words(start) {
        if is(word, NOT) {
            not = true;
        } else if is(word, topic.heads) {
            head = true;
            fault |= not && topic.none;
        } else if is(word, topic.faults) || (not && is(word, topic.wanted)) {
            fault = true;
        } else if !is_between(word) && !is(word, topic.wanted) {
            return false;
        }
        if head && fault {
            return true;
        }
    }
    false
}

/// `Cannot find model "x"`, `Your team does not have access to this model`, `This model is only available on …`; never
/// what a model does not do, `the model does not support tools`.
fn of_model(start: &str) -> bool {
    const WHICH: &str = "invalid unknown unsupported unrecognized";
    const AFTER: &str = "specified requested provided selected name id identifier";
    const FAULTS: &str = "unavailable removed retired deprecated discontinued decommissioned restricted gated disabled \
                          denied forbidden sunset";
    const WANTED: &str = "available found exist supported allowed enabled deployed accessible permitted recognized \
                          authorized entitled access permission permissions find named whitelisted route plan tier \
                          subscription approval";
    const PLAN: &str = "support supports include includes cover covers";
    const BESIDE: &str = "key apikey token use using at by such provider providers";
    let (mut head, mut fault, mut not) = (false, false, false);
    let mut words = words(start).peekable();
    let which = words.peek().is_some_and(|word| is(word, WHICH));
    while let Some(word) = words.next() {
        let plan = !head && is(word, PLAN);
        if is(word, NOT) || is(word, "only requires") {
            not = true;
        } else if is(word, "model models deployment") {
            let named = words.next_if(|next| is_name(next)).is_some();
            if which {
                return named || words.peek().is_none_or(|next| is(next, AFTER));
            }
            head = true;
        } else if is(word, FAULTS) || (not && (plan || is(word, WANTED))) {
            fault = true;
        } else if !is_between(word) && ![BESIDE, WANTED, WHICH].iter().any(|list| is(word, list)) {
            return false;
        }
        if head && fault {
            return true;
        }
    }
    false
}

/// Whether a word is how a model is called.
fn is_name(word: &str) -> bool {
    word.starts_with(['\'', '"', '`']) || word.contains(|c: char| c.is_ascii_digit() || "-/_:".contains(c))
}
