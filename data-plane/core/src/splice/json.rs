//! The JSON half: one borrowed pass over the top level.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Edit, Fields, Model, SpliceError};

pub(super) fn scan<'a>(body: &'a [u8], affinity_field: Option<&str>) -> Result<Fields<'a>, SpliceError> {
    let not_json = |error: serde_json::Error| SpliceError::NotJson(error.to_string());
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_some_and(|byte| *byte != b'{') {
        return match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => Err(SpliceError::NotAnObject),
            Err(error) => Err(not_json(error)),
        };
    }
    let mut refused = None;
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let seed = TopLevel { body, affinity_field, refused: &mut refused, models: 0 };
    let fields = seed.deserialize(&mut deserializer).map_err(not_json)?;
    deserializer.end().map_err(not_json)?;
    match refused {
        Some(refused) => Err(refused),
        None => Ok(fields),
    }
}

/// A JSON string.
pub(super) fn string(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).unwrap_or_default()
}

/// Inserts a member at the front of an object.
pub(super) fn insert_first(object: &[u8], mut member: Vec<u8>) -> Option<Edit> {
    let open = object.iter().position(|byte| !byte.is_ascii_whitespace())?;
    if object.get(open) != Some(&b'{') {
        return None;
    }
    let next = object.get(open + 1..)?.iter().find(|byte| !byte.is_ascii_whitespace())?;
    if *next != b'}' {
        member.push(b',');
    }
    Some(Edit { range: open + 1..open + 1, text: member })
}

struct TopLevel<'a, 's> {
    body: &'a [u8],
    affinity_field: Option<&'s str>,
    /// The first fault that is not one of JSON: the rest is still parsed, so that broken JSON is called that.
    refused: &'s mut Option<SpliceError>,
    models: u32,
}

impl<'a> DeserializeSeed<'a> for TopLevel<'a, '_> {
    type Value = Fields<'a>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Fields<'a>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for TopLevel<'a, '_> {
    type Value = Fields<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<Fields<'a>, A::Error> {
        let mut fields = Fields { empty: true, ..Fields::default() };
        while let Some(Key(key)) = map.next_key::<Key<'a>>()? {
            fields.empty = false;
            let wanted = self.affinity_field == Some(&*key);
            match &*key {
                "model" => {
                    let raw: &RawValue = map.next_value()?;
                    self.model(&mut fields, raw);
                }
                "stream" => fields.stream = map.next_value::<&RawValue>()?.get() == "true",
                "stream_options" => {
                    let raw: &RawValue = map.next_value()?;
                    fields.stream_options = span(self.body, raw);
                    fields.include_usage = serde_json::from_str::<StreamOptions>(raw.get())
                        .ok()
                        .and_then(|options| options.include_usage);
                }
                "previous_response_id" | "conversation" => {
                    fields.stateful |= map.next_value::<&RawValue>()?.get() != "null";
                }
                "background" => fields.stateful |= map.next_value::<&RawValue>()?.get() == "true",
                _ if wanted => fields.affinity = text(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            if wanted && &*key == "model" {
                fields.affinity = fields.model.as_ref().map(|model| model.name.clone());
            }
        }
        Ok(fields)
    }
}

impl<'a> TopLevel<'a, '_> {
    fn model(&mut self, fields: &mut Fields<'a>, raw: &'a RawValue) {
        self.models += 1;
        match (text(raw), span(self.body, raw)) {
            _ if self.models > 1 => *self.refused = Some(SpliceError::DuplicateModel),
            (Some(name), Some(span)) if !name.is_empty() => fields.model = Some(Model { name, span }),
            _ => *self.refused = Some(SpliceError::ModelNotAString),
        }
    }
}

/// An object's key, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[derive(serde::Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

/// The text of a JSON string; `None` for anything else.
fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Key<'_>>(raw.get()).ok().map(|key| key.0)
}

/// Where a value borrowed from the body lies in it.
fn span(body: &[u8], raw: &RawValue) -> Option<Range<usize>> {
    let start = (raw.get().as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let end = start + raw.get().len();
    (end <= body.len()).then_some(start..end)
}
