use std::{fs, path::Path, sync::Arc, time::Duration};

use figment::{Figment, providers::Format as _};
use spareline_core::{Secret, file::RegistryFile, items::Items};

use super::*;
use crate::log::{Logger, Sink};

const TWO: &str = "credentials:\n  k: {secret_file: k.key}\nchannels:\n- name: a\n  provider: openai\n  base_url: http://127.0.0.1:9/v1\n  models: [m]\n  credentials: [k]\n- name: b\n  provider: openai\n  base_url: http://127.0.0.1:9/v1\n  models: [m]\n  groups: [vip]\n";

fn shared(file: &Path) -> Arc<Shared> {
    let toml = format!("proxy_id = 'test'\nstandalone_file = '{}'\ngroups = 'vip'", file.display());
    let config = Config::from_figment(Figment::new().merge(figment::providers::Toml::string(&toml))).unwrap();
    let (sink, _guard) = Sink::start(Box::new(io::sink()));
    Arc::new(Shared::new(config, Logger::new(sink, true, false)))
}

fn found(text: &str) -> read::Found {
    let (file, _) = RegistryFile::read(text, Path::new("/etc/x")).unwrap();
    let secrets =
        file.credentials.keys().map(|name| (name.clone(), Secret::new(format!("sk-{name}")))).collect();
    read::Found { file, secrets }
}

fn make(registry: &mut Registry, text: &str) -> Items {
    let items = registry.make(found(text), &["default".into(), "vip".into()]).unwrap();
    registry.taken();
    items
}

#[test]
fn part2_standalone_the_documented_example_is_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/standalone.yaml");
    let items = make(&mut Registry::new(), &fs::read_to_string(path).unwrap());
    assert_eq!(items.channel_count(), 2);
    let (view, rejections) = spareline_core::view::View::empty(1).replace(
        &items,
        "e",
        Revision(1),
        Clock { server_time: None, now: Duration::ZERO },
    );
    assert!(rejections.is_empty(), "{rejections:?}");
    assert!(view.model_usable("default", "gpt-4o-mini", Duration::ZERO));
    assert_eq!(view.line_by_name("backup").unwrap().keys.len(), 1);
}

#[test]
fn part2_standalone_what_stays_the_same_keeps_id_and_version() {
    let mut registry = Registry::new();
    let first = make(&mut registry, TWO);
    let changed = TWO.replace("- name: b", "- name: b\n  weight: 3");
    let second = make(&mut registry, &changed);
    let delta = first.diff(&second);
    assert_eq!(delta.channels.len(), 1);
    assert_eq!(delta.channels[0].name, "b");
    assert!(delta.removed.is_empty() && delta.credentials.is_empty());
    let other = make(&mut Registry::new(), TWO);
    let ids = |items: &Items| items.channels().map(|(id, c)| (id, c.name.clone())).collect::<Vec<_>>();
    assert_eq!(ids(&other), ids(&first), "the same in every process");
}

#[test]
fn part2_standalone_a_rotated_key_is_another_credential() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("channels.yaml");
    fs::write(&path, TWO).unwrap();
    fs::write(dir.path().join("k.key"), "sk-one\n").unwrap();
    let shared = shared(&path);
    let mut source = begin(&shared).unwrap().unwrap();
    let key = |shared: &Shared| {
        let view = shared.view();
        let key = view.line_by_name("a").unwrap().keys[0].clone();
        (key.id, key.secret.expose().to_owned())
    };
    let before = key(&shared);
    fs::write(dir.path().join("k.key"), "sk-two").unwrap();
    source.take(&shared, Reading::of(&path)).unwrap();
    let after = key(&shared);
    assert_ne!(before.0, after.0);
    assert_eq!((before.1.as_str(), after.1.as_str()), ("sk-one", "sk-two"));
    assert_eq!(shared.view().revision(), Revision(2));
}

#[tokio::test(start_paused = true)]
async fn part2_standalone_a_bad_file_keeps_the_old_one_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("channels.yaml");
    fs::write(&path, TWO).unwrap();
    fs::write(dir.path().join("k.key"), "sk-one").unwrap();
    let shared = shared(&path);
    let source = begin(&shared).unwrap().unwrap();
    assert!(shared.is_ready());
    assert_eq!(shared.view().items().channel_count(), 2);
    let following = tokio::spawn(follow(shared.clone(), source));
    let pass = || tokio::time::sleep(Duration::from_secs(5));

    // Half a file, an empty one, none at all, and one with a mistake.
    for bad in [Some(&TWO[..80]), Some(""), None, Some("channels:\n- name: a\n  weight: -1\n")] {
        let failures = shared.metrics.registry_file_failures.get();
        match bad {
            Some(text) => fs::write(&path, text).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        pass().await;
        assert_eq!(shared.metrics.registry_file_failures.get(), failures + 1, "{bad:?} is told once");
        assert_eq!(shared.view().items().channel_count(), 2, "{bad:?}");
        assert!(shared.registry_age().unwrap() > Duration::from_secs(1), "{bad:?}");
    }

    fs::write(&path, TWO.replace("name: b", "name: c")).unwrap();
    pass().await;
    assert!(shared.view().line_by_name("c").is_some());
    assert!(shared.view().line_by_name("b").is_none());
    assert!(shared.registry_age().unwrap() < Duration::from_secs(1));

    // Meant: there is nothing to keep.
    fs::write(&path, "channels: []\n").unwrap();
    pass().await;
    assert_eq!(shared.view().items().channel_count(), 0);
    following.abort();
}

#[test]
fn part2_standalone_a_bad_file_at_the_start_is_a_failure_with_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("channels.yaml");
    let text = "credentials:\n  k: {secret_env: SPARELINE_TEST_NOT_SET}\n  s: {credential_id: 7}\nchannels:\n- name: a\n  provider: openai\n  base_url: http://127.0.0.1:9/v1\n  models: [m]\n  credentials: [k, s]\n";
    fs::write(&path, text).unwrap();
    let shared = shared(&path);
    let why = begin(&shared).unwrap_err().to_string();
    assert!(why.contains("channels.yaml") && why.contains("line 2, column"), "{why}");
    assert!(why.contains("SPARELINE_TEST_NOT_SET") && why.contains("line 3, column"), "{why}");
    assert_eq!(check(&shared.config).unwrap_err().to_string(), why);
    fs::write(&path, format!("{text}  wieght: 2\n")).unwrap();
    let why = check(&shared.config).unwrap_err().to_string();
    assert!(why.contains("line 10, column") && why.contains("wieght"), "{why}");
    assert!(!shared.is_ready());
}
