//! Secrets of a registry file, read where it says they are. They are never printed.

use std::collections::{BTreeMap, BTreeSet};

use spareline_core::secret::Secret;

use super::file::{Problems, RegistryFile, Source};

/// A credential that channels list.
#[derive(Clone, Debug)]
pub(super) enum Held {
    /// The secret itself.
    Secret(Secret),
    /// The control plane has it.
    Stored(i64),
}

/// Reads the secrets of all credentials that some channel lists.
pub(super) fn read(
    file: &RegistryFile,
    environment: &dyn Fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> BTreeMap<String, Held> {
    let listed: BTreeSet<&String> = file.channels.iter().flatten().flat_map(|c| &c.credentials).collect();
    let mut held = BTreeMap::new();
    for (name, source) in file.credentials.iter().filter(|(name, _)| listed.contains(name)) {
        let path = format!("credentials.{name}");
        let text = match source {
            Source::Stored(id) => {
                held.insert(name.clone(), Held::Stored(*id));
                continue;
            }
            Source::Env(variable) => {
                environment(variable).ok_or_else(|| format!("the environment variable {variable} is not set"))
            }
            Source::File(file) => std::fs::read_to_string(file)
                .map_err(|why| format!("{} cannot be read: {why}", file.display())),
        };
        match text {
            Ok(text) if text.trim().is_empty() => problems.at_path(&path, "the secret is empty"),
            Ok(text) => drop(held.insert(name.clone(), Held::Secret(Secret::new(text.trim())))),
            Err(problem) => problems.at_path(&path, problem),
        }
    }
    held
}
