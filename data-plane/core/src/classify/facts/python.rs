//! Answers that a relay in Python printed as it holds them: `{'error': {'message': "it isn't", 'code': None}}`.

/// The JSON for a printed dictionary at the start of `text`; `None` where there is none, or where it does not end. What
/// follows it is left out. Linear.
pub(super) fn to_json(text: &str) -> Option<String> {
    if !text.starts_with("{'") {
        return None;
    }
    let mut json = String::with_capacity(text.len() + 16);
    let mut depth = 0_u32;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => string(&mut chars, c, &mut json)?,
            '{' | '[' | '(' => {
                depth += 1;
                json.push(if c == '{' { '{' } else { '[' });
            }
            '}' | ']' | ')' => {
                json.push(if c == '}' { '}' } else { ']' });
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(json);
                }
            }
            c if c.is_ascii_alphabetic() => {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    word.push(c);
                }
                match (word.as_str(), chars.peek()) {
                    // b'bytes'
                    (_, Some('\'' | '"')) => {}
                    ("True", _) => json.push_str("true"),
                    ("False", _) => json.push_str("false"),
                    _ => json.push_str("null"),
                }
            }
            c => json.push(c),
        }
    }
    None
}

/// The rest of a string that `quote` opened.
fn string(chars: &mut impl Iterator<Item = char>, quote: char, json: &mut String) -> Option<()> {
    json.push('"');
    loop {
        match chars.next()? {
            '\\' => match chars.next()? {
                '\'' => json.push('\''),
                c @ ('"' | '\\' | 'n' | 'r' | 't' | 'u') => json.extend(['\\', c]),
                // The hex digits of a byte stay.
                _ => {}
            },
            c if c == quote => {
                json.push('"');
                return Some(());
            }
            '"' => json.push_str("\\\""),
            c if c.is_control() => json.push(' '),
            c => json.push(c),
        }
    }
}

#[cfg(test)]
mod tests;
