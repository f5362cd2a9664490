//! Commands and their arguments; each command is a file.

mod archive;
mod batch;
mod bench;
mod config;
mod dead;
mod demo;
mod exit;
mod group;
mod job;
mod key;
mod limits;
mod migrate;
mod record;
mod refresh;
mod remote;
mod serve;
mod settings;
mod simulate;
mod stats;
mod submit;
mod table;
mod targets;
mod transfer;
mod watch;
mod why;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use tidegate_store::StoreError;
use tracing_subscriber::EnvFilter;

/// Stands between a flood of work and something scarce.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, max_term_width = 100, after_help = exit::HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service: HTTP API, workers, dashboard, metrics
    Serve(serve::ServeArgs),
    /// Submit jobs: a file of JSON lines, or standard input
    Submit(submit::SubmitArgs),
    /// Live progress of a batch, of a group, or of the whole system
    Watch(watch::WatchArgs),
    /// Groups: list, show, pause, resume, cancel, weigh
    Group(group::GroupArgs),
    /// Batches: open, show, seal, pause, resume, cancel, results
    Batch(batch::BatchArgs),
    /// One job: show, replay
    Job(job::JobArgs),
    /// Dead jobs: list, replay, purge
    Dead(dead::DeadArgs),
    /// Records that are kept fresh: get, refresh, follow
    Record(record::RecordArgs),
    /// The refresh part: status, dead letters, release of a provider that is left alone
    Refresh(refresh::RefreshArgs),
    /// History of records: move it to the archive, list, put back
    Archive(archive::ArchiveArgs),
    /// Bring the schema of the records' database up to date; every start does it, too
    Migrate(migrate::MigrateArgs),
    /// Rates: show, change at run time
    Limits(limits::LimitsArgs),
    /// Why is it waiting?
    Why(why::WhyArgs),
    /// Push targets: list, enable, disable
    Targets(targets::TargetsArgs),
    /// The whole system at this moment
    Stats(stats::StatsArgs),
    /// Check or show the settings of the service
    Config(config::ConfigArgs),
    /// Make an API key
    Key(key::KeyArgs),
    /// Print the description of the HTTP API, OpenAPI 3.1
    Openapi,
    /// Print what a shell needs to complete commands and flags
    Completions { shell: Shell },
    /// Three customers share one rate, readers a provider's limit, a crowd few seats: see who waits for whom
    Demo(demo::DemoArgs),
    /// Compare policies in virtual time
    Simulate(simulate::SimulateArgs),
    /// Measure this machine
    Bench(bench::BenchArgs),
    /// Write a whole store, in a data folder or on Redis, as a stream of JSON lines
    Export(transfer::ExportArgs),
    /// Make a store, in a data folder or on Redis, out of an exported stream
    Import(transfer::ImportArgs),
}

pub(crate) fn run(cli: Cli) -> ExitCode {
    // The service logs as its settings say.
    if !matches!(cli.command, Command::Serve(_)) {
        let filter =
            EnvFilter::try_from_env(settings::LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("warn"));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .init();
    }
    let mut out = std::io::stdout();
    let result = match &cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Submit(args) => submit::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Group(args) => group::run(args),
        Command::Batch(args) => batch::run(args),
        Command::Job(args) => job::run(args),
        Command::Dead(args) => dead::run(args),
        Command::Record(args) => record::run(args),
        Command::Refresh(args) => refresh::run(args),
        Command::Archive(args) => archive::run(args),
        Command::Migrate(args) => migrate::run(args),
        Command::Limits(args) => limits::run(args),
        Command::Why(args) => why::run(args),
        Command::Targets(args) => targets::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Config(args) => config::run(args, &mut out),
        Command::Key(args) => key::run(args, &mut out),
        Command::Openapi => writeln!(out, "{}", tidegate_server::openapi_json()).map_err(Into::into),
        Command::Completions { shell } => completions(*shell, &mut out),
        Command::Demo(args) => demo::run(args),
        Command::Simulate(args) => simulate::run(args, &mut out),
        Command::Bench(args) => bench::run(args),
        Command::Export(args) => transfer::export(args),
        Command::Import(args) => transfer::import(args),
    };
    let result = result.and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read us has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(text) = exit::text(&error) {
                eprintln!("{text}");
            }
            ExitCode::from(exit::code(&error))
        }
    }
}

/// Written as a whole: clap's own writer panics when nobody reads.
fn completions(shell: Shell, out: &mut impl Write) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
    Ok(out.write_all(&script)?)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let export = match cause.downcast_ref::<StoreError>() {
            Some(StoreError::Export { kind, .. }) => Some(*kind),
            _ => None,
        };
        io.or(export) == Some(std::io::ErrorKind::BrokenPipe)
    })
}
