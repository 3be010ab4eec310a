//! Flags. Those of the server are read as text, so that `config` can report every mistake at once.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Sources;

/// The control plane: channels, statuses, probes and the registry watch.
#[derive(Debug, Parser)]
#[command(name = "spareline-control", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// Without one the server runs.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Of the server.
    #[command(flatten)]
    pub serve: ServeFlags,
}

/// What else there is.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Makes the registry match a YAML file.
    Apply(ApplyFlags),
    /// Writes the registry as YAML, without secrets, as `apply` accepts it.
    Export(ExportFlags),
    /// Starts a new epoch, after a restored backup or a failover that lost commits.
    ///
    /// Proxies that are ahead take the registry as it is now, and go on serving meanwhile. It works on the database itself, so
    /// it takes the server's flags.
    NewEpoch(Box<ServeFlags>),
}

/// Flags of the server.
#[derive(Debug, Default, Args)]
pub struct ServeFlags {
    /// A TOML file; see deploy/examples/spareline-control.toml [env: SPARELINE_CONTROL_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration, list every mistake, and end.
    #[arg(long)]
    pub check_config: bool,
    /// Where operators are served; port 0 takes a free one [default: 127.0.0.1:7700]
    #[arg(long, value_name = "IP:PORT")]
    admin_listen: Option<String>,
    /// Where proxies are served; port 0 takes a free one [default: 127.0.0.1:7701]
    #[arg(long, value_name = "IP:PORT")]
    data_listen: Option<String>,
    /// The Postgres to use; none: a private one in the state directory. A URL with a password belongs in the environment.
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// Where the private Postgres keeps its data.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<String>,
    /// Allow listening on other than loopback addresses.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure: Option<String>,
    /// auto, json or pretty [default: auto]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Which log lines are written [default: info]
    #[arg(long, value_name = "FILTER")]
    log_filter: Option<String>,
    /// This replica's name in logs, sessions and leases.
    #[arg(long, value_name = "NAME")]
    replica_id: Option<String>,
    /// How long running calls may take to end after a stop signal [default: 10s]
    #[arg(long, value_name = "TIME")]
    shutdown_timeout: Option<String>,
    /// Most connections to the database, 2 to 1000 [default: 16]
    #[arg(long, value_name = "NUMBER")]
    database_connections: Option<String>,
}

/// Shown below the flags of `apply` and `export`.
const EXIT_CODES: &str = "Exit codes: 0 done (the registry matches, or with --dry-run the differences were shown); 1 the control \
plane refused, failed or could not be reached; 2 the file or the flags are wrong, and nothing was changed.";

/// Flags of `apply`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ApplyFlags {
    /// The file; see deploy/examples/registry.yaml. May be left out where the rollout's file holds the changes itself.
    #[arg(required_unless_present = "rollout")]
    pub file: Option<PathBuf>,
    /// Stage the changes as this file says (description, comment, stages) instead of making them at once; see
    /// deploy/examples/canary.yaml.
    #[arg(long, value_name = "FILE")]
    pub rollout: Option<PathBuf>,
    /// Where the control plane serves operators.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7700")]
    pub admin: String,
    /// Show the differences, change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Remove channels and policies that the file does not name. Refused where its list of them is empty.
    #[arg(long)]
    pub prune: bool,
    /// As --prune, also where the file's list of channels, or of policies, is empty.
    #[arg(long)]
    pub prune_all: bool,
}

/// Flags of `export`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct ExportFlags {
    /// Where the control plane serves operators.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7700")]
    pub admin: String,
}

impl ServeFlags {
    /// The flags beside this process's environment.
    pub fn sources(self) -> Sources {
        let flags = [
            ("admin_listen", self.admin_listen),
            ("data_listen", self.data_listen),
            ("database_url", self.database_url),
            ("state_dir", self.state_dir),
            ("insecure", self.insecure),
            ("log_format", self.log_format),
            ("log_filter", self.log_filter),
            ("replica_id", self.replica_id),
            ("shutdown_timeout", self.shutdown_timeout),
            ("database_connections", self.database_connections),
        ];
        Sources {
            file: self.config,
            flags: flags.into_iter().filter_map(|(key, value)| Some((key, value?))).collect(),
            ..Sources::process_environment()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part10_flags_cover_every_key() {
        let mut arguments = vec!["spareline-control".to_owned()];
        for key in crate::config::KEYS {
            arguments.push(format!("--{}=x", key.replace('_', "-")));
        }
        let cli = Cli::try_parse_from(arguments).unwrap();
        let given: Vec<&str> = cli.serve.sources().flags.iter().map(|(key, _)| *key).collect();
        assert_eq!(given, crate::config::KEYS);
        let bare = Cli::try_parse_from(["spareline-control", "--insecure"]).unwrap();
        assert_eq!(bare.serve.sources().flags, [("insecure", "true".to_owned())]);
    }
}
