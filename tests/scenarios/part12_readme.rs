//! Part 12: the commands of the README do what it says.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use spareline_tests::{
    process::{product, workspace},
    readme,
    stack::Plan,
    tools,
};
use tokio::process::Command;

#[tokio::test]
async fn part12_readme_blocks_run_as_they_stand() -> Result<()> {
    let page = std::fs::read_to_string(workspace().join("README.md")).context("README.md")?;
    let blocks = readme::blocks(&page);
    ensure!(!blocks.is_empty(), "README.md has no block marked `sh test`");
    let stack = crate::support::demo(Plan { proxies: 2, embedded: true, ..Plan::default() }).await?;
    let [one, two] = &stack.proxies[..] else { anyhow::bail!("two proxies were planned") };

    let mut script = String::from("set -eu -o pipefail\n");
    for block in &blocks {
        script.push_str(&format!("echo '== README.md:{}'\n{}", block.line, block.script));
    }
    let binaries = product("spareline-control")?.parent().map(PathBuf::from).context("no folder")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [tools::directory().join("venv/bin"), binaries];
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path)))?;
    let mut bash = Command::new("bash");
    let file = stack.directory().join("readme.sh");
    std::fs::write(&file, script)?;
    bash.arg(file).current_dir(workspace()).env("PATH", path);
    bash.env("ADMIN", stack.control.admin.to_string())
        .env("CONTROL_PID", stack.control.process.pid()?.to_string());
    for (name, addr) in [
        ("PROXY1", one.http),
        ("PROXY2", two.http),
        ("PROXY1_ADMIN", one.admin),
        ("PROXY2_ADMIN", two.admin),
        ("PROVIDER", stack.provider.addr()),
    ] {
        bash.env(name, format!("http://{addr}"));
    }
    bash.stdin(Stdio::null()).kill_on_drop(true);
    let output =
        tokio::time::timeout(Duration::from_secs(120), bash.output()).await.context("a block hangs")??;
    let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    ensure!(output.status.success(), "a block of README.md failed (the last one named):\n{text}");
    Ok(())
}
