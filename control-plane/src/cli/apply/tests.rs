use std::sync::Mutex;

use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::*;
use crate::admin::tests::admin;
use crate::cli::{Export, export};
use spareline_proto::admin::v1::channel_admin_service_server::ChannelAdminServiceServer;
use spareline_proto::admin::v1::policy_admin_service_server::PolicyAdminServiceServer;

const FILE: &str = "\
credentials:
  team: {secret_env: TEAM_KEY}
  spare: {secret_file: spare.key}
channels:
  - name: one
    provider: openai
    base_url: https://api.example.com/v1
    models: [gpt, {model: small, upstream_model: tiny}]
    credentials: [team, spare]
    labels: {zone: eu}
    attempt_policy: {idle_timeout: 90s}
  - name: two
    provider: openai
    base_url: https://api.example.com/v1
    groups: [vip, default]
    models: [gpt]
    weight: 0
    credentials: [team]
  - name: elsewhere
    provider: openai
    base_url: http://127.0.0.1:9/v1
    models: [gpt]
    credentials: [team]
policies:
  - max_attempts: 4
    fleet: {throttle_default: 2m}
  - group: vip
    last_resort: false
";

/// A control plane, a folder, an environment.
struct Bench {
    admin: String,
    folder: tempfile::TempDir,
    environment: Mutex<BTreeMap<String, String>>,
}

impl Bench {
    async fn new() -> Self {
        let (admin, _) = admin().await;
        let rollouts = crate::admin::Rollouts::new(admin.store_for_tests(), Default::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(
            Server::builder()
                .add_service(ChannelAdminServiceServer::new(admin.clone()))
                .add_service(PolicyAdminServiceServer::new(admin))
                .add_service(rollouts.into_server())
                .serve_with_incoming(TcpIncoming::from(listener)),
        );
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("spare.key"), "sk-canary-spare\n").unwrap();
        let environment = Mutex::new(BTreeMap::from([("TEAM_KEY".to_owned(), "sk-canary-team".to_owned())]));
        Self { admin: format!("http://{address}"), folder, environment }
    }

    async fn run(&self, text: &str, dry_run: bool, prune: bool) -> Result<String, Failure> {
        let file = self.folder.path().join("registry.yaml");
        std::fs::write(&file, text).unwrap();
        let environment = |name: &str| self.environment.lock().unwrap().get(name).cloned();
        let mut out = Vec::new();
        let what = Apply {
            file: Some(file),
            rollout: None,
            admin: self.admin.clone(),
            dry_run,
            prune: if prune { Prune::Some } else { Prune::Nothing },
            environment: &environment,
        };
        apply(what, &mut out).await?;
        Ok(String::from_utf8(out).unwrap())
    }

    async fn apply(&self, text: &str) -> String {
        self.run(text, false, false).await.unwrap()
    }

    async fn registry(&self) -> Registry {
        Client::connect(&self.admin).await.unwrap().registry().await.unwrap()
    }
}

#[tokio::test]
async fn part5_apply_makes_it_so_and_the_second_run_changes_nothing() {
    let bench = Bench::new().await;
    let first = bench.apply(FILE).await;
    assert!(first.contains("+ channel one") && first.contains("5 to create, 0 to change"), "{first}");
    assert!(!first.contains("sk-canary"), "{first}");
    let registry = bench.registry().await;
    let one = &registry.channels["one"];
    let two = &registry.channels["two"];
    assert_eq!(one.credential_ids.len(), 2);
    assert_eq!(two.credential_ids, one.credential_ids[..1], "named once, listed by both");
    assert_eq!((two.weight, two.groups.len()), (Some(0), 2));
    assert_ne!(
        registry.channels["elsewhere"].credential_ids[0], two.credential_ids[0],
        "another host, another one"
    );
    assert_eq!(registry.policies["vip"].last_resort, Some(false));

    let second = bench.apply(FILE).await;
    assert!(second.contains("0 to create, 0 to change, 0 to delete, 5 unchanged"), "{second}");
    assert_eq!(bench.registry().await.channels, registry.channels, "not even a revision");
}

#[tokio::test]
async fn part5_apply_shows_what_differs_and_dry_run_changes_nothing() {
    let bench = Bench::new().await;
    let dry = bench.run(FILE, true, false).await.unwrap();
    assert!(dry.contains("+ channel one") && dry.contains("nothing was changed"), "{dry}");
    assert!(bench.registry().await.channels.is_empty());
    bench.apply(FILE).await;
    let before = bench.registry().await;

    let changed = FILE
        .replace("weight: 0", "weight: 3")
        .replace("idle_timeout: 90s", "idle_timeout: 2m")
        .replace("    labels: {zone: eu}\n", "");
    let dry = bench.run(&changed, true, false).await.unwrap();
    for line in [
        "~ channel one",
        "    attempt_policy.idle_timeout: 90s -> 2m",
        "    labels.zone: eu -> (unset)",
        "~ channel two",
        "    weight: 0 -> 3",
        "0 to create, 2 to change, 0 to delete, 3 unchanged",
    ] {
        assert!(dry.lines().any(|l| l == line), "{line}\n{dry}");
    }
    assert_eq!(bench.registry().await.channels, before.channels);
    bench.apply(&changed).await;
    let after = bench.registry().await;
    assert_eq!(after.channels["two"].weight, Some(3));
    assert!(after.channels["one"].labels.is_empty());
    assert_eq!(after.channels["one"].credential_ids, before.channels["one"].credential_ids);
}

#[tokio::test]
async fn part5_apply_rotates_where_the_secret_changed() {
    let bench = Bench::new().await;
    bench.apply(FILE).await;
    let before = bench.registry().await;
    bench.environment.lock().unwrap().insert("TEAM_KEY".into(), "sk-canary-new".into());
    let shown = bench.apply(FILE).await;
    assert!(shown.contains("team (new)") && !shown.contains("sk-canary"), "{shown}");
    let after = bench.registry().await;
    let (was, is) = (&before.channels["one"].credential_ids, &after.channels["one"].credential_ids);
    assert!(is[0] != was[0] && is[1] == was[1], "{was:?} {is:?}");
    assert_eq!(after.channels["two"].credential_ids, is[..1]);
    let again = bench.apply(FILE).await;
    assert!(again.contains("5 unchanged"), "{again}");

    let swapped = FILE.replace("[team, spare]", "[spare, team]");
    bench.apply(&swapped).await;
    let ids = &bench.registry().await.channels["one"].credential_ids;
    assert_eq!([ids[1], ids[0]], is[..], "the order is the rank");
}

#[tokio::test]
async fn part5_apply_moves_channels_that_share_a_credential() {
    let bench = Bench::new().await;
    bench.apply(FILE).await;
    let before = bench.registry().await;
    let moved = FILE.replace("https://api.example.com/v1", "https://moved.example.com/v1");
    bench.apply(&moved).await;
    let after = bench.registry().await;
    let (one, two) = (&after.channels["one"], &after.channels["two"]);
    assert_eq!(one.credential_ids.len(), 2);
    assert_eq!(two.credential_ids, one.credential_ids[..1], "still shared");
    assert_ne!(two.credential_ids, before.channels["two"].credential_ids, "another account");
    let again = bench.apply(&moved).await;
    assert!(again.contains("5 unchanged"), "{again}");
}

#[tokio::test]
async fn part5_apply_prunes_only_when_asked() {
    let bench = Bench::new().await;
    bench.apply(FILE).await;
    let less = FILE.split("  - name: two").next().unwrap().to_owned()
        + "policies:\n  - max_attempts: 4\n    fleet: {throttle_default: 2m}\n";
    let kept = bench.apply(&less).await;
    assert!(kept.contains("channel two is not in the file and stays"), "{kept}");
    assert_eq!(bench.registry().await.channels.len(), 3);
    let pruned = bench.run(&less, false, true).await.unwrap();
    for line in ["- channel two", "- channel elsewhere", "- policy of group vip"] {
        assert!(pruned.lines().any(|l| l == line), "{line}\n{pruned}");
    }
    let registry = bench.registry().await;
    assert_eq!(registry.channels.keys().collect::<Vec<_>>(), ["one"]);
    assert_eq!(registry.policies.keys().collect::<Vec<_>>(), [""]);
    let silent = bench.run("policies: []\n", false, true).await.unwrap();
    assert!(
        silent.contains("0 to delete"),
        "what a file says nothing about stays, and so does the global policy: {silent}"
    );
    assert_eq!(bench.registry().await.channels.len(), 1);
}

#[tokio::test]
async fn part5_apply_removes_all_there_is_only_when_all_is_said() {
    let bench = Bench::new().await;
    bench.apply(FILE).await;
    for empty in ["channels: []\n", "policies: []\n"] {
        for dry_run in [true, false] {
            let failure = bench.run(empty, dry_run, true).await.unwrap_err();
            let told = failure.to_string();
            assert!(told.contains("--prune-all") && told.contains("nothing was changed"), "{empty}: {told}");
            assert_eq!(failure.exit_code(), 2);
        }
    }
    for nothing in ["", "# nothing\n", "credentials: {}\n", "channels:\n", "policies:\n"] {
        let kept = bench.run(nothing, false, true).await.unwrap();
        assert!(kept.contains("0 to delete"), "{nothing}: {kept}");
    }
    let registry = bench.registry().await;
    assert_eq!((registry.channels.len(), registry.policies.len()), (3, 2));
    let file = bench.folder.path().join("registry.yaml");
    std::fs::write(&file, "channels: []\n").unwrap();
    let environment = |_: &str| None;
    let what = Apply {
        file: Some(file),
        rollout: None,
        admin: bench.admin.clone(),
        dry_run: false,
        prune: Prune::All,
        environment: &environment,
    };
    let mut out = Vec::new();
    apply(what, &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("- channel one") && out.contains("3 to delete"), "{out}");
    assert!(bench.registry().await.channels.is_empty());
}

#[tokio::test]
async fn part5_apply_reports_every_mistake_and_changes_nothing() {
    let bench = Bench::new().await;
    let broken = FILE
        .replace("weight: 0", "weight: -1")
        .replace("provider: openai\n    base_url: http://127", "provider: openia\n    base_url: http://127");
    let failure = bench.run(&broken, false, false).await.unwrap_err();
    assert_eq!(failure.exit_code(), 2);
    let text = failure.to_string();
    assert!(text.contains("line 17") && text.contains("channels[1].weight"), "{text}");
    assert!(text.contains("line 20") && text.contains("channels[2].provider"), "{text}");

    bench.environment.lock().unwrap().clear();
    std::fs::remove_file(bench.folder.path().join("spare.key")).unwrap();
    let text = bench.run(FILE, false, false).await.unwrap_err().to_string();
    assert!(text.contains("TEAM_KEY is not set") && text.contains("spare.key cannot be read"), "{text}");
    assert!(text.contains("line 2") && text.contains("line 3"), "{text}");

    let stored = "credentials: {a: {credential_id: 4711}}\nchannels:\n- {name: a, provider: openai, base_url: 'https://x.example.com', models: [m], credentials: [a]}\n";
    let failure = bench.run(stored, false, false).await.unwrap_err();
    assert_eq!(failure.exit_code(), 2, "{failure}");
    assert!(failure.to_string().contains("line 3") && failure.to_string().contains("4711"), "{failure}");
    assert!(bench.registry().await.channels.is_empty());
}

#[tokio::test]
async fn part5_apply_says_when_nobody_answers() {
    let environment = |_: &str| None;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("registry.yaml");
    std::fs::write(&file, "channels: []\n").unwrap();
    let what = |admin: &str| Apply {
        file: Some(file.clone()),
        rollout: None,
        admin: admin.into(),
        dry_run: false,
        prune: Prune::Nothing,
        environment: &environment,
    };
    let failure = apply(what("http://127.0.0.1:9"), &mut Vec::new()).await.unwrap_err();
    assert_eq!(failure.exit_code(), 1);
    assert!(failure.to_string().contains("no control plane answers at http://127.0.0.1:9"), "{failure}");
    let failure = apply(what("not a url"), &mut Vec::new()).await.unwrap_err();
    assert_eq!(failure.exit_code(), 2, "{failure}");
}

#[tokio::test]
async fn part6_export_comes_back_as_a_no_op() {
    let bench = Bench::new().await;
    bench.apply(FILE).await;
    let mut out = Vec::new();
    export(Export { admin: bench.admin.clone() }, &mut out).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains("sk-canary"), "{text}");
    let before = bench.registry().await;
    let again = bench.run(&text, false, true).await.unwrap_or_else(|failure| panic!("{failure}\n{text}"));
    assert!(again.contains("0 to create, 0 to change, 0 to delete, 5 unchanged"), "{again}\n{text}");
    assert_eq!(bench.registry().await.channels, before.channels);
    let empty = Bench::new().await;
    let mut out = Vec::new();
    export(Export { admin: empty.admin.clone() }, &mut out).await.unwrap();
    assert!(empty.apply(&String::from_utf8(out).unwrap()).await.contains("0 unchanged"));
}

#[tokio::test]
async fn part6_apply_stages_what_differs() {
    let bench = Bench::new().await;
    bench.apply(FILE).await;
    let canary = bench.folder.path().join("canary.yaml");
    let stages = "description: try the other model\nstages: [{percent: 10, bake_time: 5m, gate: {min_attempts: 50}}, {percent: 100}]\n";
    let environment = |name: &str| bench.environment.lock().unwrap().get(name).cloned();
    let run = async |file: Option<&str>, canary_text: &str, dry_run| {
        std::fs::write(&canary, canary_text).unwrap();
        let path = file.map(|text| {
            let path = bench.folder.path().join("registry.yaml");
            std::fs::write(&path, text).unwrap();
            path
        });
        let mut out = Vec::new();
        let what = Apply {
            file: path,
            rollout: Some(canary.clone()),
            admin: bench.admin.clone(),
            dry_run,
            prune: Prune::Nothing,
            environment: &environment,
        };
        apply(what, &mut out).await.map(|()| String::from_utf8(out).unwrap())
    };
    assert!(run(Some(FILE), stages, false).await.unwrap().contains("nothing to roll out"));
    let changed = FILE.replace("upstream_model: tiny", "upstream_model: tinier");
    let shown = run(Some(&changed), stages, true).await.unwrap();
    assert!(shown.contains("dry run") && shown.contains("stage 0, 10 %"), "{shown}");
    let started = run(Some(&changed), stages, false).await.unwrap();
    assert!(started.contains("started"), "{started}");
    let registry = bench.registry().await;
    assert_eq!(registry.channels["one"].models[1].upstream_model, "tiny", "not the registry yet");
    // Meanwhile the file as it was still matches, and its channel is the rollout's.
    assert!(bench.apply(FILE).await.contains("0 to change"));
    assert!(bench.run(&changed, false, false).await.is_err());
    // The changes may stand in the rollout's file, with a key of their own.
    let own = "stages: [{percent: 100}]\ncredentials: {new: {secret_env: NEW_KEY}}\nchannels:\n  - {name: elsewhere, provider: openai, \
base_url: 'http://127.0.0.1:9/v1', models: [gpt], credentials: [new]}\n";
    bench.environment.lock().unwrap().insert("NEW_KEY".into(), "sk-canary-new".into());
    let started = run(None, own, false).await.unwrap();
    assert!(started.contains("started"), "{started}");
    let wrong = run(None, "stages: [{percent: ten}]\nstate: active\n", false).await.unwrap_err().to_string();
    assert!(wrong.contains("percent") && wrong.contains("state"), "{wrong}");
}
