//! Judges a stream event by event: when it may be committed, and how it ended.
//!
//! Knows the shapes of OpenAI chat, completions, responses, Anthropic messages, Cohere and Gemini streams by their
//! structure. It decides nothing about errors but that there is one; what it means is [`crate::classify`]'s.
//! No I/O, no clock; text that a model wrote is only ever looked at for being empty or not.

mod alike;
mod shape;
#[cfg(test)]
mod tests;
mod tolerant;
mod usage;

use std::time::SystemTime;

use http::HeaderMap;

use self::alike::Alike;
use self::shape::Shape;
pub use self::usage::Usage;
use crate::classify::{Evidence, Input, Rules, Verdict, check_stream_event};
use crate::sse::Event;
use crate::words::{Endpoint, Provider};

/// What one event means.
#[derive(Debug)]
pub enum Step {
    /// Nothing to act on: lifecycle, ping, role only, malformed.
    Nothing,
    /// It carries content: phase one is over.
    Content,
    /// The last event of the stream; `content` where it carries content itself.
    Terminal {
        /// The event itself carries content.
        content: bool,
    },
    /// An error, by its structure.
    Error(Box<Verdict>),
}

/// What the judge has to know of the attempt.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The dialect spoken.
    pub provider: Provider,
    /// Whose rules apply.
    pub vendor: Option<&'a str>,
    /// What was asked for.
    pub endpoint: Option<Endpoint>,
    /// Status of the head.
    pub status: u16,
    /// The head.
    pub headers: &'a HeaderMap,
    /// The rules in force.
    pub rules: &'a Rules,
    /// Now.
    pub now: SystemTime,
}

/// How a stream finished by its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finish {
    /// `stop`, `end_turn`, `completed`, `COMPLETE`, `STOP` and unknown words.
    Stop,
    /// Cut by a token limit.
    Length,
    /// Refused, or filtered by the provider.
    Refused,
    /// Tools are to be called.
    ToolCalls,
    /// `error`.
    Error,
}

/// One per stream.
#[derive(Debug, Default)]
pub struct Judge {
    events: u32,
    content: bool,
    terminal: bool,
    /// Some event had a shape that is known here.
    recognised: bool,
    /// Choices seen and finished, by index; those above 63 share a bit.
    seen: u64,
    finished: u64,
    finish: Option<Finish>,
    usage: Usage,
    usage_only: bool,
    alike: Alike,
}

impl Judge {
    /// Before the first event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at the next event.
    pub fn event(&mut self, event: Event<'_>, context: &Context<'_>) -> Step {
        self.usage_only = false;
        if event.data.trim_ascii() == b"[DONE]" {
            self.terminal = true;
            return Step::Terminal { content: false };
        }
        self.events = self.events.saturating_add(1);
        if event.too_long {
            return self.unread(event.name);
        }
        // Of the name, only this counts beside the data.
        let bare = event.name != Some("error") && event.status.is_none();
        if bare && self.content && self.alike.is(event.data) {
            return Step::Content;
        }
        let mended;
        let mut shape = Shape::of(event.data);
        if shape.is_none() {
            mended = mended_json(event.data);
            shape = mended.as_deref().and_then(Shape::of);
        }
        if shape.as_ref().is_none_or(|shape| shape.may_be_error(event.name)) {
            let evidence = Evidence::Event {
                status: event.status.unwrap_or(context.status),
                headers: context.headers,
                event: event.name,
                data: event.data,
            };
            if let Some(verdict) = check_stream_event(&context.input(evidence), context.rules, context.now) {
                self.recognised = true;
                if let Some(shape) = &shape {
                    // What failed has been counted, and will be billed.
                    self.usage.update(shape);
                }
                self.terminal |= shape.is_some_and(|shape| match shape.kind() {
                    "response.failed" => true,
                    // Nothing follows Anthropic's.
                    "error" => context.endpoint == Some(Endpoint::Messages),
                    _ => false,
                });
                return Step::Error(verdict);
            }
        }
        let known = context.knows_its_streams();
        self.recognised |= known;
        let Some(shape) = shape else { return self.content_if(!known) };
        self.usage.update(&shape);
        self.note_finish(&shape);
        self.usage_only = shape.is_usage_only();
        let known = shape.is_known() || known;
        self.recognised |= known;
        let content = if known { shape.has_content() } else { true };
        if shape.is_terminal() {
            self.terminal = true;
            self.content |= content;
            return Step::Terminal { content };
        }
        if bare && content && shape.is_mere_content() {
            self.alike.remember(event.data);
        }
        self.content_if(content)
    }

    /// Whether any event so far carried content.
    pub fn content(&self) -> bool {
        self.content
    }

    /// Whether the terminal event has been seen.
    pub fn terminal(&self) -> bool {
        self.terminal
    }

    /// The finish reason, once every choice seen so far has one.
    pub fn finish(&self) -> Option<Finish> {
        self.finish.filter(|_| self.seen & !self.finished == 0)
    }

    /// Whether an end now, without content, is an answer all the same (a refusal, a filtered or exhausted answer, tools).
    pub fn may_end_without_content(&self) -> bool {
        match self.finish {
            Some(Finish::Length | Finish::Refused | Finish::ToolCalls) => true,
            Some(Finish::Stop | Finish::Error) => false,
            None => !self.recognised && self.events > 0,
        }
    }

    /// Whether a clean end of the body now is a complete answer: after a terminal event or a finish reason, and always
    /// where the stream's shape is not known here.
    pub fn may_end(&self) -> bool {
        self.terminal || self.finish().is_some() || !self.recognised
    }

    /// Token counts as last seen.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether the last event was the extra chunk of `include_usage`: counts, and no choices.
    pub fn usage_only(&self) -> bool {
        self.usage_only
    }

    /// Data events seen (`[DONE]` not counted).
    pub fn events(&self) -> u32 {
        self.events
    }

    fn content_if(&mut self, content: bool) -> Step {
        self.content |= content;
        if content { Step::Content } else { Step::Nothing }
    }

    /// An event too long to be looked at is content; its name may still say that it is the last.
    fn unread(&mut self, name: Option<&str>) -> Step {
        self.content = true;
        if name.is_some_and(shape::is_terminal) {
            self.terminal = true;
            return Step::Terminal { content: true };
        }
        Step::Content
    }

    fn note_finish(&mut self, shape: &Shape<'_>) {
        shape.finishes(|index, finish| {
            let bit = 1 << index.min(63);
            self.seen |= bit;
            if let Some(finish) = finish {
                self.finished |= bit;
                self.finish = Some(finish);
            }
        });
    }
}

/// JSON that is broken by nothing but raw control characters or bytes that are no UTF-8, as some servers leave them in text:
/// enough of it to be looked at. `None`: there are none of these.
fn mended_json(data: &[u8]) -> Option<Vec<u8>> {
    let mut text = match std::str::from_utf8(data) {
        Ok(_) if data.iter().all(|byte| *byte >= b' ') => return None,
        Ok(_) => data.to_vec(),
        Err(_) => String::from_utf8_lossy(data).into_owned().into_bytes(),
    };
    text.iter_mut().filter(|byte| **byte < b' ').for_each(|byte| *byte = b' ');
    Some(text)
}

// === impl Context ===

impl<'a> Context<'a> {
    fn input(&self, evidence: Evidence<'a>) -> Input<'a> {
        let Self { provider, vendor, endpoint, .. } = *self;
        Input { provider, vendor, endpoint, stream: true, evidence }
    }

    /// Whether the streams of the endpoint have a shape that is known here, so that what is of another shape is no content.
    fn knows_its_streams(&self) -> bool {
        matches!(
            self.endpoint,
            Some(
                Endpoint::ChatCompletions | Endpoint::Completions | Endpoint::Responses | Endpoint::Messages
            )
        )
    }
}

// === impl Finish ===

impl Finish {
    fn of_word(word: &str) -> Self {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "model_length"
            | "max_completion_tokens"
            | "model_context_window_exceeded" => Self::Length,
            "tool_calls" | "tool_call" | "tool_use" | "function_call" | "pause_turn" => Self::ToolCalls,
            "refusal" | "content_filter" | "content_filtered" | "sensitive" | "safety" | "recitation"
            | "blocklist" | "prohibited_content" | "spii" | "language" | "image_safety" | "error_toxic"
            | "guardrail" => Self::Refused,
            "error" | "network_error" | "failed" => Self::Error,
            _ => Self::Stop,
        }
    }

    /// For logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Refused => "refused",
            Self::ToolCalls => "tool_calls",
            Self::Error => "error",
        }
    }
}
