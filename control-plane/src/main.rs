//! Starts the control plane, or one of its subcommands.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use spareline_control::app::{self, App};
use spareline_control::cli::{self, ApplyFlags, Cli, Command, ExportFlags, Failure, ServeFlags};
use spareline_control::config::{Config, Sources};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => serve(cli.serve),
        Some(Command::NewEpoch(flags)) => new_epoch(*flags),
        Some(Command::Apply(flags)) => Ok(call(apply(flags))),
        Some(Command::Export(flags)) => Ok(call(export(flags))),
    };
    result.unwrap_or_else(|error: anyhow::Error| {
        complain(&told(&error));
        ExitCode::FAILURE
    })
}

fn serve(flags: ServeFlags) -> anyhow::Result<ExitCode> {
    let check = flags.check_config;
    let config = match Config::load(flags.sources()) {
        Ok(config) => config,
        Err(mistakes) => {
            complain(&mistakes);
            return Ok(ExitCode::from(2));
        }
    };
    if check {
        writeln!(std::io::stdout(), "the configuration is valid")?;
        return Ok(ExitCode::SUCCESS);
    }
    let _log = spareline_control::log::start(&config).map_err(|why| anyhow::anyhow!("{why}"))?;
    spareline_upstream::install_tls();
    tracing::debug!(event = "open_files", limit = spareline_upstream::raise_open_files());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let result = runtime.block_on(async {
        let (stop, force) = (CancellationToken::new(), CancellationToken::new());
        app::on_signals(stop.clone(), force.clone()).context("signals cannot be handled")?;
        let app = App::bind(config)?;
        tokio::select! {
            result = app.run(stop) => Ok(result?),
            () = force.cancelled() => Ok(()),
        }
    });
    if let Err(error) = &result {
        let error: &anyhow::Error = error;
        tracing::error!(event = "failed", error = told(error), "the control plane cannot run");
    }
    // Tasks that wait for something outside are not waited for.
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

fn new_epoch(flags: ServeFlags) -> anyhow::Result<ExitCode> {
    let config = match Config::load(flags.sources()) {
        Ok(config) => config,
        Err(mistakes) => {
            complain(&mistakes);
            return Ok(ExitCode::from(2));
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let head = runtime.block_on(app::new_epoch(&config)).context("no new epoch was started")?;
    writeln!(std::io::stdout(), "epoch {} begins at revision {}", head.epoch, head.revision)?;
    Ok(ExitCode::SUCCESS)
}

/// An error and its causes, in one line; a cause that has been said already is not repeated.
fn told(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

async fn apply(flags: ApplyFlags) -> Result<(), Failure> {
    let environment = Sources::process_environment().environment;
    let lookup = |name: &str| environment.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    let ApplyFlags { file, rollout, admin, dry_run, prune, prune_all } = flags;
    let prune = if prune_all {
        cli::Prune::All
    } else if prune {
        cli::Prune::Some
    } else {
        cli::Prune::Nothing
    };
    let what = cli::Apply { file, rollout, admin, dry_run, prune, environment: &lookup };
    cli::apply(what, &mut std::io::stdout()).await
}

async fn export(flags: ExportFlags) -> Result<(), Failure> {
    cli::export(cli::Export { admin: flags.admin }, &mut std::io::stdout()).await
}

/// Runs a subcommand that speaks to a running control plane.
fn call(subcommand: impl Future<Output = Result<(), Failure>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(subcommand),
        Err(why) => Err(Failure::Internal(format!("no runtime: {why}"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure);
            ExitCode::from(failure.exit_code())
        }
    }
}

fn complain(what: &dyn std::fmt::Display) {
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "spareline-control: {what}");
}
