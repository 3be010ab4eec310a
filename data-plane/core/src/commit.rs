//! Judges a stream event by event: when it may be committed, and how it ended.
//!
//! Knows the shapes of OpenAI chat, completions, responses, Anthropic messages, Cohere and Gemini streams by their
//! structure. It decides nothing about errors but that there is one; what it means is [`crate::classify`]'s.
//! No I/O, no clock; text that a model wrote is only ever looked at for being empty or not.

#[cfg(test)]
mod tests;

use std::time::SystemTime;

use http::HeaderMap;

use crate::classify::{Rules, Verdict};
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

/// Token counts as last seen in a stream or an answer: the last mention of each wins, nothing is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens.
    pub input: Option<u64>,
    /// Completion tokens.
    pub output: Option<u64>,
    /// Prompt tokens read from a cache.
    pub cached: Option<u64>,
    /// Completion tokens spent on reasoning.
    pub reasoning: Option<u64>,
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
pub struct Judge {}

impl Judge {
    /// Before the first event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at the next event.
    pub fn event(&mut self, _event: Event<'_>, _context: &Context<'_>) -> Step {
        todo!()
    }

    /// Whether any event so far carried content.
    pub fn content(&self) -> bool {
        todo!()
    }

    /// Whether the terminal event has been seen.
    pub fn terminal(&self) -> bool {
        todo!()
    }

    /// The finish reason, once every choice seen so far has one.
    pub fn finish(&self) -> Option<Finish> {
        todo!()
    }

    /// Whether an end now, without content, is an answer all the same (a refusal, a filtered or exhausted answer, tools).
    pub fn may_end_without_content(&self) -> bool {
        todo!()
    }

    /// Whether a clean end of the body now is a complete answer.
    pub fn may_end(&self) -> bool {
        todo!()
    }

    /// Token counts as last seen.
    pub fn usage(&self) -> Usage {
        todo!()
    }

    /// Data events seen (`[DONE]` not counted).
    pub fn events(&self) -> u32 {
        todo!()
    }
}

impl Usage {
    /// The counts of a whole plain JSON answer.
    pub fn of_answer(_body: &[u8]) -> Self {
        Self::default()
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
