use super::*;

fn text(mode: pb::ErrorTextMode, remove: &[&str], texts: &[(&str, &str)]) -> ErrorText {
    ErrorText::new(&pb::ErrorTextPolicy {
        mode: mode.into(),
        remove_words: remove.iter().map(|word| (*word).to_owned()).collect(),
        texts: texts.iter().map(|(code, text)| ((*code).to_owned(), (*text).to_owned())).collect(),
    })
}

const QUOTA: &str = r#"{ "error": {"message":"You exceeded your current quota. Please check your plan and billing details at https:\/\/x.ai\/b.","type":"insufficient_quota","code":"insufficient_quota", "n": 1.50} }"#;

#[test]
fn part10_passthrough_touches_nothing() {
    for body in [QUOTA, "", "{", "<html>", "\u{0}"] {
        let plain = ErrorText::new(&pb::ErrorTextPolicy::default());
        assert!(plain.is_passthrough());
        assert!(matches!(plain.body(body.as_bytes()), Cow::Borrowed(same) if same == body.as_bytes()));
    }
}

#[test]
fn part10_sanitized_removes_links_and_purchase_hints_only() {
    let clean = text(pb::ErrorTextMode::Sanitized, &[], &[]);
    let body = clean.body(QUOTA.as_bytes());
    let expected = QUOTA.replace(r" Please check your plan and billing details at https:\/\/x.ai\/b.", "");
    assert_eq!(std::str::from_utf8(&body).unwrap(), expected);
    for (given, shown) in [
        ("余额不足,请充值。请稍后再试", "请稍后再试"),
        ("余额不足。请充值。", "余额不足。"),
        ("Upgrade to Pro today!", NOTHING_LEFT),
        ("Invalid 'temperature': must be >= 0.", "Invalid 'temperature': must be >= 0."),
        ("Slow down. Visit www.x.ai/buy to learn more.", "Slow down."),
    ] {
        assert_eq!(clean.message("", given), shown, "{given}");
    }
}

#[test]
fn part10_words_and_texts() {
    let own = text(
        pb::ErrorTextMode::Sanitized,
        &["ACME Cloud"],
        &[("invalid_value", "Please look at the parameters.")],
    );
    assert_eq!(
        own.message("", "The acme cloud service said no. Try again."),
        "The service said no. Try again."
    );
    let body =
        own.body(br#"{"type":"error","error":{"type":"invalid_value","message":"x","param":"message"}}"#);
    assert_eq!(
        body.as_ref(),
        br#"{"type":"error","error":{"type":"invalid_value","message":"Please look at the parameters.","param":"message"}}"#
    );
    // Texts also stand in for our own, and without sanitizing.
    let texts = text(pb::ErrorTextMode::Passthrough, &[], &[("all_throttled", "Busy \"now\"")]);
    assert_eq!(texts.text_for("all_throttled"), Some("Busy \"now\""));
    let body = texts.body(br#"{"error":{"code":"all_throttled","message":"see https://x.ai"}}"#);
    assert_eq!(body.as_ref(), br#"{"error":{"code":"all_throttled","message":"Busy \"now\""}}"#);
    let other = texts.body(br#"{"error":{"code":"other","message":"see https://x.ai"}}"#);
    assert!(matches!(other, Cow::Borrowed(_)));
}

#[test]
fn part10_odd_bodies_survive() {
    let clean = text(pb::ErrorTextMode::Sanitized, &["x"], &[]);
    for body in [&b"{"[..], b"[[[[[[[[[[", b"\"", b"\xff\xfe", b"{\"message\":\"buy ", b"null"] {
        let _ = clean.body(body);
    }
    assert_eq!(
        clean.body(b"{\"message\":\"Please subscribe\"").as_ref(),
        br#"{"message":"The provider refused the request.""#
    );
    assert_eq!(clean.body(b"See https://a.b/c").as_ref(), NOTHING_LEFT.as_bytes());
}

#[test]
fn an_error_in_the_form_of_a_stream_stays_one() {
    let clean =
        |text: &ErrorText, body: &str| String::from_utf8(text.body(body.as_bytes()).into_owned()).unwrap();
    let sanitized = text(pb::ErrorTextMode::Sanitized, &[], &[]);
    let error = "data: {\"error\":{\"message\":\"Too long. See https://a.example/x\",\"code\":\"c\"}}";
    let body = format!("event: error\r\n{error}\r\n\r\ndata: [DONE]\n\n");
    let bare = body.replace(" See https://a.example/x", "");
    assert_eq!(clean(&sanitized, &body), bare);
    assert!(matches!(sanitized.body(bare.as_bytes()), Cow::Borrowed(_)));
    let friendly = text(pb::ErrorTextMode::Passthrough, &[], &[("c", "No\nway")]);
    assert!(clean(&friendly, &body).contains(r#"data: {"error":{"message":"No\nway","code":"c"}}"#));
}

#[test]
fn links_and_words_go_wherever_they_stand_in_an_error() {
    let sanitized = text(pb::ErrorTextMode::Sanitized, &["acme"], &[]);
    let body = r#"{"error":{"message":"Bad.","type":"billing_error","metadata":{"raw":"go to https://a.example","by":"Acme","list":["see www.a.example"]}}}"#;
    let clean = String::from_utf8(sanitized.body(body.as_bytes()).into_owned()).unwrap();
    assert!(!clean.contains("a.example") && !clean.contains("Acme"), "{clean}");
    assert!(clean.contains(r#""message":"Bad.","type":"billing_error""#), "{clean}");
}
