//! One case: an answer as a provider sent it, and its right reading.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use spareline_core::classify::{Evidence, Input, Recorded, Rules, classify_recorded, classify_stream};
use spareline_core::words::{Class, Endpoint, Provider};

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) vendor: String,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) stream: bool,
    pub(crate) body: String,
    /// The bytes sent, where they are not `body`.
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) class: String,
    pub(crate) scope: String,
    pub(crate) also_ok: Vec<String>,
    pub(crate) retry_after_s: Option<f64>,
    pub(crate) error_event: Option<u32>,
    pub(crate) first_content: Option<u32>,
}

/// How a case was read.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) class: Class,
    pub(crate) scope: String,
    pub(crate) rule: String,
    pub(crate) also: Vec<String>,
    pub(crate) code: String,
    pub(crate) wait: Option<f64>,
    pub(crate) error_event: Option<u32>,
    pub(crate) first_content: Option<u32>,
}

/// All cases of all files.
pub(crate) fn all() -> Vec<Case> {
    ["upstream.jsonl", "extra.jsonl", "judge.jsonl", "sourced.jsonl"]
        .iter()
        .flat_map(|file| load(file))
        .collect()
}

/// The cases recorded and handed on, without those made for single rules.
pub(crate) fn recorded() -> Vec<Case> {
    load("upstream.jsonl")
}

fn load(file: &str) -> Vec<Case> {
    let path = format!("{}/../../tests/data/corpus/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.lines()
        .filter(|line| !line.is_empty())
        .map(|line| Case::parse(&serde_json::from_str(line).unwrap()))
        .collect()
}

impl Case {
    fn parse(line: &Value) -> Self {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let headers = line["headers"].as_object().unwrap().iter().map(|(name, value)| {
            let name = HeaderName::try_from(name.as_str()).unwrap();
            (name, HeaderValue::from_str(value.as_str().unwrap()).unwrap())
        });
        Self {
            id: text("id"),
            vendor: text("provider"),
            status: u16::try_from(line["status"].as_u64().unwrap()).unwrap(),
            headers: headers.collect(),
            stream: line["stream"].as_bool().unwrap(),
            body: text("body"),
            bytes: None,
            class: text("class"),
            scope: text("scope"),
            also_ok: line["also_ok"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|v| v.as_str().unwrap().to_owned())
                .collect(),
            retry_after_s: line["retry_after_s"].as_f64(),
            error_event: line["error_event"].as_u64().map(|at| u32::try_from(at).unwrap()),
            first_content: line["first_content_event"].as_u64().map(|at| u32::try_from(at).unwrap()),
        }
    }

    pub(crate) fn body_bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(self.body.as_bytes())
    }

    pub(crate) fn is_event_stream(&self) -> bool {
        self.headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
    }

    fn dialect(&self) -> Provider {
        match self.vendor.as_str() {
            "openai" | "openai-responses" => Provider::OpenAi,
            "anthropic" => Provider::Anthropic,
            "azure" => Provider::AzureOpenAi,
            _ => Provider::OpenAiCompatible,
        }
    }

    fn endpoint(&self) -> Endpoint {
        if self.vendor == "openai-responses" {
            Endpoint::Responses
        } else if self.vendor.contains("anthropic") {
            Endpoint::Messages
        } else {
            Endpoint::ChatCompletions
        }
    }

    /// Reads it; `known`: with its dialect and vendor, else as from anybody.
    pub(crate) fn read(&self, known: bool) -> Read {
        let input = |evidence| Input {
            provider: if known { self.dialect() } else { Provider::OpenAiCompatible },
            vendor: known.then_some(self.vendor.as_str()),
            endpoint: Some(if known { self.endpoint() } else { Endpoint::ChatCompletions }),
            stream: self.stream,
            evidence,
        };
        let rules = Rules::builtin();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000);
        let evidence =
            Evidence::Response { status: self.status, headers: &self.headers, body: self.body_bytes() };
        Read::of(&classify_recorded(&input(evidence), &rules, now))
    }

    /// Reads a stream that comes in two chunks.
    pub(crate) fn read_split(&self, at: usize) -> Read {
        let (first, second) = self.body_bytes().split_at(at);
        let input = Input {
            provider: self.dialect(),
            vendor: Some(&self.vendor),
            endpoint: Some(self.endpoint()),
            stream: true,
            evidence: Evidence::Response { status: self.status, headers: &self.headers, body: &[] },
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000);
        Read::of(&classify_stream(&input, [first, second], &Rules::builtin(), now))
    }

    /// Compares as the corpus' README says: strict on the class where `also_ok` is absent, on the scope where the class
    /// takes something out, on the hint where the class is the one expected.
    pub(crate) fn check(&self, got: &Read) -> Result<(), String> {
        let class = got.class.as_str();
        if class != self.class {
            return if self.also_ok.iter().any(|also| also == class) { Ok(()) } else { Err("class".into()) };
        }
        let wanted = match self.class.as_str() {
            "disable" => Some("credential"),
            "model_unavailable" => Some("ability"),
            "endpoint_missing" => Some("endpoint"),
            "transparent" => Some("request"),
            "retryable" if self.scope == "none" => Some("none"),
            _ => None,
        };
        if wanted.is_some_and(|wanted| wanted != got.scope) {
            return Err("scope".into());
        }
        let same = match (self.retry_after_s, got.wait) {
            (None, None) => true,
            (Some(wanted), Some(got)) => (wanted - got).abs() < 0.001,
            _ => false,
        };
        if !same {
            return Err(format!("retry_after: expected {:?}, got {:?}", self.retry_after_s, got.wait));
        }
        let events = (got.first_content, got.error_event);
        if self.stream && events != (self.first_content, self.error_event) {
            let wanted = (self.first_content, self.error_event);
            return Err(format!("first content and error event: expected {wanted:?}, got {events:?}"));
        }
        Ok(())
    }
}

impl Read {
    fn of(recorded: &Recorded) -> Self {
        let verdict = &recorded.verdict;
        Self {
            class: verdict.class,
            scope: verdict.scope.to_string(),
            rule: verdict.rule.to_string(),
            also: verdict.also.iter().map(ToString::to_string).collect(),
            code: verdict.provider_code.clone(),
            wait: verdict.retry_after.as_ref().map(|hint| hint.read.as_secs_f64()),
            error_event: recorded.error_event,
            first_content: recorded.first_content,
        }
    }
}
