//! Part 1: the workspace's layout and the arrows between its crates.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use spareline_tests::process::workspace;

/// Which of our crates each of our crates may name. Tests of a crate (dev-dependencies) keep to the same arrows.
const ARROWS: [(&str, &[&str]); 6] = [
    ("spareline-proto", &[]),
    ("spareline-core", &["spareline-proto"]),
    ("spareline-upstream", &["spareline-core", "spareline-proto"]),
    ("spareline-proxy", &["spareline-core", "spareline-proto", "spareline-upstream"]),
    ("spareline-control", &["spareline-core", "spareline-proto", "spareline-upstream"]),
    (
        "spareline-tests",
        &["spareline-control", "spareline-core", "spareline-proto", "spareline-proxy", "spareline-upstream"],
    ),
];

/// What the pure core must not know: runtimes, sockets, databases, clocks of others.
const NOT_IN_CORE: [&str; 9] =
    ["tokio", "hyper", "hyper-util", "reqwest", "tonic", "sqlx", "rustls", "socket2", "tracing"];

/// The crates of the workspace by name, as cargo sees them.
pub(crate) fn packages() -> Result<BTreeMap<String, Package>> {
    let manifest = workspace().join("Cargo.toml");
    let metadata = MetadataCommand::new()
        .manifest_path(manifest)
        .no_deps()
        .other_options(vec!["--locked".into()])
        .exec()?;
    Ok(metadata.packages.into_iter().map(|p| (p.name.to_string(), p)).collect())
}

#[test]
fn part01_crates_keep_their_arrows() -> Result<()> {
    let packages = packages()?;
    let expected: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        packages.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        expected,
        "the crates of the workspace"
    );
    for (name, allowed) in ARROWS {
        let package = packages.get(name).context(name)?;
        let named = package.dependencies.iter().map(|d| d.name.as_str()).filter(|d| expected.contains(d));
        for dependency in named {
            assert!(allowed.contains(&dependency), "{name} must not depend on {dependency}");
        }
    }
    Ok(())
}

#[test]
fn part01_core_stays_pure() -> Result<()> {
    let packages = packages()?;
    let core = packages.get("spareline-core").context("spareline-core")?;
    for dependency in core.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal) {
        assert!(
            !NOT_IN_CORE.contains(&dependency.name.as_str()),
            "core must not depend on {}",
            dependency.name
        );
        if dependency.name == "spareline-proto" {
            assert!(!dependency.features.iter().any(|f| f == "services"), "core must not pull in gRPC");
        }
    }
    Ok(())
}

#[test]
fn part01_only_the_control_plane_knows_sql() -> Result<()> {
    for (name, package) in packages()? {
        let sql = package.dependencies.iter().any(|d| d.name == "sqlx");
        assert!(!sql || name == "spareline-control" || name == "spareline-tests", "{name} depends on sqlx");
    }
    Ok(())
}

#[test]
fn part01_every_crate_takes_the_workspaces_lints() -> Result<()> {
    for (name, package) in packages()? {
        let manifest = std::fs::read_to_string(&package.manifest_path)?;
        // Generated code has lints of its own.
        let inherits = manifest.contains("[lints]\nworkspace = true");
        assert!(inherits || name == "spareline-proto", "{name} does not take the workspace's lints");
        assert!(package.publish == Some(Vec::new()), "{name} could be published by accident");
    }
    Ok(())
}

#[test]
fn part01_nothing_else_stands_at_the_top() -> Result<()> {
    let allowed = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "README.md",
        "clippy.toml",
        "control-plane",
        "data-plane",
        "deny.toml",
        "deploy",
        "migrations",
        "proto",
        "rustfmt.toml",
        "target",
        "tests",
    ];
    for entry in std::fs::read_dir(workspace())? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        assert!(
            name.starts_with('.') || allowed.contains(&name.as_ref()),
            "{name} stands at the top of the workspace"
        );
    }
    Ok(())
}
