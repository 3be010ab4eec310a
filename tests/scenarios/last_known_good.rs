//! Proxies that start without a control plane: from the registry on disk, or from a file of channels.

use std::time::Duration;

use anyhow::{Context as _, Result};
use spareline_tests::{
    http::Call,
    process::Launch,
    stack::{Plan, Proxy, SOON, Stack},
};

use crate::support::MODEL;

const SECRET: &str = "sk-last-known-good-canary";

#[tokio::test]
async fn part2_lkg_a_killed_proxy_starts_without_a_control_plane_and_resumes_without_a_snapshot() -> Result<()>
{
    let mut stack = Stack::start(Plan { proxies: 1, ..Plan::default() }).await?;
    stack.create(stack.channel("one", MODEL), &[SECRET]).await?;
    // What one proxy has, the next one is given at once: the copy it keeps is not of the time before.
    stack.settled().await?;
    let state = stack.directory().join("state");
    let arguments = ["--state-dir".to_owned(), state.to_str().context("path")?.to_owned()];
    let mut first = Proxy::start("kept", stack.control.data, &arguments).await?;
    first.process.wait_for_log(SOON, |l| l.is("registry_applied")).await?;
    let start = std::time::Instant::now();
    while !state.join("registry.a.lkg").exists() {
        anyhow::ensure!(start.elapsed() < SOON, "no copy was written: {}", first.process.log_text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.process.kill().await?;
    stack.control.crash().await?;

    let second = Proxy::start("kept", stack.control.data, &arguments).await?;
    assert!(second.ready().await?, "not ready at once: {}", second.process.log_text());
    assert_eq!(Call::chat(MODEL).send(second.http).await?.status, 200);
    let restored = second.process.wait_for_log(SOON, |l| l.is("registry_restored")).await?;
    assert_eq!(restored.field("channels"), &1, "{}", restored.text);

    stack.control.restart().await?;
    let connected = second.process.wait_for_log(SOON, |l| l.is("watch_connected")).await?;
    assert_eq!(connected.field("resumed"), &true, "{}", connected.text);
    stack.create(stack.channel("two", "other-model"), &["sk-2"]).await?;
    second.process.wait_for_log(SOON, |l| l.is("registry_applied")).await?;
    assert!(
        !second.process.log().iter().any(|l| *l.field("snapshot") == true),
        "a snapshot, though nothing had changed"
    );
    assert_eq!(Call::chat("other-model").send(second.http).await?.status, 200);

    for entry in std::fs::read_dir(&state)? {
        let bytes = std::fs::read(entry?.path())?;
        assert!(!bytes.windows(SECRET.len()).any(|w| w == SECRET.as_bytes()), "a secret in the open");
    }
    assert!(!second.process.log_text().contains(SECRET));
    Ok(())
}

#[tokio::test]
async fn part2_standalone_a_file_is_enough_and_a_bad_one_is_told_with_lines() -> Result<()> {
    let stack = Stack::start(Plan { proxies: 0, ..Plan::default() }).await?;
    let file = stack.directory().join("channels.yaml");
    std::fs::write(stack.directory().join("key"), SECRET)?;
    let text = format!(
        "credentials:\n  k: {{secret_file: key}}\nchannels:\n- name: one\n  provider: openai\n  base_url: {}\n  \
         models: [{MODEL}]\n  credentials: [k]\n",
        stack.provider.base_url()
    );
    std::fs::write(&file, &text)?;
    let arguments = ["--standalone".to_owned(), file.to_str().context("path")?.to_owned()];
    let nobody = "127.0.0.1:9".parse()?;
    let proxy = Proxy::start("alone", nobody, &arguments).await?;
    assert!(proxy.ready().await?);
    assert_eq!(Call::chat(MODEL).send(proxy.http).await?.status, 200);

    std::fs::write(&file, text.replace("provider: openai", "provider: openia"))?;
    let refused = proxy.process.wait_for_log(SOON, |l| l.is("channels_file_refused")).await?;
    assert!(refused.text.contains("line 5, column"), "{}", refused.text);
    assert_eq!(Call::chat(MODEL).send(proxy.http).await?.status, 200, "what was in force stays");

    let check =
        Launch::product("check", "spareline-proxy")?.arguments(["--check-config"]).arguments(&arguments);
    let (status, said) = check.run(SOON).await?;
    assert!(!status.success() && said.contains("line 5, column"), "{said}");

    let mark = proxy.process.mark();
    std::fs::write(&file, text.replace(MODEL, "other-model"))?;
    proxy.process.wait_for_log_after(mark, SOON, |l| l.is("registry_applied")).await?;
    assert_eq!(Call::chat("other-model").send(proxy.http).await?.status, 200);
    assert_eq!(Call::chat(MODEL).send(proxy.http).await?.status, 404);
    assert!(!proxy.process.log_text().contains("watch_lost"), "there is nobody to watch");
    assert!(!proxy.process.log_text().contains(SECRET));
    Ok(())
}
