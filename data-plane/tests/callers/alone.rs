//! No control plane at all: from the registry on disk, and from a file of channels.

use std::time::Duration;

use crate::support::{CHAT, Provider, Registry, Reply, channel, config, start_empty, start_with};

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not come to pass");
}

#[tokio::test]
async fn part2_lkg_a_restarted_proxy_serves_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let provider = Provider::good().await;
    let keeping = || config(|c| c.state_dir = Some(dir.path().to_owned()));
    let first = start_with(Registry::new().channel(channel("a", &provider.url)), keeping()).await;
    assert_eq!(first.chat().await.status, 200);
    until("a copy", || first.shared.metrics.registry_file_writes.get() > 0).await;
    first.stop.drain.cancel();
    first.ended.await.unwrap();

    let second = start_empty(keeping());
    assert_eq!(second.admin("/readyz").await.status, 200);
    assert_eq!(second.chat().await.status, 200);
    let metrics = second.admin("/metrics").await.text();
    let age = metrics.lines().find_map(|l| l.strip_prefix("spareline_registry_age_seconds ")).unwrap();
    assert!((0.0..60.0).contains(&age.parse::<f64>().unwrap()), "{age}");
    second.stop.drain.cancel();
    second.ended.await.unwrap();
}

#[tokio::test]
async fn part2_standalone_serves_follows_the_file_and_reports_to_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("channels.yaml");
    let dead = r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#;
    let bad = Provider::start(Reply::Plain(401, "application/json", dead.into())).await;
    let good = Provider::good().await;
    std::fs::write(dir.path().join("k"), "sk-1").unwrap();
    let line = |name: &str, url: &str, priority: u32| {
        format!(
            "- name: {name}\n  provider: openai_compatible\n  base_url: {url}\n  models: [m]\n  \
             priority: {priority}\n  credentials: [{name}]\n"
        )
    };
    let keys = "credentials:\n  bad: {secret_file: k}\n  good: {secret_file: k}\nchannels:\n";
    let both = format!("{keys}{}{}", line("bad", &bad.url, 9), line("good", &good.url, 0));
    std::fs::write(&path, &both).unwrap();
    let proxy = start_empty(config(|c| c.standalone_file = Some(path.clone())));

    assert_eq!(proxy.admin("/readyz").await.status, 200);
    let seen = proxy.chat().await;
    assert_eq!((seen.status, seen.attempts()), (200, "bad:disable:401, good:ok:200"));
    assert_eq!(proxy.chat().await.attempts(), "good:ok:200", "out for us");
    assert_eq!(proxy.shared.overlays.list(proxy.shared.now()).len(), 1);
    assert!(proxy.shared.spool.is_empty(), "there is nobody to tell");

    std::fs::write(&path, both.replace("weight", "").replace("priority: 9", "priority: nine")).unwrap();
    until("the refusal", || proxy.shared.metrics.registry_file_failures.get() == 1).await;
    assert_eq!(proxy.post("/v1/chat/completions", CHAT).await.status, 200);

    std::fs::write(&path, both.replace("models: [m]\n  priority: 0", "models: [m2]\n  priority: 0")).unwrap();
    until("the change", || proxy.shared.view().revision().0 == 2).await;
    assert_eq!(proxy.post("/v1/chat/completions", &CHAT.replace("\"m\"", "\"m2\"")).await.status, 200);
    assert_eq!(proxy.shared.overlays.list(proxy.shared.now()).len(), 1, "what was learnt stays");
    proxy.stop.drain.cancel();
    proxy.ended.await.unwrap();
}
