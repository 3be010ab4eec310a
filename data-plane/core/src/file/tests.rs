use std::path::PathBuf;

use super::*;

fn read(text: &str) -> Result<RegistryFile, Vec<String>> {
    RegistryFile::read(text, Path::new("/etc/x"))
        .map(|(file, _)| file)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

#[test]
fn part5_file_reads_the_example() {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/examples/registry.yaml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let file = read(&text).unwrap();
    let names: Vec<&str> = file.channels.iter().flatten().map(|c| c.channel.name.as_str()).collect();
    assert_eq!(names, ["mock-primary", "mock-bad-key", "mock-network-unreachable"]);
    assert!(file.policies.is_some());
}

#[test]
fn part5_file_names_every_mistake_with_its_line() {
    let problems = read(
        "credentials:\n  a: {secret_env: A}\n  b: {secret: sk-123}\n  c: {}\nchannels:\n\
         - name: '42'\n  provider: openia\n  base_url: ftp://x\n  models: [m]\n  credentials: [a, a, d]\n\
         - name: ok\n  provider: openai\n  base_url: https://api.example.com\n  models: [m]\n  weight: -1\n  options: {api_version: x}\n\
         - name: ok\n  provider: openai\n  base_url: https://u:p@api.example.com\n  models: [m]\n\
         policies:\n- group: vip\n  fleet: {auto_disable: false}\nextra: 1\n",
    )
    .unwrap_err();
    let expected = [
        ("line 3", "credentials.b.secret", "do not belong"),
        ("line 4", "credentials.c", "must be one of"),
        ("line 6", "channels[0].name", ""),
        ("line 7", "channels[0].provider", ""),
        ("line 8", "channels[0].base_url", ""),
        ("line 10", "channels[0].credentials[1]", "twice"),
        ("line 10", "channels[0].credentials[2]", "no credential `d`"),
        ("line 15", "channels[1].weight", "from 0 to"),
        ("line 16", "channels[1].options.api_version", ""),
        ("line 17", "channels[2].name", "is the name of channels[1] too"),
        ("line 19", "channels[2].base_url", ""),
        ("line 23", "policies[0].fleet", ""),
        ("line 24", "extra", "unknown field"),
    ];
    for (line, path, what) in expected {
        let hit = problems.iter().any(|p| {
            p.starts_with(&format!("{line},")) && p.contains(&format!(": {path}")) && p.contains(what)
        });
        assert!(hit, "{line} {path} {what}\n{problems:#?}");
    }
    assert!(!problems.iter().any(|p| p.contains("sk-123") || p.contains("u:p")), "{problems:#?}");
}

#[test]
fn part5_file_secret_files_stand_beside_it() {
    let file =
        read("credentials:\n  a: {secret_file: keys/a}\n  b: {credential_id: 7, fingerprint: x}\n").unwrap();
    assert_eq!(file.credentials["a"], Source::File("/etc/x/keys/a".into()));
    assert_eq!(file.credentials["b"], Source::Stored(7));
    assert!(file.channels.is_none() && file.policies.is_none());
    for nothing in ["", "channels:\n", "channels:\n#- name: a\npolicies: # none\n"] {
        let file = read(nothing).unwrap();
        assert!(file.channels.is_none() && file.policies.is_none(), "{nothing}");
    }
    assert!(read("channels: []\n").unwrap().channels.is_some_and(|channels| channels.is_empty()));
    assert!(read("- a\n").unwrap_err()[0].contains("must be a mapping"));
}

#[test]
fn part5_file_tells_what_can_only_be_a_mistake_and_gives_no_advice_to_programmers() {
    let text = "channels:\n- name: a\n  provider: openai\n  models: [m]\n  base_url: https://h/v1/chat/completions\n";
    let problems = read(text).unwrap_err();
    assert!(
        problems[0].starts_with("line 5, column 13: channels[0].base_url: ends in /chat/comp"),
        "{problems:?}"
    );
    for (text, wanted) in [
        ("channels: []\nchannels: []\n", "line 2, column 1: duplicate mapping key: channels"),
        ("channels: []\n---\nchannels: []\n", "line 3, column 1: multiple YAML documents detected"),
    ] {
        assert_eq!(read(text).unwrap_err(), [wanted]);
    }
}
