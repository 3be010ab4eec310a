use crate::classify::json::Cursor;

/// Byte by byte: where the container ends, and whether it pairs.
fn plainly(text: &[u8]) -> (usize, bool) {
    let mut stack: Vec<u8> = Vec::new();
    let (mut string, mut escape) = (false, false);
    for (at, byte) in text.iter().enumerate() {
        if string {
            match byte {
                _ if escape => escape = false,
                b'\\' => escape = true,
                b'"' => string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => string = true,
            b'{' => stack.push(b'}'),
            b'[' => stack.push(b']'),
            b'}' | b']' => {
                if stack.pop() != Some(*byte) {
                    return (at + 1, false);
                }
                if stack.is_empty() {
                    return (at + 1, true);
                }
            }
            _ => {}
        }
    }
    (text.len(), false)
}

fn check(text: &str) {
    let mut cursor = Cursor::new(text.as_bytes());
    cursor.skip();
    assert_eq!((cursor.at(), !cursor.broken()), plainly(text.as_bytes()), "{text}");
}

#[test]
fn a_container_ends_where_its_brackets_pair() {
    let piece = r#"{"a":["b\\","c\"]",{"d{":"}\\\""},-1.5,true],"e":"","f":{}}"#;
    for length in 0..200 {
        check(&format!(r#"["{}",{piece}] rest"#, "x".repeat(length)));
        check(&format!(r#"["{}\\",{piece}] rest"#, r#"\""#.repeat(length)));
        check(&format!("{{\"a\":[{}{piece}]}}", " ".repeat(length)));
        let whole = format!("[{piece},{piece},{piece},{piece}]");
        check(whole.get(..length).unwrap_or(&whole));
        let mut wrong = whole.clone();
        let at = length.min(whole.len() - 1);
        if wrong.as_bytes()[at] == b'}' {
            wrong.replace_range(at..=at, "]");
        }
        check(&wrong);
    }
}

#[test]
fn depth_has_no_bound() {
    for depth in [1, 63, 64, 65, 127, 128, 129, 1000] {
        let open: String = (0..depth).map(|at| if at % 3 == 0 { "{\"a\":" } else { "[" }).collect();
        let close: String = (0..depth).rev().map(|at| if at % 3 == 0 { "}" } else { "]" }).collect();
        check(&format!("{open}1{close}"));
        check(&format!("{open}1{close}").replacen(']', "}", 1));
    }
}
