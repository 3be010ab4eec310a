//! Phrases taken apart, and found: all of them in one walk over the start of a message.

use memchr::memmem::Finder;

/// A pattern with wildcards reaches this far, in bytes.
const REACH: usize = 80;

/// Names are at most this long, in bytes.
const NAME: usize = 200;

/// A part of a phrase.
#[derive(Clone, Debug)]
enum Part {
    /// These bytes, in any ASCII case.
    Text(&'static str),
    /// One word or quoted name.
    Name,
    /// Up to [`REACH`] bytes, then these.
    Upto(Box<Finder<'static>>),
    /// Nothing more.
    End,
}

/// What follows the literal start of a phrase, and whose it is.
#[derive(Debug)]
struct Phrase {
    rest: Vec<Part>,
    rule: usize,
    entry: usize,
}

/// A place in the tree of literal starts. Siblings are a list, and zero is none.
#[derive(Debug, Default)]
struct Node {
    byte: u8,
    sibling: u32,
    child: u32,
    /// Which of `groups` ends here.
    group: u32,
}

/// All phrases, by their literal starts in lower case.
#[derive(Debug)]
pub(super) struct Phrases {
    nodes: Vec<Node>,
    groups: Vec<Vec<Phrase>>,
    /// Those that begin with a wildcard.
    wild: Vec<Phrase>,
}

// === impl Phrases ===

impl Phrases {
    pub(super) fn new() -> Self {
        Self { nodes: vec![Node::default()], groups: vec![Vec::new()], wild: Vec::new() }
    }

    /// Adds a pattern: see [`super::Find::Start`].
    pub(super) fn add(&mut self, pattern: &'static str, rule: usize, entry: usize) {
        let mut rest = parts(pattern);
        let Some(Part::Text(start)) = rest.first().cloned() else {
            self.wild.push(Phrase { rest, rule, entry });
            return;
        };
        rest.remove(0);
        let mut at = 0;
        for byte in start.bytes() {
            at = self.descend(at, byte.to_ascii_lowercase());
        }
        let fresh = self.groups.len() as u32;
        let Some(node) = self.nodes.get_mut(at) else { return };
        if node.group == 0 {
            node.group = fresh;
            self.groups.push(Vec::new());
        }
        let group = node.group as usize;
        if let Some(group) = self.groups.get_mut(group) {
            group.push(Phrase { rest, rule, entry });
        }
    }

    /// Every phrase that `message` begins with.
    pub(super) fn find(&self, message: &str, mut claim: impl FnMut(usize, usize)) {
        let mut at = 0;
        for (used, byte) in message.bytes().enumerate() {
            match self.child(at, byte.to_ascii_lowercase()) {
                Some(next) => at = next,
                None => break,
            }
            let group = self.nodes.get(at).map_or(0, |node| node.group as usize);
            // The end of a phrase is the end of a character.
            for phrase in self.groups.get(group).into_iter().flatten() {
                if goes_on(message.get(used + 1..).unwrap_or_default(), &phrase.rest) {
                    claim(phrase.rule, phrase.entry);
                }
            }
        }
        for phrase in &self.wild {
            if goes_on(message, &phrase.rest) {
                claim(phrase.rule, phrase.entry);
            }
        }
    }

    fn child(&self, at: usize, byte: u8) -> Option<usize> {
        let mut child = self.nodes.get(at)?.child as usize;
        while child != 0 {
            let node = self.nodes.get(child)?;
            if node.byte == byte {
                return Some(child);
            }
            child = node.sibling as usize;
        }
        None
    }

    fn descend(&mut self, at: usize, byte: u8) -> usize {
        if let Some(child) = self.child(at, byte) {
            return child;
        }
        let fresh = self.nodes.len();
        let sibling = self.nodes.get(at).map_or(0, |node| node.child);
        self.nodes.push(Node { byte, sibling, ..Node::default() });
        if let Some(parent) = self.nodes.get_mut(at) {
            parent.child = fresh as u32;
        }
        fresh
    }
}

/// A phrase taken apart.
fn parts(pattern: &'static str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let tail = rest.get(first.len_utf8()..).unwrap_or_default();
        let literal = |text: &'static str| text.split_at(text.find(['*', '…', '$']).unwrap_or(text.len()));
        match first {
            '*' => {
                parts.push(Part::Name);
                rest = tail;
            }
            '$' => {
                parts.push(Part::End);
                rest = tail;
            }
            '…' => {
                let (text, after) = literal(tail);
                parts.push(Part::Upto(Box::new(Finder::new(text))));
                rest = after;
            }
            _ => {
                let (text, after) = literal(rest);
                parts.push(Part::Text(text));
                rest = after;
            }
        }
    }
    parts
}

/// Whether `text` begins as the parts say.
fn goes_on(text: &str, parts: &[Part]) -> bool {
    let mut text = text;
    for part in parts {
        text = match part {
            Part::Text(literal) => match strip(text, literal) {
                Some(rest) => rest,
                None => return false,
            },
            Part::Name => text.get(name(text)..).unwrap_or_default(),
            Part::Upto(finder) => {
                let length = finder.needle().len();
                let reach = text.as_bytes().get(..REACH + length).unwrap_or(text.as_bytes());
                match finder.find(reach) {
                    Some(at) => text.get(at + length..).unwrap_or_default(),
                    None => return false,
                }
            }
            Part::End => return text.trim_end_matches(['.', ' ', '\n', '!', '。']).is_empty(),
        };
    }
    true
}

fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let start = text.as_bytes().get(..prefix.len())?;
    if start.eq_ignore_ascii_case(prefix.as_bytes()) { text.get(prefix.len()..) } else { None }
}

/// The length of one word, or of one name in quotes or brackets, at most [`NAME`] bytes.
fn name(text: &str) -> usize {
    let close = match text.chars().next() {
        Some(quote @ ('\'' | '"' | '`')) => Some(quote),
        Some('“') => Some('”'),
        Some('‘') => Some('’'),
        Some('[') => Some(']'),
        Some('<') => Some('>'),
        Some('(') => Some(')'),
        _ => None,
    };
    let ends = |(_, c): &(usize, char)| match close {
        Some(close) => *c == close,
        None => matches!(c, ' ' | '\n' | ',' | '，'),
    };
    let skip = usize::from(close.is_some());
    let end = text.char_indices().skip(skip).take_while(|(at, _)| *at <= NAME).find(ends);
    let end = match (end, close) {
        (Some((at, c)), Some(_)) => at + c.len_utf8(),
        (Some((at, _)), None) => at,
        (None, None) => text.len(),
        (None, Some(_)) => 0,
    };
    if end > NAME {
        return 0;
    }
    // "Model x: not found"
    if close.is_none() && text.get(..end).is_some_and(|name| name.ends_with(':')) { end - 1 } else { end }
}

#[cfg(test)]
mod tests;
