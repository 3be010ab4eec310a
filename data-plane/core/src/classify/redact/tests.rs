use super::*;

#[test]
fn keys_tokens_addresses_and_queries_go() {
    for (given, shown) in [
        (
            "Incorrect API key provided: sk-proj-abc****wxyz. See",
            "Incorrect API key provided: <redacted>. See",
        ),
        ("Incorrect API key provided: sk-canary-one.", "Incorrect API key provided: <redacted>."),
        ("use Bearer abcd1234 please", "use Bearer <redacted> please"),
        ("token=a1b2c3d4e5f6a7b8c9d0 bad", "token=<redacted> bad"),
        ("mail jane.doe@example.com now", "mail <redacted> now"),
        ("see https://x.ai/a?key=1&b=2 or not", "see https://x.ai/a?<redacted> or not"),
        ("see https://u:p@x.ai/a#top", "see https://x.ai/a#top"),
        ("header eyJhbGciOiJIUzI1NiJ9.e30.x", "header <redacted>"),
        ("key AIzaSyD0123456789 leaked", "key <redacted> leaked"),
    ] {
        assert_eq!(excerpt(given), shown);
        assert_eq!(excerpt(shown), shown, "once more changes nothing");
    }
}

#[test]
fn what_helps_stays() {
    for text in [
        "The model `claude-sonnet-4-5-20250929` does not exist",
        "Rate limit reached for gpt-4.1 on tokens per min (TPM): Limit 30000",
        "余额不足或无可用资源包,请充值。",
        "Please go to https://platform.openai.com/docs/guides/error-codes/api-errors.",
    ] {
        assert_eq!(excerpt(text), text);
    }
}

#[test]
fn one_line_of_at_most_256_bytes() {
    assert_eq!(excerpt("a\nb\tc\u{7}d"), "a b cd");
    assert_eq!(excerpt("see https://a.b/c\u{1b}d\u{9b}e now"), "see https://a.b/cde now");
    let long = excerpt(&"余额不足 ".repeat(100));
    assert!(long.len() <= EXCERPT && long.len() > EXCERPT - 8, "{}", long.len());
    assert!(excerpt(&"x".repeat(10_000)).len() <= EXCERPT);
}
