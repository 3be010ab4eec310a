//! Part 13: the benches are there, the README has their table, and a release has its load.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use spareline_tests::process::{product, workspace};
use tokio::process::Command;

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

#[tokio::test]
async fn part13_the_load_of_a_release_is_answered_to_the_last_request() -> Result<()> {
    let proxy = product("spareline-proxy")?;
    let mut train = Command::new("python3");
    train.arg(workspace().join("tests/bench/train.py")).arg("--proxy").arg(&proxy);
    train.arg("--bin").arg(proxy.parent().context("no folder")?).args(["--seconds", "0.3"]);
    train.kill_on_drop(true);
    let output =
        tokio::time::timeout(Duration::from_secs(120), train.output()).await.context("it hangs")??;
    let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    ensure!(output.status.success(), "{text}");
    for what in
        ["plain", "stream", "big", "failover"].map(|w| ["http", "https"].map(|s| format!("{w:8} over {s:5}")))
    {
        for what in what {
            ensure!(text.contains(&what), "nothing of {what}:\n{text}");
        }
    }
    Ok(())
}
