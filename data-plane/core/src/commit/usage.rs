//! Token counts, from wherever providers put them.

use serde::Deserialize;

use super::shape::Shape;
use super::tolerant::{Number, Tolerant};
use crate::classify::CountsAt;

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

/// The fields that hold counts, over all dialects.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Counts {
    prompt_tokens: Number,
    input_tokens: Number,
    #[serde(rename = "promptTokenCount")]
    prompt_token_count: Number,
    completion_tokens: Number,
    output_tokens: Number,
    #[serde(rename = "candidatesTokenCount")]
    candidates_token_count: Number,
    cache_read_input_tokens: Number,
    cached_tokens: Number,
    prompt_cache_hit_tokens: Number,
    #[serde(rename = "cachedContentTokenCount")]
    cached_content_token_count: Number,
    #[serde(rename = "thoughtsTokenCount")]
    thoughts_token_count: Number,
    prompt_tokens_details: Tolerant<Details>,
    input_tokens_details: Tolerant<Details>,
    completion_tokens_details: Tolerant<Details>,
    output_tokens_details: Tolerant<Details>,
    /// Cohere: what was really used, beside what is billed.
    tokens: Tolerant<Tokens>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Number,
    reasoning_tokens: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input_tokens: Number,
    output_tokens: Number,
}

impl Counts {
    /// Of a chat.
    pub(super) fn plain(prompt: Option<u64>, completion: Option<u64>) -> Self {
        Self { prompt_tokens: Number(prompt), completion_tokens: Number(completion), ..Self::default() }
    }
}

// === impl Usage ===

impl Usage {
    /// The counts of a whole plain JSON answer.
    pub fn of_answer(body: &[u8]) -> Self {
        let mut usage = Self::default();
        // Most of the parse is spared where there is nothing to find.
        if memchr::memmem::rfind(body, b"\"usage").is_none() {
            return usage;
        }
        if let Some(shape) = Shape::of_counts(body) {
            usage.update(&shape);
        }
        usage
    }

    /// The counts of a whole plain JSON answer of which it is known where it has them.
    pub fn of_answer_at(body: &[u8], counts: CountsAt) -> Self {
        let mut usage = Self::default();
        match counts {
            CountsAt::Unknown => return Self::of_answer(body),
            CountsAt::Nowhere => {}
            CountsAt::Usage(from, to) => {
                let found = body.get(from..to).map(serde_json::from_slice::<Tolerant<Counts>>);
                if let Some(Ok(Tolerant(Some(counts)))) = found {
                    usage.take(&counts);
                }
            }
        }
        usage
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes over what an event mentions.
    pub(super) fn update(&mut self, shape: &Shape<'_>) {
        shape.counts(|counts| self.take(counts));
    }

    fn take(&mut self, counts: &Counts) {
        let first = |numbers: &[&Number]| numbers.iter().find_map(|number| number.0);
        let details = |places: [&Tolerant<Details>; 2], of: fn(&Details) -> &Number| {
            places.into_iter().find_map(|place| of(place.0.as_ref()?).0)
        };
        let tokens = counts.tokens.0.as_ref();
        let input = first(&[&counts.prompt_tokens, &counts.input_tokens, &counts.prompt_token_count])
            .or(tokens.and_then(|tokens| tokens.input_tokens.0));
        let output =
            first(&[&counts.completion_tokens, &counts.output_tokens, &counts.candidates_token_count])
                .or(tokens.and_then(|tokens| tokens.output_tokens.0));
        let cached =
            details([&counts.prompt_tokens_details, &counts.input_tokens_details], |d| &d.cached_tokens).or(
                first(&[
                    &counts.cache_read_input_tokens,
                    &counts.cached_tokens,
                    &counts.prompt_cache_hit_tokens,
                    &counts.cached_content_token_count,
                ]),
            );
        let reasoning = details([&counts.completion_tokens_details, &counts.output_tokens_details], |d| {
            &d.reasoning_tokens
        })
        .or(counts.thoughts_token_count.0);
        self.input = input.or(self.input);
        self.output = output.or(self.output);
        self.cached = cached.or(self.cached);
        self.reasoning = reasoning.or(self.reasoning);
    }
}
