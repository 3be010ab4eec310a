//! Where values stand: file, environment, flags; looked up through figment, key by key.

use std::path::PathBuf;

use figment::providers::{Format as _, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::{KEYS, Mistake, Mistakes};

const PREFIX: &str = "SPARELINE_CONTROL_";

/// What a configuration is read from.
#[derive(Debug, Default)]
pub struct Sources {
    /// A TOML file; `None`: the one that `SPARELINE_CONTROL_CONFIG` names, if any.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// Flags, by key.
    pub flags: Vec<(&'static str, String)>,
}

/// The values found, and what was wrong so far.
pub(super) struct Found {
    figment: Figment,
    mistakes: Vec<Mistake>,
}

impl Sources {
    /// The environment of this process, and no file or flags.
    pub fn process_environment() -> Self {
        Self { environment: std::env::vars_os().filter_map(utf8).collect(), ..Self::default() }
    }

    /// Where state goes when nobody says: below the user's home, for root below /var/lib.
    pub(super) fn usual_state_dir(&self) -> PathBuf {
        let variable = |name: &str| {
            let found =
                self.environment.iter().find(|(n, _)| n == name).map(|(_, value)| PathBuf::from(value));
            found.filter(|path| path.is_absolute())
        };
        let root =
            std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
        let base =
            variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
        base.filter(|_| !root).unwrap_or_else(|| PathBuf::from("/var/lib")).join("spareline-control")
    }

    pub(super) fn read(self) -> Found {
        let mut mistakes = Vec::new();
        let mut environment = Pairs::new("environment");
        let mut file = self.file;
        for (name, value) in &self.environment {
            if name == "DATABASE_URL" && !value.is_empty() {
                environment.pairs.entry("database_url".to_owned()).or_insert_with(|| value.clone());
            }
            let Some(key) = name.strip_prefix(PREFIX) else { continue };
            let key = key.to_ascii_lowercase();
            if key == "config" {
                file.get_or_insert_with(|| PathBuf::from(value));
            } else if known(&key) {
                environment.pairs.insert(key, value.clone());
            } else {
                mistakes.push(unknown(&key, format!("environment variable {name}")));
            }
        }
        let mut flags = Pairs::new("flags");
        flags.pairs.extend(self.flags.into_iter().map(|(key, value)| (key.to_owned(), value)));

        let mut figment = Figment::new();
        if let Some(path) = file {
            figment = read_file(path, &mut mistakes);
        }
        Found { figment: figment.merge(environment).merge(flags), mistakes }
    }
}

fn read_file(path: PathBuf, mistakes: &mut Vec<Mistake>) -> Figment {
    let shown = path.display().to_string();
    let mistake = |key: &str, problem: String| Mistake {
        key: key.to_owned(),
        source: format!("file {shown}"),
        problem,
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(why) => {
            mistakes.push(mistake("config", format!("cannot be read: {why}")));
            return Figment::new();
        }
    };
    // Read as text, not by path: figment would search parent directories for a relative one.
    let figment = Figment::from(Named { name: format!("file {shown}"), inner: Toml::string(&text) });
    match figment.data() {
        Ok(data) => {
            for key in data.values().flat_map(Dict::keys).filter(|key| !known(key)) {
                mistakes.push(unknown(key, format!("file {shown}")));
            }
            figment
        }
        Err(why) => {
            mistakes.push(mistake("config", format!("is not TOML: {}", why.to_string().trim())));
            Figment::new()
        }
    }
}

fn known(key: &str) -> bool {
    KEYS.contains(&key)
}

fn unknown(key: &str, source: String) -> Mistake {
    let near = KEYS.iter().map(|known| (distance(known, key), known)).min().filter(|(d, _)| *d <= 3);
    let hint = near.map(|(_, name)| format!("; did you mean {name}?")).unwrap_or_default();
    Mistake { key: key.to_owned(), source, problem: format!("is not a key{hint}") }
}

/// Edits between two short words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(&b) {
            let best = (*cell + 1).min(left + 1).min(corner + usize::from(x != *y));
            corner = std::mem::replace(cell, best);
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

fn utf8((name, value): (std::ffi::OsString, std::ffi::OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}

// === impl Found ===

impl Found {
    /// The value of `key`, if it is set and can be read.
    pub(super) fn get<T>(&mut self, key: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.figment.find_value(key).ok()?;
        match scalar(&value).and_then(|text| parse(&text)) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.mistake(key, &problem);
                None
            }
        }
    }

    /// The same, or a default.
    pub(super) fn or<T>(
        &mut self,
        key: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        self.get(key, parse).unwrap_or(default)
    }

    /// Notes that something is wrong with `key`.
    pub(super) fn mistake(&mut self, key: &str, problem: &str) {
        let source = match self.figment.find_metadata(key).map(|m| m.name.as_ref()) {
            Some("environment") => format!("environment variable {PREFIX}{}", key.to_ascii_uppercase()),
            Some("flags") => format!("flag --{}", key.replace('_', "-")),
            Some(file) => file.to_owned(),
            None => "default".to_owned(),
        };
        self.mistakes.push(Mistake { key: key.to_owned(), source, problem: problem.to_owned() });
    }

    pub(super) fn finish(self) -> Result<(), Mistakes> {
        if self.mistakes.is_empty() { Ok(()) } else { Err(Mistakes(self.mistakes)) }
    }
}

/// Values are text in the environment and on the command line, so the file's numbers and booleans are read as text too.
fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(_, text) => Ok(text.clone()),
        Value::Char(_, c) => Ok(c.to_string()),
        Value::Bool(_, b) => Ok(b.to_string()),
        Value::Num(_, n) => Ok(n
            .to_i128()
            .map(|n| n.to_string())
            .or_else(|| n.to_u128().map(|n| n.to_string()))
            .or_else(|| n.to_f64().map(|n| n.to_string()))
            .unwrap_or_default()),
        _ => Err("must be a single value, not a table or a list".to_owned()),
    }
}

/// Key-value text under a name.
struct Pairs {
    name: &'static str,
    pairs: std::collections::BTreeMap<String, String>,
}

impl Pairs {
    fn new(name: &'static str) -> Self {
        Self { name, pairs: std::collections::BTreeMap::new() }
    }
}

impl Provider for Pairs {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let dict = self.pairs.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))).collect();
        Ok(Map::from([(Profile::Default, dict)]))
    }
}

/// A provider under another name.
struct Named<P> {
    name: String,
    inner: P,
}

impl<P: Provider> Provider for Named<P> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        self.inner.data()
    }
}
