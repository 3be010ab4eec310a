use super::*;

fn problems(text: &str) -> String {
    let mut check = Check::default();
    base_url(&mut check, text);
    check.violations.iter().map(|v| format!("{}; ", v.problem)).collect()
}

#[test]
fn base_urls_that_nothing_can_be_made_of_are_refused_without_their_text() {
    let long = format!("https://h/{}", "p".repeat(LONGEST));
    let cases = [
        ("", "must start with http"),
        ("api.canary/v1", "must start with http"),
        ("localhost:8080/v1", "must start with http"),
        ("//canary/v1", "must start with http"),
        ("ftp://canary", "must start with http"),
        ("http:canary", "must start with http"),
        ("http:\\\\canary\\v1", "must start with http"),
        (" https://canary", "spaces"),
        ("https://canary/v1 ", "spaces"),
        ("https://canary/a b", "spaces"),
        ("https://canary/\0", "control"),
        ("https://", "must be a URL"),
        ("https://[::1", "must be a URL"),
        ("https://canary:99999", "must be a URL"),
        ("https://canary:0", "port 0"),
        ("https://h\\canary", "backslash"),
        ("https://user:canary@h", "user or a password"),
        ("https://h/v1#canary", "fragment"),
        ("https://h/v1?api_key=canary", "secret in its query"),
        (long.as_str(), "at most 2048"),
    ];
    for (text, wanted) in cases {
        let told = problems(text);
        assert!(told.contains(wanted) && !told.contains("canary"), "{text}: {told}");
    }
}

#[test]
fn base_urls_that_people_write_are_taken() {
    for text in [
        "https://api.openai.com",
        "https://api.openai.com/v1/",
        "HTTPS://API.OPENAI.COM/V1",
        "https://api.openai.com./v1",
        "http://[::1]:8080/v1",
        "http://127.0.0.1:8080",
        "https://gateway.example/openai/v1?tenant=7",
        "https://res.services.ai.azure.com/models",
        "https://open.bigmodel.cn/api/paas/v4",
        "https://b\u{fc}cher.example/v1",
    ] {
        assert_eq!((problems(text), mistaken(text)), (String::new(), None), "{text}");
    }
}

#[test]
fn a_pasted_endpoint_and_a_doubled_version_are_mistakes_and_the_way_out_is_said() {
    let cases = [
        ("https://h/v1/chat/completions", "/chat/completions, which is", "ends in /v1"),
        ("https://h/v1/chat/completions/", "/chat/completions, which is", "ends in /v1"),
        ("https://h/chat/completions?x=1", "/chat/completions, which is", "ends with the host"),
        ("https://h/openai/deployments/d/chat/completions", "/chat/completions, which is", "ends in /d"),
        ("https://h/v1/messages", "/messages, which is", "ends in /v1"),
        ("https://h/api/paas/v4/embeddings", "/embeddings, which is", "ends in /v4"),
        ("https://h/v1/models", "/models, which is", "ends in /v1"),
        ("https://h/v1/v1", "has /v1/v1 in it", "write /v1 once"),
        ("https://h/openai/v1/v1/", "has /v1/v1 in it", "write /v1 once"),
        ("https://h//v1", "has // in its path", "write / once"),
        ("https://h/openai//v1/", "has // in its path", "write / once"),
    ];
    for (text, what, instead) in cases {
        let told = mistaken(text).unwrap_or_else(|| panic!("{text} is taken"));
        assert_eq!(told.field, "base_url");
        assert!(told.problem.contains(what) && told.problem.contains(instead), "{text}: {told}");
    }
    for text in [
        "https://h/models",
        "https://h/messages",
        "https://h/a/a",
        "https://h/v1/openai/v1",
        "https://h/v1//",
        "https://relay/https://h/v1",
        "nonsense",
    ] {
        assert_eq!(mistaken(text), None, "{text}");
    }
}
