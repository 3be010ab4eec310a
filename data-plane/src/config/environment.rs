//! The environment as text: a proxy called `007` or `1e5` stays what it is called.

use figment::{
    Metadata, Profile, Provider,
    value::{Dict, Map, Value},
};

use super::ENV_PREFIX;

/// What a variable of our prefix may name beside keys: the file, which the flags read.
const NO_KEY: &str = "config";

/// Values by key.
pub(super) struct Environment(Vec<(String, String)>);

impl Environment {
    /// Of this process.
    pub(super) fn of_process() -> Self {
        Self::of(figment::providers::Env::prefixed(ENV_PREFIX).iter().map(|(k, v)| (k.into_string(), v)))
    }

    /// Of these, without the prefix.
    pub(super) fn of(variables: impl Iterator<Item = (String, String)>) -> Self {
        Self(variables.filter(|(key, _)| key != NO_KEY).collect())
    }
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named("environment")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let dict = self.0.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))).collect();
        Ok(Map::from([(Profile::Default, dict)]))
    }
}
