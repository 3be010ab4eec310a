use super::*;

fn read(toml: &str) -> Result<Config, Invalid> {
    Config::from_figment(Figment::new().merge(Toml::string(toml)))
}

fn mistakes(toml: &str) -> Vec<String> {
    read(toml).unwrap_err().0.iter().map(ToString::to_string).collect()
}

#[test]
fn part10_an_empty_configuration_has_the_documented_defaults() {
    let config = read("").unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.admin_listen.to_string(), "127.0.0.1:8081");
    assert_eq!(config.control_plane.as_str(), "http://127.0.0.1:7701/");
    assert_eq!(config.groups, [Arc::from("default")]);
    assert_eq!(config.body_limit, 32 << 20);
    assert_eq!(config.body_memory, 512 << 20);
    assert_eq!(config.drain_timeout, Duration::from_secs(30));
    assert!(config.proxy_id.ends_with("-8080"), "{}", config.proxy_id);
}

#[test]
fn part10_the_documented_example_is_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/examples/spareline-proxy.toml");
    let example = Config::load(&Flags { config: Some(path.into()), ..Flags::default() }).unwrap();
    let defaults = read("proxy_id = 'checkout-1'\n[labels]\nzone = 'a'").unwrap();
    assert_eq!(example, defaults, "the example shows the defaults");
}

#[test]
fn part10_every_mistake_is_reported_at_once_with_its_key() {
    let found = mistakes(
        "listen = 'here'\nadmin_listen = '0.0.0.0:1'\ncontrol_plane = 'ftp://x'\nworkers = -1\nbody_limit = '1TB'\n\
         drain_timeout = '5 parsecs'\nlog_format = 'xml'\ngroup = 'a b'\ninsecure = 'perhaps'\nlisten_addr = 1\n\
         labels = 3\ngroups = [1]",
    );
    let keys = [
        "insecure",
        "listen",
        "admin_listen",
        "control_plane",
        "group",
        "groups",
        "labels",
        "workers",
        "log_format",
        "body_limit",
        "drain_timeout",
        "listen_addr",
    ];
    for key in keys {
        assert!(found.iter().any(|m| m.starts_with(&format!("{key}:"))), "{key} is missing in {found:#?}");
    }
    assert_eq!(found.len(), keys.len(), "{found:#?}");
}

#[test]
fn part10_beyond_loopback_needs_insecure() {
    assert!(mistakes("listen = '0.0.0.0:8080'")[0].contains("insecure"));
    assert!(mistakes("control_plane = 'http://10.0.0.1:7701'")[0].contains("insecure"));
    let config =
        read("listen = '0.0.0.0:8080'\ncontrol_plane = 'http://10.0.0.1:7701'\ninsecure = true").unwrap();
    assert_eq!(config.listen.port(), 8080);
    assert!(read("listen = '[::1]:8080'\ncontrol_plane = 'http://[::1]:7701'").is_ok());
}

#[test]
fn part10_flags_win_and_broken_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("proxy.toml");
    std::fs::write(&path, "listen = '127.0.0.1:1'\ngroups = ['a', 'b']").unwrap();
    let flags = Flags {
        config: Some(path.clone()),
        listen: Some("127.0.0.1:2".into()),
        groups: Some("c, d".into()),
        ..Flags::default()
    };
    let config = Config::load(&flags).unwrap();
    assert_eq!(config.listen.port(), 2);
    assert_eq!(config.groups.len(), 3);

    std::fs::write(&path, "listen = ").unwrap();
    let error = Config::load(&Flags { config: Some(path), ..Flags::default() }).unwrap_err().to_string();
    assert!(error.contains("proxy.toml"), "{error}");
    let missing = Flags { config: Some(dir.path().join("no.toml")), ..Flags::default() };
    assert!(Config::load(&missing).unwrap_err().to_string().contains("no.toml"));
}

#[test]
fn sizes_and_durations_read_as_written() {
    assert_eq!(keys::parse_size("64KiB"), Some(65_536));
    assert_eq!(keys::parse_size("17"), Some(17));
    assert_eq!(keys::parse_size("1 GB"), None);
    assert_eq!(keys::parse_duration("500ms"), Some(Duration::from_millis(500)));
    assert_eq!(keys::parse_duration("1.5s"), Some(Duration::from_millis(1500)));
    assert_eq!(keys::parse_duration("2h"), Some(Duration::from_secs(7200)));
    assert_eq!(keys::parse_duration("7"), None);
}

#[test]
fn part10_the_environment_is_read_as_text() {
    let read = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned()));
        Config::from_figment(Figment::new().merge(Environment::of(pairs)))
    };
    let config = read(&[
        ("proxy_id", "007"),
        ("groups", "a, b"),
        ("labels", "zone=a, tier = canary"),
        ("workers", "3"),
        ("insecure", "true"),
        ("state_key", "1234567890123456789012345678901234567890"),
        ("config", "read elsewhere"),
    ]);
    let config = config.unwrap();
    assert_eq!((config.proxy_id.as_str(), config.groups.len(), config.workers), ("007", 3, 3));
    assert_eq!((config.labels["zone"].as_str(), config.labels["tier"].as_str()), ("a", "canary"));
    assert_eq!(config.state_key.unwrap().expose(), "1234567890123456789012345678901234567890");
    let found = read(&[("labels", "zone"), ("listen", "x")]).unwrap_err().to_string();
    assert!(
        found.contains("labels: `zone` is not of the form name=value (in SPARELINE_PROXY_LABELS)"),
        "{found}"
    );
}

#[test]
fn part10_one_address_for_two_ports_and_a_password_for_nobody_are_mistakes() {
    assert!(mistakes("listen = '127.0.0.1:7'\nadmin_listen = '127.0.0.1:7'")[0].starts_with("admin_listen:"));
    assert!(read("listen = '127.0.0.1:0'\nadmin_listen = '127.0.0.1:0'").is_ok());
    let found = mistakes("control_plane = 'http://me:canary@127.0.0.1:7701'");
    assert!(found[0].starts_with("control_plane:") && !found[0].contains("canary"), "{found:?}");
}
