//! Part 10: configuration that tells all its mistakes, and addresses that stay at home.

use std::time::Duration;

use anyhow::Result;
use spareline_tests::process::{Launch, workspace};

const LIMIT: Duration = Duration::from_secs(20);

async fn check(binary: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Result<(bool, String)> {
    let mut launch = Launch::product(binary, binary)?.arguments(["--check-config"]).arguments(arguments);
    launch.environment = environment.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
    let (status, text) = launch.run(LIMIT).await?;
    Ok((status.success(), text))
}

#[tokio::test]
async fn part10_every_mistake_is_told_at_once_with_its_key() -> Result<()> {
    let file = tempfile::Builder::new().suffix(".toml").tempfile()?;
    std::fs::write(file.path(), "admin_listen = \"nowhere\"\nno_such_key = 1\n")?;
    let path = file.path().to_string_lossy().into_owned();
    let (ok, text) = check(
        "spareline-control",
        &["--config", &path],
        &[("SPARELINE_CONTROL_DATA_LISTEN", "also nowhere")],
    )
    .await?;
    assert!(!ok, "{text}");
    for key in ["admin_listen", "no_such_key", "data_listen"] {
        assert!(text.contains(key), "{key} is not named: {text}");
    }
    std::fs::write(file.path(), "listen = \"nowhere\"\nno_such_key = 1\n")?;
    let (ok, text) =
        check("spareline-proxy", &["--config", &path], &[("SPARELINE_PROXY_ADMIN_LISTEN", "also nowhere")])
            .await?;
    assert!(!ok, "{text}");
    for key in ["listen", "no_such_key", "admin_listen"] {
        assert!(text.contains(key), "{key} is not named: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn part10_beyond_loopback_only_when_told_to() -> Result<()> {
    for (binary, flag) in [("spareline-control", "--admin-listen"), ("spareline-proxy", "--listen")] {
        let (ok, text) = check(binary, &[flag, "0.0.0.0:7999"], &[]).await?;
        assert!(!ok && text.contains("insecure"), "{binary}: {text}");
        let (ok, text) = check(binary, &[flag, "0.0.0.0:7999", "--insecure"], &[]).await?;
        assert!(ok, "{binary}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn part10_the_documented_examples_are_right() -> Result<()> {
    for binary in ["spareline-control", "spareline-proxy"] {
        let example = workspace().join(format!("deploy/examples/{binary}.toml"));
        assert!(example.is_file(), "{} is missing", example.display());
        let (ok, text) = check(binary, &["--config", &example.to_string_lossy()], &[]).await?;
        assert!(ok, "{binary}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn part10_the_service_units_start_what_there_is() -> Result<()> {
    for (binary, grace) in [("spareline-control", 10), ("spareline-proxy", 30)] {
        let unit = std::fs::read_to_string(workspace().join(format!("deploy/systemd/{binary}.service")))?;
        let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let start = value("ExecStart").unwrap_or_default();
        assert_eq!(value("ExecStartPre"), Some(&*format!("{start} --check-config")), "{binary}");
        let mut words = start.split(' ');
        assert_eq!(words.next(), Some(&*format!("/usr/local/bin/{binary}")));
        let example = workspace().join(format!("deploy/examples/{binary}.toml")).display().to_string();
        let arguments: Vec<&str> =
            words.map(|word| if word.starts_with("/etc/spareline/") { &*example } else { word }).collect();
        let (name, folder) = value("Environment").and_then(|v| v.split_once('=')).unwrap_or_default();
        let (ok, text) = check(binary, &arguments, &[(name, &folder.replace("%S", "/var/lib"))]).await?;
        assert!(ok, "{binary}: {text}");
        let stop: u64 = value("TimeoutStopSec").unwrap_or_default().parse()?;
        assert!(stop > grace, "{binary} is killed before it has finished");
    }
    Ok(())
}

#[tokio::test]
async fn part10_a_password_in_the_database_url_is_never_repeated() -> Result<()> {
    let url = "postgres://u:canary-password@127.0.0.1:1/x?sslmode=nonsense";
    let (_, text) =
        check("spareline-control", &["--admin-listen", "nowhere"], &[("DATABASE_URL", url)]).await?;
    assert!(!text.contains("canary-password"), "{text}");
    Ok(())
}
