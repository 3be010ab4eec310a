use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn model(body: &str) -> Result<Option<String>, SpliceError> {
    scan(body.as_bytes(), None).map(|fields| fields.model.map(|model| model.name.into_owned()))
}

fn rewritten(body: &str, name: &str) -> String {
    let fields = scan(body.as_bytes(), None).unwrap();
    let edit = Edit::json_model(fields.model.unwrap().span, name);
    String::from_utf8(apply(&Bytes::from(body.to_owned()), &mut [edit]).to_vec()).unwrap()
}

#[test]
fn only_the_value_of_the_top_level_model_changes() {
    let body =
        " {\"messages\":[{\"model\":\"x\"}],\t\"model\" : \"gpt-4o\" , \"n\":1.0e2,\"s\":\"\\u00e9\"} \n";
    assert_eq!(
        rewritten(body, "a\"b\\c/\u{1}\u{e9}"),
        body.replace("\"gpt-4o\"", "\"a\\\"b\\\\c/\\u0001\u{e9}\"")
    );
}

#[test]
fn escapes_in_names_and_values_are_read() {
    assert_eq!(model(r#"{"model":"\u0067pt\/4"}"#).unwrap().as_deref(), Some("gpt/4"));
    assert_eq!(model(r#"{"m\u006fdel":"a"}"#).unwrap().as_deref(), Some("a"));
}

#[test]
fn what_cannot_be_routed_is_refused_by_kind() {
    assert_eq!(model("{}").unwrap(), None);
    assert_eq!(model(r#"{"model":"a","model":"a"}"#), Err(SpliceError::DuplicateModel));
    assert_eq!(model(r#"{"model":"a","m\u006fdel":"b"}"#), Err(SpliceError::DuplicateModel));
    for bad in ["1", "null", "[\"a\"]", "{}", "true", "\"\""] {
        assert_eq!(model(&format!("{{\"model\":{bad}}}")), Err(SpliceError::ModelNotAString), "{bad}");
    }
    for bad in ["[]", "1", "\"model\"", " null "] {
        assert_eq!(model(bad), Err(SpliceError::NotAnObject), "{bad}");
    }
    for bad in [
        "",
        "  ",
        "{",
        "{\"model\":\"a\"",
        "{\"model\":\"a\"}}",
        "{\"model\":\"a\",}",
        "hello",
        "{'model':'a'}",
        "{\"model\":1,",
        "[1",
    ] {
        assert!(matches!(model(bad), Err(SpliceError::NotJson(_))), "{bad}");
    }
}

#[test]
fn deep_nesting_and_bad_utf8_elsewhere_are_not_ours_to_judge() {
    let deep = format!("{{\"x\":{}{},\"model\":\"a\"}}", "[".repeat(50_000), "]".repeat(50_000));
    assert_eq!(model(&deep).unwrap().as_deref(), Some("a"));
    let body = b"{\"model\":\"a\",\"x\":\"\xff\"}";
    assert_eq!(scan(body, None).unwrap().model.unwrap().name, "a");
}

#[test]
fn the_other_fields_the_proxy_decides_by() {
    let of = |body: &str| {
        scan(body.as_bytes(), Some("user")).map(|f| (f.stream, f.include_usage, f.stateful)).unwrap()
    };
    assert_eq!(
        of(r#"{"stream":true,"stream_options":{"include_usage":false,"x":1}}"#),
        (true, Some(false), false)
    );
    assert_eq!(of(r#"{"stream":"true","stream_options":null}"#), (false, None, false));
    assert_eq!(
        of(r#"{"stream":null,"previous_response_id":null,"conversation":null,"background":false}"#),
        (false, None, false)
    );
    assert!(of(r#"{"previous_response_id":"resp_1"}"#).2);
    assert!(of(r#"{"conversation":{"id":"c"}}"#).2);
    assert!(of(r#"{"background":true}"#).2);
    let affinity =
        |body: &str, field| scan(body.as_bytes(), Some(field)).unwrap().affinity.map(Cow::into_owned);
    assert_eq!(affinity(r#"{"user":"u\n1"}"#, "user").as_deref(), Some("u\n1"));
    assert_eq!(affinity(r#"{"user":7}"#, "user"), None);
    assert_eq!(affinity(r#"{"model":"m"}"#, "model").as_deref(), Some("m"));
    assert_eq!(affinity(r#"{"a":{"user":"u"}}"#, "user"), None);
}

fn with_usage(body: &str) -> Option<Value> {
    let fields = scan(body.as_bytes(), None).unwrap();
    let edit = Edit::include_usage(body.as_bytes(), &fields)?;
    Some(serde_json::from_slice(&apply(&Bytes::from(body.to_owned()), &mut [edit])).unwrap())
}

#[test]
fn usage_is_asked_for_without_touching_what_the_caller_said() {
    let asked = json!({"include_usage": true});
    assert_eq!(with_usage("{}").unwrap()["stream_options"], asked);
    assert_eq!(with_usage(r#" { "a":1}"#).unwrap(), json!({"a": 1, "stream_options": asked}));
    assert_eq!(with_usage(r#"{"stream_options":null,"a":1}"#).unwrap()["stream_options"], asked);
    assert_eq!(with_usage(r#"{"stream_options":{ }}"#).unwrap()["stream_options"], asked);
    assert_eq!(
        with_usage(r#"{"a":1,"stream_options": {"x":1}}"#).unwrap()["stream_options"],
        json!({"include_usage": true, "x": 1})
    );
    assert_eq!(with_usage(r#"{"stream_options":{"include_usage":false}}"#), None);
    assert_eq!(with_usage(r#"{"stream_options":{"include_usage":true}}"#), None);
    assert_eq!(with_usage(r#"{"stream_options":[1]}"#), None);
}

#[test]
fn edits_go_together_and_a_model_can_be_filled_in() {
    let body = r#"{"stream":true,"model":"a"}"#;
    let fields = scan(body.as_bytes(), None).unwrap();
    let usage = Edit::include_usage(body.as_bytes(), &fields).unwrap();
    let model = Edit::json_model(fields.model.unwrap().span, "bb");
    let out = apply(&Bytes::from_static(body.as_bytes()), &mut [model, usage]);
    assert_eq!(out, r#"{"stream_options":{"include_usage":true},"stream":true,"model":"bb"}"#);
    let insert = |body: &str| {
        let edit = Edit::insert_model(body.as_bytes(), "m")?;
        String::from_utf8(apply(&Bytes::from(body.to_owned()), &mut [edit]).to_vec()).ok()
    };
    assert_eq!(insert("{}").as_deref(), Some(r#"{"model":"m"}"#));
    assert_eq!(insert(" {\"a\":1}").as_deref(), Some(r#" {"model":"m","a":1}"#));
    assert_eq!(insert("[]"), None);
}

#[test]
fn without_edits_nothing_is_copied() {
    let body = Bytes::from_static(b"{}");
    assert_eq!(apply(&body, &mut []).as_ptr(), body.as_ptr());
}

const FORM: &str = "--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"model\"\r\nContent-Type: audio/wav\r\n\r\n\
    RIFF\r\n--Xy\r\nname=\"model\"\r\n--XyZ\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--XyZ--\r\n";

#[test]
fn a_form_field_model_is_found_after_the_file_and_replaced() {
    let boundary = multipart_boundary("multipart/form-data; charset=utf-8; boundary=\"XyZ\"").unwrap();
    let model = multipart_model(FORM.as_bytes(), &boundary).unwrap().unwrap();
    assert_eq!(model.name, "whisper-1");
    let edit = Edit::form_model(model.span, "up-2");
    let out = apply(&Bytes::from(FORM), &mut [edit]);
    assert_eq!(out, FORM.replace("whisper-1", "up-2"));
}

#[test]
fn bad_forms_are_refused() {
    let two = FORM.replacen("name=\"file\"; filename=\"model\"", "name=\"model\"", 1);
    assert_eq!(multipart_model(two.as_bytes(), "XyZ"), Err(SpliceError::DuplicateModel));
    assert!(matches!(multipart_model(b"hello", "XyZ"), Err(SpliceError::NotMultipart(_))));
    for end in 0..FORM.len() - 5 {
        assert!(multipart_model(&FORM.as_bytes()[..end], "XyZ").is_err(), "cut at {end}");
    }
    assert_eq!(multipart_model(b"--XyZ--\r\n", "XyZ"), Ok(None));
    for bad in [
        "application/json",
        "multipart/form-data",
        "multipart/mixed; boundary=a",
        "multipart/form-data; boundary=",
    ] {
        assert_eq!(multipart_boundary(bad), None, "{bad}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map("model|[a-z]{0,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn spliced_bodies_parse_equal_except_for_the_model(
        mut fields in proptest::collection::hash_map("[a-z_\u{e9}\"]{0,8}", value(), 0..6),
        old in ".{1,12}",
        new in any::<String>(),
        pretty: bool,
    ) {
        fields.insert("model".to_owned(), Value::from(old.clone()));
        let mut object = Value::Object(fields.into_iter().collect());
        let body = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) }.unwrap();
        let scanned = scan(&body, None).unwrap();
        let found = scanned.model.unwrap();
        prop_assert_eq!(&*found.name, old.as_str());
        let out = apply(&Bytes::from(body.clone()), &mut [Edit::json_model(found.span, &new)]);
        object["model"] = Value::from(new);
        prop_assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), object);
    }

    #[test]
    fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = scan(&body, Some("user"));
        let _ = multipart_model(&body, "a");
    }
}
