//! What events are made of: choices, deltas, blocks, by the dialects that have them, and which of them hold content.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess};

use crate::commit::tolerant::{Any, Filled, FromAny, List, Number, Tolerant, Word};
use crate::commit::usage::Counts;

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub(super) index: Number,
    #[serde(borrow)]
    pub(super) delta: Delta<'a>,
    pub(super) message: Tolerant<Parts>,
    pub(super) text: Filled,
    #[serde(borrow)]
    pub(super) finish_reason: Word<'a>,
    /// Moonshot's streams have their counts here.
    pub(super) usage: Tolerant<Counts>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Output<'a> {
    pub(super) text: Filled,
    #[serde(borrow)]
    pub(super) choices: List<Choice<'a>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Candidate<'a> {
    pub(super) index: Number,
    pub(super) content: Tolerant<GeminiContent>,
    #[serde(rename = "finishReason", borrow)]
    pub(super) finish_reason: Word<'a>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct GeminiContent {
    pub(super) parts: List<GeminiPart>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GeminiPart {
    pub(super) text: Filled,
    pub(super) function_call: Filled,
    pub(super) inline_data: Filled,
    pub(super) file_data: Filled,
    pub(super) executable_code: Filled,
    pub(super) code_execution_result: Filled,
}

/// `delta`: a string (responses), an object of parts (chat, Anthropic), or one with a message (Cohere).
#[derive(Debug, Default)]
pub(super) struct Delta<'a> {
    pub(super) text: Option<bool>,
    pub(super) object: Option<DeltaObject<'a>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct DeltaObject<'a> {
    #[serde(borrow)]
    pub(super) r#type: Word<'a>,
    pub(super) content: Filled,
    pub(super) reasoning_content: Filled,
    pub(super) reasoning: Filled,
    pub(super) reasoning_details: Filled,
    pub(super) tool_calls: Filled,
    pub(super) function_call: Filled,
    pub(super) refusal: Filled,
    pub(super) audio: Filled,
    pub(super) images: Filled,
    pub(super) text: Filled,
    pub(super) thinking: Filled,
    pub(super) message: Tolerant<CohereMessage>,
    #[serde(borrow)]
    pub(super) stop_reason: Word<'a>,
    #[serde(borrow)]
    pub(super) finish_reason: Word<'a>,
    pub(super) usage: Tolerant<Counts>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Parts {
    pub(super) content: Filled,
    pub(super) reasoning_content: Filled,
    pub(super) reasoning: Filled,
    pub(super) tool_calls: Filled,
    pub(super) function_call: Filled,
    pub(super) refusal: Filled,
    pub(super) audio: Filled,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct CohereMessage {
    pub(super) content: Tolerant<CohereContent>,
    pub(super) tool_calls: Filled,
    pub(super) tool_plan: Filled,
    pub(super) citations: Filled,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct CohereContent {
    pub(super) text: Filled,
    pub(super) thinking: Filled,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Block<'a> {
    #[serde(borrow)]
    pub(super) r#type: Word<'a>,
    pub(super) text: Filled,
    pub(super) thinking: Filled,
    pub(super) content: Filled,
    pub(super) summary: Filled,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct WithUsage {
    pub(super) usage: Tolerant<Counts>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Response<'a> {
    pub(super) usage: Tolerant<Counts>,
    pub(super) output: Filled,
    pub(super) error: Filled,
    #[serde(borrow)]
    pub(super) incomplete_details: Tolerant<Incomplete<'a>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Incomplete<'a> {
    #[serde(borrow)]
    pub(super) reason: Word<'a>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Feedback<'a> {
    #[serde(rename = "blockReason", borrow)]
    pub(super) block_reason: Word<'a>,
}

impl Choice<'_> {
    pub(super) fn has_content(&self) -> bool {
        self.text.0
            || self.delta.object.as_ref().is_some_and(DeltaObject::is_chat_content)
            || self.message.0.as_ref().is_some_and(Parts::filled)
    }
}

impl Output<'_> {
    pub(super) fn has_content(&self) -> bool {
        self.text.0 || self.choices.items.iter().any(Choice::has_content)
    }
}

impl Parts {
    pub(super) fn filled(&self) -> bool {
        self.content.0
            || self.reasoning_content.0
            || self.reasoning.0
            || self.tool_calls.0
            || self.function_call.0
            || self.refusal.0
            || self.audio.0
    }
}

impl Candidate<'_> {
    pub(super) fn has_content(&self) -> bool {
        self.content.0.as_ref().is_some_and(|content| {
            content.parts.items.iter().any(|part| {
                part.text.0
                    || part.function_call.0
                    || part.inline_data.0
                    || part.file_data.0
                    || part.executable_code.0
                    || part.code_execution_result.0
            })
        })
    }
}

impl DeltaObject<'_> {
    pub(super) fn is_chat_content(&self) -> bool {
        self.content.0
            || self.reasoning_content.0
            || self.reasoning.0
            || self.reasoning_details.0
            || self.tool_calls.0
            || self.function_call.0
            || self.refusal.0
            || self.audio.0
            || self.images.0
    }
}

impl Delta<'_> {
    pub(super) fn is_block_content(&self) -> bool {
        let Some(delta) = &self.object else { return false };
        match &*delta.r#type.0 {
            "text_delta" => delta.text.0,
            "thinking_delta" => delta.thinking.0,
            "signature_delta" => false,
            _ => true,
        }
    }

    pub(super) fn is_cohere_content(&self) -> bool {
        let message = self.object.as_ref().and_then(|delta| delta.message.0.as_ref());
        message.is_some_and(|message| {
            let content = message.content.0.as_ref();
            content.is_some_and(|content| content.text.0 || content.thinking.0)
                || message.tool_calls.0
                || message.tool_plan.0
                || message.citations.0
        })
    }
}

impl Block<'_> {
    /// An output item with something in it; a reasoning item may be an empty shell.
    pub(super) fn is_item_content(&self) -> bool {
        match &*self.r#type.0 {
            "reasoning" | "message" => self.content.0 || self.summary.0,
            _ => true,
        }
    }
}

impl<'de> FromAny<'de> for Delta<'de> {
    fn nothing() -> Self {
        Self::default()
    }
    fn text(text: &str) -> Self {
        Self { text: Some(!text.is_empty()), object: None }
    }
    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let object = DeltaObject::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Self { text: None, object: Some(object) })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Delta<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<Delta<'de>>::new())
    }
}
