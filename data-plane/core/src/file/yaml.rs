//! YAML as a tree that knows where each of its values stands, and from there to messages.
//!
//! A serde struct would stop at the first mistake; here all of them are found, each with its line. Keys are the field names
//! of the `.proto` files, so a field that is added there can be written here at once.

mod message;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

pub(crate) use message::{Extra, message};

/// A value and where it stands.
pub(crate) type Located = Spanned<Node>;

/// A YAML value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Located>),
    Map(Vec<(Spanned<String>, Located)>),
}

/// One mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// From 1; 0: nowhere in particular.
    pub line: u64,
    /// From 1.
    pub column: u64,
    /// What it is about, such as `channels[0].weight`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

/// What was wrong so far, and where each path stands: the control plane's own objections find their line through it.
#[derive(Debug, Default)]
pub struct Problems {
    /// In the order they were found.
    pub list: Vec<Problem>,
    places: BTreeMap<String, (u64, u64)>,
}

impl Problems {
    /// Remembers where `path` stands.
    pub(crate) fn place(&mut self, path: &str, at: &Located) {
        self.places.insert(path.to_owned(), (at.referenced.line(), at.referenced.column()));
    }

    /// Knows the places that others know.
    pub(super) fn take_places(&mut self, others: Problems) {
        self.places.extend(others.places);
    }

    /// Notes a mistake at a value.
    pub(crate) fn at<T>(&mut self, at: &Spanned<T>, path: &str, problem: impl Into<String>) {
        let (line, column) = (at.referenced.line(), at.referenced.column());
        self.list.push(Problem { line, column, path: path.to_owned(), problem: problem.into() });
    }

    /// Notes a mistake at a path, or at the nearest thing around it.
    pub fn at_path(&mut self, path: &str, problem: impl Into<String>) {
        let mut around = path;
        let (line, column) = loop {
            if let Some(place) = self.places.get(around) {
                break *place;
            }
            match around.rfind(['.', '[']) {
                Some(end) => around = around.get(..end).unwrap_or_default(),
                None => break (0, 0),
            }
        };
        self.list.push(Problem { line, column, path: path.to_owned(), problem: problem.into() });
    }
}

/// Reads a document.
///
/// # Errors
/// One mistake: what is not YAML at all cannot be read any further.
pub(crate) fn parse(text: &str) -> Result<Located, Problem> {
    serde_saphyr::from_str::<Located>(text).map_err(|why| {
        let (line, column) = why.location().map(|at| (at.line(), at.column())).unwrap_or_default();
        let shown = why.without_snippet().to_string();
        let problem = shown.split(" at line").next().unwrap_or_default().trim();
        // The reader's advice is for whoever calls it.
        let problem = [", set DuplicateKeyPolicy", "; use "]
            .iter()
            .fold(problem, |told, advice| told.split(advice).next().unwrap_or_default())
            .to_owned();
        Problem { line, column, path: String::new(), problem }
    })
}

impl Node {
    /// For messages: what kind of value this is.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Node, D::Error> {
        Node::deserialize(inner)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Int(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Node, E> {
        Ok(Node::Int(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}
