//! Part 13: the benches are there, and the README has their table.

use anyhow::{Context as _, Result};
use spareline_tests::process::workspace;

use crate::part01_workspace::packages;

#[test]
fn part13_everything_on_the_hot_path_has_a_bench() -> Result<()> {
    let mut benches = String::new();
    for target in packages()?.values().flat_map(|p| &p.targets).filter(|t| t.is_bench()) {
        benches.push_str(&format!("{}\n{}", target.name, std::fs::read_to_string(&target.src_path)?));
    }
    for what in ["pick", "lookup", "classify", "splice", "sse", "commit", "apply", "diff", "digest"] {
        assert!(benches.contains(what), "no bench measures {what}");
    }
    let readme = std::fs::read_to_string(workspace().join("README.md")).context("README.md")?;
    for what in ["pick", "lookup", "classify", "splice"] {
        let row = readme.lines().any(|l| l.starts_with('|') && l.contains(what));
        assert!(row, "the README's table has no row for {what}");
    }
    Ok(())
}
