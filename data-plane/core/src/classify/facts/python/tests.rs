use super::*;

#[test]
fn printed_dictionaries_become_json() {
    for (text, json) in [
        ("{'error': 'no'}", r#"{"error": "no"}"#),
        (
            r#"{'error': {'message': "it isn't", 'code': None, 'ok': False}} and more"#,
            r#"{"error": {"message": "it isn't", "code": null, "ok": false}}"#,
        ),
        (
            r#"{'a': 'say \'"no"\'', 'b': (1, 2.5), 'c': True}"#,
            r#"{"a": "say '\"no\"'", "b": [1, 2.5], "c": true}"#,
        ),
        (r"{'a': b'\xe4\n', 'b': 'größer'}", r#"{"a": "e4\n", "b": "größer"}"#),
        ("{'a': datetime.datetime(2026, 1, 1)}", r#"{"a": null.null[2026, 1, 1]}"#),
    ] {
        assert_eq!(to_json(text).as_deref(), Some(json), "{text}");
    }
    for text in ["", "{", "{'", "{'a", "{'a': 'b'", "{\"a\": 1}", "[{'a': 1}]", "x{'a': 1}", "{'a\\"] {
        assert_eq!(to_json(text), None, "{text}");
    }
}
