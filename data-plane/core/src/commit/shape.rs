//! What of an event's (or an answer's) JSON matters here: one tolerant, borrowed pass that keeps no text but short words.
//!
//! A field of an unexpected type reads as absent; it never makes the rest unreadable.

mod parts;
mod plain;

use serde::de::Deserialize;

use self::parts::{Block, Candidate, Choice, Delta, Feedback, Output, Response, WithUsage};
use super::Finish;
use super::tolerant::{Filled, List, Present, Tolerant, Word};
use super::usage::Counts;
use crate::classify::json::{Cursor, Value};

/// One JSON object, as far as it matters.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Shape<'a> {
    #[serde(borrow)]
    r#type: Word<'a>,
    #[serde(borrow)]
    object: Word<'a>,
    #[serde(borrow)]
    choices: List<Choice<'a>>,
    #[serde(borrow)]
    candidates: List<Candidate<'a>>,
    /// DashScope's own form.
    #[serde(borrow)]
    output: Tolerant<Output<'a>>,
    #[serde(borrow)]
    delta: Delta<'a>,
    #[serde(borrow)]
    content_block: Tolerant<Block<'a>>,
    #[serde(borrow)]
    item: Tolerant<Block<'a>>,
    message: Tolerant<WithUsage>,
    #[serde(borrow)]
    response: Tolerant<Response<'a>>,
    usage: Tolerant<Counts>,
    #[serde(rename = "usageMetadata")]
    usage_metadata: Tolerant<Counts>,
    x_groq: Tolerant<WithUsage>,
    #[serde(rename = "promptFeedback", borrow)]
    prompt_feedback: Tolerant<Feedback<'a>>,
    error: Filled,
    // Keys by which one provider or another says error in a 2xx; that they are there is all that counts here.
    base_resp: Present,
    error_code: Present,
    header: Present,
    #[serde(rename = "Response")]
    tencent_response: Present,
    success: Present,
    detail: Present,
    errors: Present,
    status_code: Present,
    code: Present,
}

/// Whether an event type (or name) is the last of its stream.
pub(super) fn is_terminal(kind: &str) -> bool {
    matches!(
        kind,
        "message_stop"
            | "message-end"
            | "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "speech.audio.done"
            | "transcript.text.done"
    )
}

/// One value; what is not to be read counts as absent.
fn read<'a, T: Deserialize<'a> + Default>(value: &'a [u8]) -> T {
    serde_json::from_slice(value).unwrap_or_default()
}

fn finish(word: &Word<'_>) -> Option<Finish> {
    (!word.0.is_empty()).then(|| Finish::of_word(&word.0))
}

// === impl Shape ===

impl<'a> Shape<'a> {
    /// `None`: not a JSON object.
    pub(super) fn of(data: &'a [u8]) -> Option<Self> {
        let first = data.iter().find(|byte| !byte.is_ascii_whitespace())?;
        if *first != b'{' {
            return None;
        }
        plain::read(data).or_else(|| serde_json::from_slice(data).ok())
    }

    /// As [`Self::of`], as far as [`Self::counts`] goes: the rest of a whole answer is stepped over, not taken apart.
    pub(super) fn of_counts(data: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(data);
        if cursor.value() != Value::Object {
            return None;
        }
        let mut shape = Self::default();
        while let Some(key) = cursor.key() {
            let from = cursor.at();
            cursor.skip();
            let value = data.get(from..cursor.at()).unwrap_or_default();
            match key.plain() {
                b"usage" => shape.usage = read(value),
                b"usageMetadata" => shape.usage_metadata = read(value),
                b"x_groq" => shape.x_groq = read(value),
                b"message" => shape.message = read(value),
                b"response" => shape.response = read(value),
                b"delta" => shape.delta = read(value),
                _ => {}
            }
        }
        Some(shape)
    }

    pub(super) fn kind(&self) -> &str {
        &self.r#type.0
    }

    pub(super) fn is_terminal(&self) -> bool {
        is_terminal(self.kind())
    }

    /// Whether it is worth asking the classifier: some sign of an error, or nothing that is known.
    pub(super) fn may_be_error(&self, name: Option<&str>) -> bool {
        name == Some("error")
            || self.error.0
            || matches!(self.kind(), "error" | "response.failed")
            || self.object.0 == "error"
            || self.response.0.as_ref().is_some_and(|response| response.error.0)
            || [self.base_resp.0, self.error_code.0, self.header.0, self.tencent_response.0, self.success.0]
                .contains(&true)
            || [self.detail.0, self.errors.0, self.status_code.0, self.code.0].contains(&true)
            || !self.is_known()
    }

    /// Whether it has a shape of one of the dialects.
    pub(super) fn is_known(&self) -> bool {
        self.choices.present || self.candidates.present || !self.kind().is_empty()
    }

    pub(super) fn has_content(&self) -> bool {
        if self.choices.items.iter().any(Choice::has_content)
            || self.candidates.items.iter().any(Candidate::has_content)
            || self.output.0.as_ref().is_some_and(Output::has_content)
        {
            return true;
        }
        let kind = self.kind();
        match kind {
            "" | "message_delta" | "ping" => false,
            "content_block_delta" => self.delta.is_block_content(),
            "content_block_start" => {
                self.content_block.0.as_ref().is_some_and(|block| block.text.0 || block.thinking.0)
            }
            "content-start" | "content-delta" => self.delta.is_cohere_content(),
            "tool-plan-delta" | "tool-call-start" | "tool-call-delta" | "citation-start" => true,
            "response.completed" | "response.incomplete" => {
                self.response.0.as_ref().is_some_and(|response| response.output.0)
            }
            "response.output_item.done" => self.item.0.as_ref().is_some_and(Block::is_item_content),
            "image_generation.completed" | "image_edit.completed" | "transcript.text.segment" => true,
            "transcript.text.done" => true,
            _ => {
                kind.ends_with(".partial_image")
                    || (kind.ends_with("delta") && self.delta.text.unwrap_or(true))
            }
        }
    }

    /// Counts and no choices: the extra chunk of `include_usage`.
    pub(super) fn is_usage_only(&self) -> bool {
        self.choices.present && self.choices.items.is_empty() && self.usage.0.is_some()
    }

    /// Content of a kind that is known here, and nothing beside that has an effect: no finish, no counts, no error.
    pub(super) fn is_mere_content(&self) -> bool {
        let mut mere = self.is_known() && self.has_content() && !self.may_be_error(None);
        self.finishes(|_, finish| mere &= finish.is_none());
        self.counts(|_| mere = false);
        mere
    }

    /// Every choice mentioned, with its finish reason where it has one.
    pub(super) fn finishes(&self, mut note: impl FnMut(u64, Option<Finish>)) {
        for choice in &self.choices.items {
            note(choice.index.0.unwrap_or(0), finish(&choice.finish_reason));
        }
        for candidate in &self.candidates.items {
            note(candidate.index.0.unwrap_or(0), finish(&candidate.finish_reason));
        }
        if let Some(reason) = self.prompt_feedback.0.as_ref().map(|feedback| &feedback.block_reason)
            && !reason.0.is_empty()
        {
            note(0, Some(Finish::Refused));
        }
        let of_delta = self
            .delta
            .object
            .as_ref()
            .and_then(|delta| finish(&delta.stop_reason).or_else(|| finish(&delta.finish_reason)));
        if self.choices.items.is_empty() && of_delta.is_some() {
            note(0, of_delta);
        }
        match self.kind() {
            "response.completed" | "image_generation.completed" | "image_edit.completed" => {
                note(0, Some(Finish::Stop));
            }
            "response.incomplete" => {
                let details =
                    self.response.0.as_ref().and_then(|response| response.incomplete_details.0.as_ref());
                note(0, Some(details.and_then(|details| finish(&details.reason)).unwrap_or(Finish::Length)));
            }
            _ => {}
        }
    }

    /// Every place that holds counts, the best one last.
    pub(super) fn counts(&self, mut take: impl FnMut(&Counts)) {
        self.choices.items.iter().filter_map(|choice| choice.usage.0.as_ref()).for_each(&mut take);
        let places = [
            self.x_groq.0.as_ref().and_then(|with| with.usage.0.as_ref()),
            self.message.0.as_ref().and_then(|with| with.usage.0.as_ref()),
            self.response.0.as_ref().and_then(|with| with.usage.0.as_ref()),
            self.delta.object.as_ref().and_then(|with| with.usage.0.as_ref()),
            self.usage_metadata.0.as_ref(),
            self.usage.0.as_ref(),
        ];
        places.into_iter().flatten().for_each(&mut take);
    }
}
