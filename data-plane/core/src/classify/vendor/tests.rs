use super::*;

#[test]
fn names_and_hosts() {
    assert_eq!(family("dashscope-compat"), Some("dashscope"));
    assert_eq!(family("zai-anthropic"), Some("zhipu"));
    assert_eq!(family("tencentcloud"), Some("tencent"));
    assert_eq!(family("somebody"), None);
    assert_eq!(ruling(Some("openai-compat")), None);
    assert_eq!(ruling(Some("copilot-api-relay")), None);
    assert_eq!(ruling(Some("openrouter")), None);
    assert_eq!(ruling(Some("zhipu")), Some("zhipu"));
    for (host, vendor) in [
        ("api.moonshot.cn", Some("moonshot")),
        ("dashscope-intl.aliyuncs.com", Some("dashscope")),
        ("ark.cn-beijing.volces.com", Some("volcengine")),
        ("my-resource.openai.azure.com", Some("azure")),
        ("us-central1-aiplatform.googleapis.com", Some("gemini")),
        ("bedrock-runtime.us-east-1.amazonaws.com", Some("bedrock")),
        ("API.OPENAI.COM.", Some("openai")),
        ("notapi.openai.com.evil.org", None),
        ("xapi.x.ai", None),
        ("localhost", None),
    ] {
        assert_eq!(of_host(host), vendor, "{host}");
    }
}

#[test]
fn every_host_belongs_to_a_family() {
    for (_, vendor) in HOSTS {
        assert!(known().contains(vendor), "{vendor}");
    }
}
