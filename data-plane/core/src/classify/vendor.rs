//! Vendors: whose rules apply, and how a host tells.
//!
//! Aggregators and relays are nobody in particular: they pass on everybody's codes, so all rules apply to them.

/// Families with rules of their own, by the names and beginnings of names that stand for them.
const FAMILIES: &[(&str, &[&str])] = &[
    ("openai", &["openai", "openai-responses"]),
    ("anthropic", &["anthropic"]),
    ("gemini", &["gemini", "vertex", "google"]),
    ("azure", &["azure", "azure-openai", "azure_openai"]),
    ("bedrock", &["bedrock", "aws"]),
    ("deepseek", &["deepseek"]),
    ("zhipu", &["zhipu", "zai", "z.ai", "bigmodel", "glm"]),
    ("moonshot", &["moonshot", "kimi"]),
    ("dashscope", &["dashscope", "alibaba", "aliyun", "qwen"]),
    ("volcengine", &["volcengine", "ark", "doubao", "byteplus"]),
    ("minimax", &["minimax"]),
    ("baidu", &["baidu", "qianfan"]),
    ("tencent", &["tencent", "tencentcloud", "hunyuan"]),
    ("xfyun", &["xfyun", "spark", "iflytek"]),
    ("siliconflow", &["siliconflow"]),
    ("mistral", &["mistral"]),
    ("groq", &["groq"]),
    ("xai", &["xai", "x.ai"]),
    ("cohere", &["cohere"]),
    ("together", &["together"]),
    ("fireworks", &["fireworks"]),
    ("cerebras", &["cerebras"]),
    ("perplexity", &["perplexity"]),
    ("openrouter", &["openrouter"]),
    ("huggingface", &["huggingface", "hf", "tgi", "tei"]),
    ("nvidia", &["nvidia", "nim"]),
    ("replicate", &["replicate"]),
    ("cloudflare", &["cloudflare"]),
    ("vllm", &["vllm", "sglang"]),
    ("ollama", &["ollama"]),
    ("llamacpp", &["llamacpp", "llama.cpp"]),
    ("lmstudio", &["lmstudio", "lm-studio"]),
    ("litellm", &["litellm"]),
    ("voyage", &["voyage"]),
];

/// Relays that pass on others' codes as they are.
const RELAYS: &[&str] = &["litellm", "openrouter", "vllm"];

/// Hosts, by their ends, and whose they are.
const HOSTS: &[(&str, &str)] = &[
    ("api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("openai.azure.com", "azure"),
    ("cognitiveservices.azure.com", "azure"),
    ("services.ai.azure.com", "azure"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("aiplatform.googleapis.com", "gemini"),
    ("amazonaws.com", "bedrock"),
    ("api.deepseek.com", "deepseek"),
    ("bigmodel.cn", "zhipu"),
    ("z.ai", "zhipu"),
    ("moonshot.cn", "moonshot"),
    ("moonshot.ai", "moonshot"),
    ("kimi.com", "moonshot"),
    ("aliyuncs.com", "dashscope"),
    ("volces.com", "volcengine"),
    ("bytepluses.com", "volcengine"),
    ("minimax.chat", "minimax"),
    ("minimaxi.com", "minimax"),
    ("minimax.io", "minimax"),
    ("baidubce.com", "baidu"),
    ("tencentcloudapi.com", "tencent"),
    ("hunyuan.cloud.tencent.com", "tencent"),
    ("xf-yun.com", "xfyun"),
    ("siliconflow.cn", "siliconflow"),
    ("siliconflow.com", "siliconflow"),
    ("api.mistral.ai", "mistral"),
    ("api.groq.com", "groq"),
    ("api.x.ai", "xai"),
    ("api.cohere.com", "cohere"),
    ("api.cohere.ai", "cohere"),
    ("together.xyz", "together"),
    ("together.ai", "together"),
    ("fireworks.ai", "fireworks"),
    ("api.cerebras.ai", "cerebras"),
    ("api.perplexity.ai", "perplexity"),
    ("openrouter.ai", "openrouter"),
    ("huggingface.co", "huggingface"),
    ("api.nvidia.com", "nvidia"),
    ("api.replicate.com", "replicate"),
    ("api.cloudflare.com", "cloudflare"),
    ("ollama.com", "ollama"),
    ("api.voyageai.com", "voyage"),
];

/// The family a vendor's name belongs to: `dashscope-compat` is `dashscope`. `None` for a name nobody knows.
pub(super) fn family(vendor: &str) -> Option<&'static str> {
    FAMILIES.iter().find_map(|(family, names)| {
        let known = names.iter().any(|name| {
            vendor.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
        });
        known.then_some(*family)
    })
}

/// The family whose rules alone apply; `None`: everybody's.
pub(super) fn ruling(vendor: Option<&str>) -> Option<&'static str> {
    let vendor = vendor?;
    // A compatible relay of somebody's is not that somebody.
    if vendor.contains("relay")
        || matches!(vendor, "openai-compat" | "openai_compatible" | "openai-compatible")
    {
        return None;
    }
    family(vendor).filter(|family| !RELAYS.contains(family))
}

/// Every family.
pub(super) fn known() -> Vec<&'static str> {
    FAMILIES.iter().map(|(family, _)| *family).collect()
}

/// By the host of a `base_url`.
pub(super) fn of_host(host: &str) -> Option<&'static str> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    HOSTS.iter().find_map(|(end, family)| {
        let before = host.strip_suffix(end)?;
        (before.is_empty() || before.ends_with('.') || before.ends_with('-')).then_some(*family)
    })
}

#[cfg(test)]
mod tests;
