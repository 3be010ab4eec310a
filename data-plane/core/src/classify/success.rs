//! Whether a 2xx answer, or an event of a stream, is an error: by its outermost structure only. What a model wrote is
//! stepped over, not searched.

use super::json::{Cursor, Value};
use crate::words::Endpoint;

/// What the outermost structure says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outline {
    /// It is one whole JSON value.
    pub(super) whole: bool,
    /// It is an object.
    pub(super) object: bool,
    /// It says that it is an error, and holds no content beside that.
    pub(super) error: bool,
    /// `choices` is null or empty.
    pub(super) no_choices: bool,
    /// It is an object that says something, and has nothing that could hold an answer.
    pub(super) remark: bool,
    /// The same with a code or a status of a failure.
    pub(super) failure: bool,
    /// Where the token counts of an object are.
    pub(super) counts: CountsAt,
}

/// Where a body has its token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountsAt {
    /// Nobody looked, or they may be in several places.
    #[default]
    Unknown,
    /// Nowhere.
    Nowhere,
    /// In the value of `usage`, from its first byte to behind its last, and nowhere else.
    Usage(usize, usize),
}

/// Reads the members of the outermost object; linear, whatever they hold.
pub(super) fn outline(body: &[u8]) -> Outline {
    let mut cursor = Cursor::new(body);
    let mut seen = Seen::default();
    let first = cursor.value();
    match first {
        Value::Object => members(&mut cursor, &mut seen),
        // Google's streams come as arrays; an array of errors is one error.
        Value::Array => {
            if cursor.item() {
                match cursor.value() {
                    Value::Object => members(&mut cursor, &mut seen),
                    value => cursor.finish(value),
                }
                while cursor.item() {
                    cursor.skip();
                }
            }
        }
        value => cursor.finish(value),
    }
    let whole = !cursor.broken() && cursor.at_end();
    let error = seen.certain || ((seen.error || seen.failed) && !holds_content(body));
    let object = first == Value::Object;
    let counts = match seen.usage {
        _ if !object || seen.counts_elsewhere => CountsAt::Unknown,
        Some((from, to)) => CountsAt::Usage(from, to),
        None => CountsAt::Nowhere,
    };
    let remark = object && seen.said && !seen.answers;
    let failure = remark && seen.code;
    Outline { whole, object, error, no_choices: seen.no_choices, remark, failure, counts }
}

#[derive(Default)]
struct Seen {
    /// An error beside which content would speak against it.
    error: bool,
    /// `success: false` or a number, with something said about it.
    failed: bool,
    /// The type itself says so.
    certain: bool,
    no_choices: bool,
    /// There is a key that may hold an answer, or that says what the object is.
    answers: bool,
    /// A code or a status of a failure.
    code: bool,
    /// Something said about it.
    said: bool,
    /// The last `usage`.
    usage: Option<(usize, usize)>,
    /// There is another key that may hold counts.
    counts_elsewhere: bool,
}

fn members(cursor: &mut Cursor<'_>, seen: &mut Seen) {
    let (mut success_false, mut said) = (false, false);
    // A bare number beside a message; Spark marks its answers with a session id and numbers its errors differently.
    let (mut number, mut spark) = (None, false);
    while let Some(key) = cursor.key() {
        match key.plain() {
            b"error" => {
                let value = cursor.value();
                seen.error |= match value {
                    // `{}` is not one.
                    Value::Object => {
                        let filled = !cursor.rest().trim_ascii_start().starts_with(b"}");
                        cursor.finish(value);
                        filled
                    }
                    Value::Array => {
                        said |= !cursor.rest().trim_ascii_start().starts_with(b"]");
                        cursor.finish(value);
                        false
                    }
                    Value::Str(raw) => !raw.is_empty(),
                    Value::Bool(true) => {
                        seen.code = true;
                        false
                    }
                    _ => false,
                };
            }
            b"object" => {
                seen.answers = true;
                seen.certain |= matches!(scalar(cursor), Value::Str(raw) if raw.plain() == b"error");
            }
            b"type" => {
                seen.answers = true;
                let value = scalar(cursor);
                seen.certain |=
                    matches!(value, Value::Str(raw) if matches!(raw.plain(), b"error" | b"response.failed"));
            }
            b"base_resp" => seen.error |= numbered(cursor, b"status_code"),
            b"header" => seen.error |= numbered(cursor, b"code"),
            b"error_code" => {
                let value = scalar(cursor);
                seen.error |= value.is_set() && !matches!(value, Value::Str(raw) if raw.plain() == b"0");
            }
            b"Response" => {
                seen.answers = true;
                seen.error |= has_error(cursor);
            }
            b"success" => success_false |= scalar(cursor) == Value::Bool(false),
            b"errors" => {
                let value = cursor.value();
                said |= value == Value::Array && !cursor.rest().trim_ascii_start().starts_with(b"]");
                cursor.finish(value);
            }
            b"code" => {
                let value = scalar(cursor);
                seen.code |= fails(value);
                number = match value {
                    Value::Num(text) => text.parse::<u32>().ok(),
                    Value::Str(raw) => raw.text().parse().ok(),
                    _ => None,
                };
            }
            b"sid" => spark |= matches!(scalar(cursor), Value::Str(_)),
            // Only beside one of these does a message mean anything.
            b"msg" | b"message" | b"error_msg" => {
                let value = scalar(cursor);
                said |= matches!(value, Value::Str(raw) if !raw.is_empty());
                seen.counts_elsewhere |= value == Value::Object;
                seen.answers |= value == Value::Object;
            }
            b"status" | b"statusCode" | b"status_code" => seen.code |= fails(scalar(cursor)),
            b"detail" => {
                let value = scalar(cursor);
                seen.said |= matches!(value, Value::Str(raw) if !raw.is_empty());
            }
            b"content" | b"candidates" | b"output" | b"output_text" | b"result" | b"results" | b"data"
            | b"text" | b"generations" | b"generated_text" | b"completion" | b"outputs" | b"predictions"
            | b"payload" | b"id" | b"model" | b"embeddings" => {
                let value = cursor.value();
                // `"data": null` stands beside many an error.
                seen.answers |= value != Value::Null;
                cursor.finish(value);
            }
            b"usage" => {
                let from = cursor.at();
                cursor.skip();
                seen.usage = Some((from, cursor.at()));
            }
            b"usageMetadata" | b"x_groq" | b"response" | b"delta" => {
                (seen.counts_elsewhere, seen.answers) = (true, true);
                cursor.skip();
            }
            b"choices" => {
                seen.answers = true;
                let value = cursor.value();
                let empty = match value {
                    Value::Null => true,
                    Value::Array => cursor.rest().trim_ascii_start().starts_with(b"]"),
                    _ => false,
                };
                seen.no_choices |= empty;
                cursor.finish(value);
            }
            _ => cursor.skip(),
        }
    }
    let numbered = number.is_some_and(|number| number >= 400 || (spark && number != 0));
    seen.failed |= (success_false || numbered) && said;
    seen.code |= success_false;
    seen.said |= said;
}

/// A code or status that does not say that all is well.
fn fails(value: Value<'_>) -> bool {
    match value {
        Value::Num(number) => {
            number.parse::<i64>().is_ok_and(|number| number != 0 && !(200..300).contains(&number))
        }
        Value::Str(raw) => {
            let text = raw.text();
            let fine = ["", "0", "ok", "success", "succeeded", "completed", "queued", "pending", "running"];
            !fine.iter().any(|fine| text.eq_ignore_ascii_case(fine)) && !text.starts_with('2')
        }
        _ => false,
    }
}

/// A number (or a string that is no "0") in an object.
fn numbered(cursor: &mut Cursor<'_>, name: &[u8]) -> bool {
    let value = cursor.value();
    if value != Value::Object {
        cursor.finish(value);
        return false;
    }
    let mut set = false;
    while let Some(key) = cursor.key() {
        let value = scalar(cursor);
        if key.plain() == name {
            set = value.is_set() && !matches!(value, Value::Str(raw) if raw.plain() == b"0");
        }
    }
    set
}

/// `{"Error": {...}}`
fn has_error(cursor: &mut Cursor<'_>) -> bool {
    let value = cursor.value();
    if value != Value::Object {
        cursor.finish(value);
        return false;
    }
    let mut found = false;
    while let Some(key) = cursor.key() {
        let value = cursor.value();
        if matches!(key.plain(), b"Error" | b"ErrorMsg") {
            found |= value == Value::Object && !cursor.rest().trim_ascii_start().starts_with(b"}");
        }
        cursor.finish(value);
    }
    found
}

/// Whether there is anything a model made beside an error: a non-empty string in a place for text, tool calls, vectors.
/// Read only where an error was found.
fn holds_content(body: &[u8]) -> bool {
    let mut cursor = Cursor::new(body);
    if cursor.value() != Value::Object {
        return false;
    }
    let mut found = false;
    while let Some(key) = cursor.key() {
        match key.plain() {
            b"choices" | b"candidates" | b"content" | b"output" | b"data" | b"delta" => {
                let value = cursor.value();
                found |= look(&mut cursor, value, 0);
            }
            _ => cursor.skip(),
        }
    }
    found
}

fn look(cursor: &mut Cursor<'_>, value: Value<'_>, depth: u8) -> bool {
    let mut found = false;
    match value {
        Value::Object if depth < 8 => {
            while let Some(key) = cursor.key() {
                let value = cursor.value();
                let place = matches!(
                    key.plain(),
                    b"content"
                        | b"text"
                        | b"reasoning"
                        | b"reasoning_content"
                        | b"refusal"
                        | b"thinking"
                        | b"arguments"
                        | b"partial_json"
                        | b"embedding"
                        | b"b64_json"
                        | b"url"
                        | b"name"
                );
                found |= match value {
                    Value::Str(raw) => place && !raw.is_empty(),
                    _ if found => {
                        cursor.finish(value);
                        true
                    }
                    _ => look(cursor, value, depth + 1),
                };
            }
        }
        Value::Array if depth < 8 => {
            while cursor.item() {
                let value = cursor.value();
                found |= match value {
                    Value::Num(_) => true,
                    Value::Str(raw) => depth == 0 && !raw.is_empty(),
                    _ if found => {
                        cursor.finish(value);
                        true
                    }
                    _ => look(cursor, value, depth + 1),
                };
            }
        }
        Value::Str(raw) => found = !raw.is_empty(),
        value => cursor.finish(value),
    }
    found
}

fn scalar<'a>(cursor: &mut Cursor<'a>) -> Value<'a> {
    let value = cursor.value();
    cursor.finish(value);
    value
}

/// Whether an answer without choices is no answer.
pub(super) fn needs_choices(endpoint: Option<Endpoint>) -> bool {
    matches!(endpoint, Some(Endpoint::ChatCompletions | Endpoint::Completions))
}

#[cfg(test)]
mod tests;
