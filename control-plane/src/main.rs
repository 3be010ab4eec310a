//! Starts the control plane, or one of its subcommands.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use spareline_control::app::{self, App};
use spareline_control::cli::{self, Cli, Command, Failure, ServeFlags};
use spareline_control::config::{Config, Sources};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => serve(cli.serve),
        Some(command) => run(command).map(|()| ExitCode::SUCCESS).or_else(|failure| {
            complain(&failure);
            Ok(ExitCode::from(failure.exit_code()))
        }),
    };
    result.unwrap_or_else(|error: anyhow::Error| {
        complain(&format!("{error:#}"));
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
        tracing::error!(event = "failed", error = format!("{error:#}"), "the control plane cannot run");
    }
    // Tasks that wait for something outside are not waited for.
    runtime.shutdown_background();
    result.map(|()| ExitCode::SUCCESS)
}

fn run(command: Command) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| Failure::Internal(format!("no runtime: {why}")))?;
    let mut out = std::io::stdout();
    match command {
        Command::Apply(flags) => {
            let environment = Sources::process_environment().environment;
            let lookup =
                |name: &str| environment.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
            runtime.block_on(cli::apply(
                cli::Apply {
                    file: flags.file,
                    admin: flags.admin,
                    dry_run: flags.dry_run,
                    prune: flags.prune,
                    environment: &lookup,
                },
                &mut out,
            ))
        }
        Command::Export(flags) => runtime.block_on(cli::export(cli::Export { admin: flags.admin }, &mut out)),
    }
}

fn complain(what: &dyn std::fmt::Display) {
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "spareline-control: {what}");
}
