//! Where the server's programs are: the distribution's directories, highest version first, then PATH.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{PostgresError, Result};

/// Parents of versioned directories, and what stands between the version and `bin`.
const PLACES: &[(&str, &str)] = &[
    ("/usr/lib/postgresql", ""),          // Debian, Ubuntu
    ("/usr", "pgsql-"),                   // the PGDG packages for Red Hat and its kin
    ("/opt/homebrew/opt", "postgresql@"), // Homebrew
    ("/usr/local/opt", "postgresql@"),
    ("/usr/libexec", "postgresql"), // Alpine
];

/// The directory of `initdb` and `postgres`, of this major version where one is asked for.
pub(super) fn find(version: Option<&str>) -> Result<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for (parent, prefix) in PLACES {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(major) = name.to_str().and_then(|n| n.strip_prefix(prefix)).and_then(|n| n.parse().ok())
            else {
                continue;
            };
            for dir in [entry.path().join("bin"), entry.path()] {
                if complete(&dir) {
                    found.push((major, dir));
                    break;
                }
            }
        }
    }
    found.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    let wanted = |major: u32| version.is_none_or(|v| v == major.to_string());
    if let Some((_, dir)) = found.into_iter().find(|(major, _)| wanted(*major)) {
        return Ok(dir);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|dir| complete(dir) && version.is_none_or(|v| major_of(dir).as_deref() == Some(v)))
        .ok_or(PostgresError::NoBinaries)
}

fn complete(dir: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| dir.join(program).is_file())
}

fn major_of(dir: &Path) -> Option<String> {
    let out = Command::new(dir.join("postgres")).arg("--version").output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?; // postgres (PostgreSQL) 15.18 (...)
    let version = text.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(version.split('.').next()?.to_owned())
}
