//! One key at a time out of what was merged, collecting mistakes instead of stopping at the first.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use figment::{Figment, Profile, value::Value};
use spareline_core::Secret;

use super::{Invalid, LogFormat};

/// One thing that is wrong, with the key's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The key.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Mistake {
    pub(super) fn new(key: &str, problem: impl Into<String>) -> Self {
        Self { key: key.to_owned(), problem: problem.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

/// Reads keys and remembers which were asked for.
pub(super) struct Keys {
    figment: Figment,
    values: figment::value::Dict,
    known: BTreeSet<&'static str>,
    mistakes: Vec<Mistake>,
}

impl Keys {
    pub(super) fn new(figment: Figment) -> Result<Self, Invalid> {
        let data = figment::Provider::data(&figment).map_err(|e| {
            Invalid(e.into_iter().map(|e| Mistake::new("config", e.kind.to_string())).collect())
        })?;
        let mut values = figment::value::Dict::new();
        for profile in [Profile::Default, Profile::Global] {
            values.extend(data.get(&profile).cloned().unwrap_or_default());
        }
        Ok(Self { figment, values, known: BTreeSet::new(), mistakes: Vec::new() })
    }

    /// Done: unknown keys are mistakes too.
    pub(super) fn finish(mut self) -> Result<(), Invalid> {
        let unknown: Vec<String> =
            self.values.keys().filter(|k| !self.known.contains(k.as_str())).cloned().collect();
        for key in unknown {
            self.mistake(&key, "no such key");
        }
        if self.mistakes.is_empty() { Ok(()) } else { Err(Invalid(self.mistakes)) }
    }

    /// Remembers a mistake, with where the value was set.
    pub(super) fn mistake(&mut self, key: &str, problem: impl Into<String>) {
        let mut problem = problem.into();
        let metadata = self.values.get(key).and_then(|v| self.figment.get_metadata(v.tag()));
        if let Some(metadata) = metadata {
            problem.push_str(&match (&metadata.source, metadata.name.as_ref()) {
                (Some(figment::Source::File(path)), _) => format!(" (in {})", path.display()),
                (_, name) if name.contains("environment") => {
                    format!(" (in {}{})", super::ENV_PREFIX, key.to_uppercase())
                }
                _ => format!(" (in --{})", key.replace('_', "-")),
            });
        }
        self.mistakes.push(Mistake::new(key, problem));
    }

    fn get(&mut self, key: &'static str) -> Option<Value> {
        self.known.insert(key);
        self.values.get(key).cloned()
    }

    /// Text; numbers and booleans count as what they look like.
    fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.get(key)?;
        let text = match &value {
            Value::String(_, s) => Some(s.clone()),
            Value::Bool(_, b) => Some(b.to_string()),
            Value::Num(_, n) => n
                .to_i128()
                .map(|n| n.to_string())
                .or_else(|| n.to_u128().map(|n| n.to_string()))
                .or_else(|| n.to_f64().map(|n| n.to_string())),
            _ => None,
        };
        if text.is_none() {
            self.mistake(key, "must be one value, not a list or table");
        }
        text
    }

    /// What `parse` makes of the text, or of `default`.
    fn parsed<T>(
        &mut self,
        key: &'static str,
        default: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let given = self.text(key);
        match parse(given.as_deref().unwrap_or(default)) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.mistake(key, problem);
                parse(default).ok()
            }
        }
    }

    pub(super) fn boolean(&mut self, key: &'static str, default: bool) -> bool {
        self.parsed(key, if default { "true" } else { "false" }, |s| {
            s.parse().map_err(|_| format!("`{s}` is neither true nor false"))
        })
        .unwrap_or(default)
    }

    pub(super) fn number(&mut self, key: &'static str, default: usize, min: usize, max: usize) -> usize {
        self.parsed(key, &default.to_string(), |s| match s.parse() {
            Ok(n) if (min..=max).contains(&n) => Ok(n),
            _ => Err(format!("`{s}` is not a number from {min} to {max}")),
        })
        .unwrap_or(default)
    }

    pub(super) fn size(&mut self, key: &'static str, default: &str, min: usize, max: usize) -> usize {
        self.parsed(key, default, |s| match parse_size(s) {
            Some(n) if (min..=max).contains(&n) => Ok(n),
            Some(_) => Err(format!("`{s}` is not within {min} and {max} bytes")),
            None => Err(format!("`{s}` is not a size such as 32MiB")),
        })
        .unwrap_or(max)
    }

    pub(super) fn duration(&mut self, key: &'static str, default: &str) -> Duration {
        self.parsed(key, default, |s| match parse_duration(s) {
            Some(d) if !d.is_zero() && d <= Duration::from_secs(86_400) => Ok(d),
            Some(_) => Err(format!("`{s}` is not above zero and at most 24h")),
            None => Err(format!("`{s}` is not a duration such as 30s, 500ms or 5m")),
        })
        .unwrap_or_default()
    }

    pub(super) fn address(&mut self, key: &'static str, default: &str, insecure: bool) -> SocketAddr {
        self.parsed(key, default, |s| {
            let address: SocketAddr =
                s.parse().map_err(|_| format!("`{s}` is not an address such as 127.0.0.1:8080"))?;
            if address.ip().is_loopback() || insecure {
                Ok(address)
            } else {
                Err(format!(
                    "`{s}` is beyond loopback and there is no transport security: set `insecure` too"
                ))
            }
        })
        .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// `None` only where a mistake was found.
    pub(super) fn control_plane(
        &mut self,
        key: &'static str,
        default: &str,
        insecure: bool,
    ) -> Option<url::Url> {
        self.parsed(key, default, |s| {
            let url = url::Url::parse(s).map_err(|e| format!("`{s}` is not a URL: {e}"))?;
            if !url.username().is_empty() || url.password().is_some() {
                return Err("must not carry a user or a password: nobody asks for one".to_owned());
            }
            let local = match url.host() {
                None => return Err(format!("`{s}` names no host")),
                Some(url::Host::Domain(name)) => name == "localhost",
                Some(url::Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
                Some(url::Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
            };
            if url.scheme() != "http" {
                return Err(format!("`{s}` must begin with http://"));
            }
            if !local && !insecure {
                return Err(format!(
                    "`{s}` is beyond loopback and the watch carries secrets unprotected: set `insecure` too"
                ));
            }
            Ok(url)
        })
    }

    pub(super) fn name(&mut self, key: &'static str, default: &str) -> String {
        self.parsed(key, default, |s| {
            if is_name(s) { Ok(s.to_owned()) } else { Err(format!("`{s}` is not a name")) }
        })
        .unwrap_or_else(|| default.to_owned())
    }

    /// The name in the fleet; where none is given, made of the machine's name and the port.
    pub(super) fn proxy_id(&mut self, key: &'static str, port: u16) -> String {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let machine: String =
            machine.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let machine = if machine.is_empty() { "proxy".to_owned() } else { machine };
        self.name(key, &format!("{machine}-{port}"))
    }

    /// A path; empty means none.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        self.text(key).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// A secret, given as such or in a file. It is never shown.
    pub(super) fn secret(&mut self, key: &'static str, file_key: &'static str) -> Option<Secret> {
        let (given, file) = (self.text(key), self.path(file_key));
        let (key, text) = match (given, file) {
            (None, None) => return None,
            (Some(_), Some(_)) => {
                self.mistake(key, format!("is given beside `{file_key}`: one of them is enough"));
                return None;
            }
            (Some(text), None) => (key, text),
            (None, Some(path)) => match std::fs::read_to_string(&path) {
                Ok(text) => (file_key, text),
                Err(why) => {
                    self.mistake(file_key, format!("{} cannot be read: {why}", path.display()));
                    return None;
                }
            },
        };
        let text = text.trim();
        if text.len() < 32 {
            self.mistake(key, "must have 32 characters or more, and none that can be guessed");
            return None;
        }
        Some(Secret::new(text))
    }

    pub(super) fn header(&mut self, key: &'static str) -> Option<http::HeaderName> {
        let name = self.parsed(key, "", |s| {
            if s.is_empty() {
                return Ok(None);
            }
            s.parse().map(Some).map_err(|_| format!("`{s}` is not a header name"))
        });
        name.flatten()
    }

    /// A list, or text with commas.
    pub(super) fn list(&mut self, key: &'static str) -> Vec<String> {
        let items = match self.get(key) {
            None => return Vec::new(),
            Some(Value::Array(_, items)) => items,
            Some(Value::String(_, s)) => {
                return s.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect();
            }
            Some(_) => {
                self.mistake(key, "must be a list of texts");
                return Vec::new();
            }
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            match item.into_string() {
                Some(text) => texts.push(text),
                None => self.mistake(key, "must be a list of texts"),
            }
        }
        texts
    }

    /// A table, or text such as `zone=a,tier=canary`.
    pub(super) fn map(&mut self, key: &'static str) -> BTreeMap<String, String> {
        let mut map = BTreeMap::new();
        match self.get(key) {
            None => {}
            Some(Value::Dict(_, dict)) => {
                for (name, value) in dict {
                    match value.into_string() {
                        Some(text) => {
                            map.insert(name, text);
                        }
                        None => self.mistake(key, format!("`{name}` must be text")),
                    }
                }
            }
            Some(Value::String(_, pairs)) => {
                for pair in pairs.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                    match pair.split_once('=') {
                        Some((name, value)) if !name.trim().is_empty() => {
                            map.insert(name.trim().to_owned(), value.trim().to_owned());
                        }
                        _ => self.mistake(key, format!("`{pair}` is not of the form name=value")),
                    }
                }
            }
            Some(_) => self.mistake(key, "must be a table of texts"),
        }
        map
    }

    pub(super) fn log_format(&mut self, key: &'static str) -> LogFormat {
        self.parsed(key, "auto", |s| match s {
            "auto" => Ok(LogFormat::Auto),
            "json" => Ok(LogFormat::Json),
            "pretty" => Ok(LogFormat::Pretty),
            _ => Err(format!("`{s}` is not one of auto, json, pretty")),
        })
        .unwrap_or(LogFormat::Auto)
    }

    pub(super) fn log_level(&mut self, key: &'static str) -> String {
        self.parsed(key, "info", |s| match s.parse::<tracing_subscriber::filter::Targets>() {
            Ok(_) => Ok(s.to_owned()),
            Err(_) => Err(format!("`{s}` is not a level such as info, nor a filter")),
        })
        .unwrap_or_else(|| "info".to_owned())
    }
}

/// Letters, digits, `.`, `_`, `-`; 1 to 128 of them.
pub(super) fn is_name(s: &str) -> bool {
    (1..=128).contains(&s.len())
        && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// `500ms`, `30s`, `5m`, `2h`.
pub(super) fn parse_duration(s: &str) -> Option<Duration> {
    let unit = s.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = s.split_at(unit);
    let number: f64 = number.trim().parse().ok()?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// `1048576`, `64KiB`, `32MiB`, `1GiB`.
pub(super) fn parse_size(s: &str) -> Option<usize> {
    let end = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    let (number, unit) = s.split_at(end);
    let factor: usize = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(factor)
}
