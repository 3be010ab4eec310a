use proptest::prelude::*;

use super::*;

fn strings(text: &str) -> Vec<String> {
    let mut cursor = Cursor::new(text.as_bytes());
    let mut found = Vec::new();
    if cursor.value() == Value::Object {
        while let Some(key) = cursor.key() {
            let value = cursor.value();
            if let Value::Str(raw) = value {
                found.push(format!("{}={}", key.text(), raw.text()));
            }
            cursor.finish(value);
        }
    }
    found
}

#[test]
fn members_whatever_lies_between() {
    let text = r#" { "a" : "1" , "b":{"x":[1,{"y":"}]\"{"}]}, "c":null,"d":[],"e":"2","f":-1.5e3 } "#;
    assert_eq!(strings(text), ["a=1", "e=2"]);
}

#[test]
fn escapes() {
    assert_eq!(
        strings(r#"{"a":"\u00e9\n\"\\\/ \ud83d\ude00 \ud800 \x"}"#),
        ["a=é\n\"\\/ 😀 \u{fffd} \u{fffd}"]
    );
}

#[test]
fn a_torso_gives_what_it_has() {
    assert_eq!(strings(r#"{"a":"1","b":"un"#), ["a=1", "b=un"]);
    assert_eq!(strings(r#"{"a":"1","b":{"c":"#), ["a=1"]);
}

#[test]
fn ends_that_do_not_pair_are_noticed() {
    for (text, whole) in [
        ("{}", true),
        ("[1,[2],{\"a\":[]}]", true),
        ("\"x\"", true),
        ("{", false),
        ("[}", false),
        ("{\"a\":[}]", false),
        ("{\"a\":1", false),
        ("{} x", false),
        ("tru", false),
        ("\"x", false),
    ] {
        let mut cursor = Cursor::new(text.as_bytes());
        cursor.skip();
        assert_eq!(!cursor.broken() && cursor.at_end(), whole, "{text}");
    }
}

proptest! {
    #[test]
    fn agrees_with_a_real_parser(text in ".{0,40}", number in any::<f64>(), deep in 0usize..40) {
        let mut value = serde_json::json!({"text": text, "number": number, "list": [text, {"text": text}]});
        for _ in 0..deep {
            value = serde_json::json!({"a": [value]});
        }
        let json = serde_json::json!({"first": value, "last": text}).to_string();
        prop_assert_eq!(strings(&json), vec![format!("last={text}")]);
        let mut cursor = Cursor::new(json.as_bytes());
        cursor.skip();
        prop_assert!(!cursor.broken() && cursor.at_end());
    }

    #[test]
    fn a_string_ends_at_the_first_quote(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let quote = bytes.iter().position(|byte| b"\"\\".contains(byte));
        prop_assert_eq!(quote_or_escape(&bytes), quote);
    }
}
