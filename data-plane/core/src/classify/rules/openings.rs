//! What an error says in its first words, where neither a code nor a known phrase tells. Up to where both the subject and
//! what is wrong with it are named, every word has to be one of a few: no text that somebody sent or wrote begins like
//! that. These are defaults: nothing else has hit, and a probe confirms what they condemn.

mod zh;

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

pub(super) fn names_money(facts: &Facts, status: u16) -> bool {
    begins(facts, status, |start| {
        start.says(MONEY)
            || (status != 429 && start.says(&[QUOTA]))
            || PAY.iter().any(|pay| start.text.starts_with(pay))
            || start.says_zh(zh::MONEY)
    })
}

pub(super) fn names_who(facts: &Facts, status: u16) -> bool {
    begins(facts, status, |start| {
        (start.says(WHO) && !any(sentence(&start.text), ELSE))
            || (start.says(&[PLACE]) && any(&start.text, &["your ", "ip "]))
            || start.says_zh(zh::WHO)
    })
}

pub(super) fn names_rate(facts: &Facts, status: u16) -> bool {
    begins(facts, status, |start| {
        (start.says(RATE) && !any(&start.text, &["batch", "array", " in one", " in a single"]))
            || ["slow down", "throttled", "request limit"].iter().any(|word| start.text.starts_with(word))
            || start.says_zh(zh::RATE)
    })
}

pub(super) fn names_busy(facts: &Facts, status: u16) -> bool {
    begins(facts, status, |start| start.says(BUSY) || start.says_zh(zh::BUSY))
}

pub(super) fn names_model(facts: &Facts, status: u16) -> bool {
    begins(facts, status, |start| {
        (of_model(&start.text) && !any(&start.text, ASKED)) || start.says_zh(zh::MODEL)
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

/// The start of the error's own message, in small letters and simplified characters; the same for every rule.
#[derive(Clone, Debug)]
pub(in crate::classify) struct Opening {
    text: String,
    /// Its first two words are of those known here. Where they are not, it names no topic.
    plain: bool,
}

impl Opening {
    fn of(message: &str, status: u16) -> Self {
        let message = message.trim_start();
        let message =
            chinese::simplified(message.get(..message.floor_char_boundary(2 * START)).unwrap_or(message));
        let message = unlabelled(&message, status).unwrap_or(&message);
        let text = message.get(..message.floor_char_boundary(START)).unwrap_or(message).to_lowercase();
        let plain = words(&text).take(2).filter(|word| is_known(word)).count() == 2;
        Self { text, plain }
    }

    fn says(&self, topics: &[Topic]) -> bool {
        self.plain && topics.iter().any(|topic| says(&self.text, topic))
    }

    fn says_zh(&self, pairs: &[zh::Pair]) -> bool {
        !self.text.is_ascii() && pairs.iter().any(|pair| zh::says(&self.text, *pair))
    }
}

/// What the start of the error's own message says.
fn begins(facts: &Facts, status: u16, test: impl Fn(&Opening) -> bool) -> bool {
    // An engine's own word for a request it could not use: its template may have raised what a caller wrote.
    let engine = matches!(status, 400 | 422) && facts.has_word("badrequesterror");
    if facts.shape != Shape::Json || engine {
        return false;
    }
    test(facts.opening.get_or_init(|| Opening::of(facts.first_message(), status)))
}

fn any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Looked up for almost every word.
fn is_between(word: &str) -> bool {
    static WORDS: OnceLock<HashSet<&'static str, QuickBuild>> = OnceLock::new();
    WORDS.get_or_init(|| BETWEEN.split(' ').collect()).contains(word)
}

/// Whether a word is of any topic, or stands between those.
fn is_known(word: &str) -> bool {
    static WORDS: OnceLock<HashSet<&'static str, QuickBuild>> = OnceLock::new();
    let known = || {
        let topics = [MONEY, WHO, RATE, BUSY, &[QUOTA], &[PLACE]].into_iter().flatten();
        let lists = topics.flat_map(|topic| [topic.heads, topic.faults, topic.wanted]);
        lists.chain([NOT, BETWEEN]).flat_map(|list| list.split(' ')).collect()
    };
    WORDS.get_or_init(known).contains(word)
}

fn is(word: &str, list: &str) -> bool {
    list.split(' ').any(|other| other == word)
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
