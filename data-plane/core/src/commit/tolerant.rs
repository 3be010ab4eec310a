//! Values that may be of any JSON type: an unexpected one reads as absent and never makes the rest unreadable.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A string; anything else reads as the empty one.
#[derive(Debug, Default)]
pub(super) struct Word<'a>(pub(super) Cow<'a, str>);

/// Whether a value is a non-empty string, list or object.
#[derive(Debug, Default)]
pub(super) struct Filled(pub(super) bool);

/// Whether a field is there at all.
#[derive(Debug, Default)]
pub(super) struct Present(pub(super) bool);

/// A whole number; anything else reads as `None`.
#[derive(Debug, Default)]
pub(super) struct Number(pub(super) Option<u64>);

/// An object of a known form; anything else reads as `None`.
#[derive(Debug)]
pub(super) struct Tolerant<T>(pub(super) Option<T>);

/// A list of objects; anything else reads as empty. `present`: the field was there, null included.
#[derive(Debug)]
pub(super) struct List<T> {
    pub(super) present: bool,
    pub(super) items: Vec<T>,
}

impl<T> Default for Tolerant<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { present: false, items: Vec::new() }
    }
}

/// Builds a value from whatever JSON there is.
pub(super) trait FromAny<'de>: Sized {
    fn nothing() -> Self;
    fn number(_value: u64) -> Self {
        Self::nothing()
    }
    fn text(_text: &str) -> Self {
        Self::nothing()
    }
    fn borrowed(text: &'de str) -> Self {
        Self::text(text)
    }
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::nothing())
    }
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::nothing())
    }
}

pub(super) struct Any<T>(PhantomData<T>);

impl<T> Any<T> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, T: FromAny<'de>> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::nothing())
    }
    fn visit_i64<E>(self, value: i64) -> Result<T, E> {
        Ok(u64::try_from(value).map_or_else(|_| T::nothing(), T::number))
    }
    fn visit_u64<E>(self, value: u64) -> Result<T, E> {
        Ok(T::number(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<T, E> {
        // Whole numbers written as floats; what lies beyond an integer's range saturates.
        Ok(if value >= 0.0 && value.fract() == 0.0 { T::number(value as u64) } else { T::nothing() })
    }
    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::nothing())
    }
    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::text(text))
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<T, E> {
        Ok(T::borrowed(text))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<T, A::Error> {
        T::seq(seq)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::map(map)
    }
}

// === impls ===

impl<'de> FromAny<'de> for Word<'de> {
    fn nothing() -> Self {
        Self::default()
    }
    fn text(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }
    fn borrowed(text: &'de str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<Word<'de>>::new())
    }
}

impl<'de> FromAny<'de> for Filled {
    fn nothing() -> Self {
        Self(false)
    }
    fn text(text: &str) -> Self {
        Self(!text.is_empty())
    }
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut filled = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            filled = true;
        }
        Ok(Self(filled))
    }
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut filled = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            filled = true;
        }
        Ok(Self(filled))
    }
}

impl<'de> Deserialize<'de> for Filled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<Self>::new())
    }
}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<IgnoredAny>::deserialize(deserializer).map(|value| Self(value.is_some()))
    }
}

impl<'de> FromAny<'de> for Number {
    fn nothing() -> Self {
        Self(None)
    }
    fn number(value: u64) -> Self {
        Self(Some(value))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<Self>::new())
    }
}

impl<'de, T: Deserialize<'de>> FromAny<'de> for Tolerant<T> {
    fn nothing() -> Self {
        Self(None)
    }
    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|value| Self(Some(value)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Tolerant<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<Self>::new())
    }
}

impl<'de, T: Deserialize<'de>> FromAny<'de> for List<T> {
    fn nothing() -> Self {
        Self { present: true, items: Vec::new() }
    }
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element::<Tolerant<T>>()? {
            items.extend(item.0);
        }
        Ok(Self { present: true, items })
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any::<Self>::new())
    }
}
