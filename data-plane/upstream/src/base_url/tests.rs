use super::*;

fn joined(base: &str, path: &str, query: Option<&str>) -> String {
    Base::new(&Url::parse(base).unwrap()).join(path, query, Some("m")).unwrap().to_string()
}

#[test]
fn what_people_write_leads_where_they_meant() {
    let chat = "/v1/chat/completions";
    let cases = [
        ("https://h", chat, "https://h/v1/chat/completions"),
        ("https://h/", chat, "https://h/v1/chat/completions"),
        ("https://h/v1", chat, "https://h/v1/chat/completions"),
        ("https://h/v1/", chat, "https://h/v1/chat/completions"),
        ("https://h/v1//", chat, "https://h/v1/chat/completions"),
        ("https://h/api/paas/v4", chat, "https://h/api/paas/v4/chat/completions"),
        ("https://h/api/paas/v4/", "/v1/embeddings", "https://h/api/paas/v4/embeddings"),
        ("https://h/v1beta/openai/", chat, "https://h/v1beta/openai/chat/completions"),
        ("https://h/api", chat, "https://h/api/v1/chat/completions"),
        ("https://h:8443/openai/", "/v1/models", "https://h:8443/openai/v1/models"),
        ("https://h/v1/chat/completions", chat, "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions/", "/v1/embeddings", "https://h/v1/embeddings"),
        ("https://h/chat/completions", chat, "https://h/v1/chat/completions"),
        ("http://127.0.0.1:9/", "/v1/messages", "http://127.0.0.1:9/v1/messages"),
        ("https://h/v1", "/v1/messages/batches", "https://h/v1/messages/batches"),
        ("https://h/vendor", chat, "https://h/vendor/v1/chat/completions"),
        ("https://h", "/health", "https://h/health"),
        ("https://h", "/v12/x", "https://h/v12/x"),
        ("https://h/v1?api-version=x", chat, "https://h/v1/chat/completions?api-version=x"),
        ("https://[::1]:80/v1", chat, "https://[::1]:80/v1/chat/completions"),
    ];
    for (base, path, want) in cases {
        assert_eq!(joined(base, path, None), want, "{base} + {path}");
    }
}

#[test]
fn queries_are_merged_without_credentials() {
    let path = "/v1/files";
    assert_eq!(
        joined("https://h/v1?a=1", path, Some("limit=2&key=sk&b=%26")),
        "https://h/v1/files?a=1&limit=2&b=%26"
    );
    for name in ["key", "KEY", "api_key", "api-key", "access_token", "token", "k%65y"] {
        assert_eq!(
            joined("https://h", path, Some(&format!("{name}=sk-caller"))),
            "https://h/v1/files",
            "{name}"
        );
    }
    assert_eq!(joined("https://h", path, Some("")), "https://h/v1/files");
}

#[test]
fn dot_segments_never_leave_the_base() {
    let base = Base::new(&Url::parse("https://h/v1").unwrap());
    for path in
        ["/v1/../x", "/v1/a/./b", "/v1/%2e%2E/x", "/v1/.%2e", "/v1/a\\..\\b", "/v1/..%2fb", "/v1/..;/b"]
    {
        assert!(base.join(path, None, None).is_none(), "{path}");
    }
    assert!(base.join("/v1/models/a..b", None, None).is_some());
}

#[test]
fn azure_paths() {
    let join = |base: &str, version: Option<&str>, path: &str| {
        let base = Base::azure(&Url::parse(base).unwrap(), version);
        base.join(path, Some("api-version=caller&x=1"), Some("my gpt/4")).unwrap().to_string()
    };
    let chat = "/v1/chat/completions";
    let v = Some("2024-10-21");
    let want = "https://r/openai/deployments/my%20gpt%2F4/chat/completions?x=1&api-version=2024-10-21";
    for base in ["https://r", "https://r/", "https://r/openai", "https://r/openai/"] {
        assert_eq!(join(base, v, chat), want, "{base}");
    }
    assert_eq!(
        join("https://r", v, "/v1/responses"),
        "https://r/openai/responses?x=1&api-version=2024-10-21"
    );
    assert_eq!(join("https://r", v, "/v1/models"), "https://r/openai/models?x=1&api-version=2024-10-21");
    assert_eq!(join("https://apim/llm", v, chat), want.replace("//r/", "//apim/llm/"));
    assert_eq!(
        join("https://r/openai/deployments/dep", v, chat),
        "https://r/openai/deployments/dep/chat/completions?x=1&api-version=2024-10-21"
    );
    for base in ["https://r/openai/v1", "https://r/openai/v1/"] {
        assert_eq!(join(base, v, chat), "https://r/openai/v1/chat/completions?x=1", "{base}");
        assert_eq!(
            join(base, Some("preview"), chat),
            "https://r/openai/v1/chat/completions?x=1&api-version=preview"
        );
    }
}
