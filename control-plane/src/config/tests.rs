use std::io::Write as _;

use super::*;

fn load(
    file: Option<&str>,
    environment: &[(&str, &str)],
    flags: &[(&'static str, &str)],
) -> Result<Config, Mistakes> {
    let held = file.map(|text| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    });
    Config::load(Sources {
        file: held.as_ref().map(|f| f.path().to_owned()),
        environment: environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        flags: flags.iter().map(|(k, v)| (*k, (*v).to_owned())).collect(),
    })
}

fn mistakes(result: Result<Config, Mistakes>) -> Vec<String> {
    result
        .err()
        .expect("mistakes")
        .0
        .iter()
        .map(|m| format!("{} | {} | {}", m.key, m.source, m.problem))
        .collect()
}

#[test]
fn part10_config_defaults_are_loopback() {
    let config = load(None, &[], &[]).unwrap();
    assert_eq!(config.admin_listen.to_string(), "127.0.0.1:7700");
    assert_eq!(config.data_listen.to_string(), "127.0.0.1:7701");
    assert!(config.database_url.is_none());
}

#[test]
fn part10_config_flags_beat_environment_beats_file() {
    let file = "admin_listen = \"127.0.0.1:1\"\ndata_listen = \"127.0.0.1:2\"\nlog_filter = \"warn\"";
    let environment =
        [("SPARELINE_CONTROL_ADMIN_LISTEN", "127.0.0.1:3"), ("SPARELINE_CONTROL_DATA_LISTEN", "127.0.0.1:4")];
    let config = load(Some(file), &environment, &[("data_listen", "127.0.0.1:5")]).unwrap();
    assert_eq!(config.admin_listen.port(), 3);
    assert_eq!(config.data_listen.port(), 5);
    assert_eq!(config.log_filter, "warn");
}

#[test]
fn part10_config_reports_every_mistake_at_once() {
    let file = "admin_lisen = \"x\"\nlog_format = \"xml\"\nshutdown_timeout = 10\ndatabase_connections = 1";
    let environment = [("SPARELINE_CONTROL_TYPO", "1"), ("SPARELINE_CONTROL_INSECURE", "perhaps")];
    let found = mistakes(load(Some(file), &environment, &[("data_listen", "7701"), ("replica_id", "a b")]));
    for (key, source, problem) in [
        ("admin_lisen", "file", "did you mean admin_listen?"),
        ("log_format", "file", "`xml` is none of"),
        ("shutdown_timeout", "file", "`10` is not a time"),
        ("database_connections", "file", "from 2 to 1000"),
        ("typo", "SPARELINE_CONTROL_TYPO", "is not a key"),
        ("insecure", "SPARELINE_CONTROL_INSECURE", "neither true nor false"),
        ("data_listen", "--data-listen", "not an address"),
        ("replica_id", "--replica-id", "letters"),
    ] {
        assert!(
            found.iter().any(|m| m.starts_with(key) && m.contains(source) && m.contains(problem)),
            "{key}: {found:#?}"
        );
    }
    assert_eq!(found.len(), 8, "{found:#?}");
}

#[test]
fn part10_config_other_than_loopback_needs_insecure() {
    let flags = [("admin_listen", "0.0.0.0:7700")];
    let found = mistakes(load(None, &[], &flags));
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("admin_listen | flag --admin-listen | is not a loopback"), "{found:?}");
    assert!(load(None, &[], &[flags[0], ("insecure", "true")]).is_ok());
}

#[test]
fn part10_config_passwords_are_never_shown() {
    let found = mistakes(load(None, &[("DATABASE_URL", "mysql://u:hunter2@h/d")], &[]));
    assert!(found[0].starts_with("database_url"), "{found:?}");
    assert!(!found[0].contains("hunter2"), "{found:?}");
    let config = load(None, &[("DATABASE_URL", "postgres://u:hunter2@h/d")], &[]).unwrap();
    assert_eq!(format!("{:?}", config.database_url), "Some(<redacted>)");
    assert_eq!(config.database_url.unwrap().expose(), "postgres://u:hunter2@h/d");
}

#[test]
fn part10_config_broken_and_missing_files_are_named() {
    let found = mistakes(load(Some("admin_listen = "), &[("SPARELINE_CONTROL_LOG_FORMAT", "xml")], &[]));
    assert!(found[0].contains("is not TOML"), "{found:?}");
    assert!(found[1].contains("log_format"), "the rest is still checked: {found:?}");
    let missing = Sources { file: Some("/nonexistent/spareline.toml".into()), ..Sources::default() };
    assert!(mistakes(Config::load(missing))[0].contains("cannot be read"));
}

#[test]
fn part10_config_example_names_every_key_and_is_the_default() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/spareline-control.toml");
    let text = std::fs::read_to_string(path).unwrap();
    // Keys whose default is "none" stand commented out; with the comment sign taken away the file must still be valid.
    let all: String = text.lines().map(|l| l.strip_prefix("#! ").unwrap_or(l).to_owned() + "\n").collect();
    for key in KEYS {
        assert!(all.lines().any(|l| l.starts_with(&format!("{key} = "))), "{key} is not in the example");
    }
    load(Some(&all), &[], &[]).unwrap();
    let example = load(Some(&text), &[], &[]).unwrap();
    let default = load(None, &[], &[]).unwrap();
    assert_eq!(example.admin_listen, default.admin_listen);
    assert_eq!(example.data_listen, default.data_listen);
    assert_eq!(example.log_filter, default.log_filter);
    assert_eq!(example.log_format, default.log_format);
    assert_eq!(example.shutdown_timeout, default.shutdown_timeout);
    assert_eq!(example.database_connections, default.database_connections);
}
