//! The `tidegate` binary: one file per command. Commands about jobs are in `bulk`, about records in `refresh`,
//! about waiting rooms in `room`.

mod bench;
mod bulk;
mod config;
mod dead_items;
mod demo;
mod exit;
mod key;
mod refresh;
mod remote;
mod room;
mod serve;
mod settings;
mod simulate;
mod stats;
mod table;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use tidegate_store::StoreError;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Stands between a flood of work and something scarce.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, max_term_width = 100, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service: HTTP API, workers, dashboard, metrics
    Serve(serve::ServeArgs),
    /// Submit jobs from a file of JSON lines or from standard input
    Submit(bulk::submit::SubmitArgs),
    /// Show live progress of a batch, a group, or the whole system
    Watch(bulk::watch::WatchArgs),
    /// Groups: list, show, pause, resume, cancel, weight, limit
    Group(bulk::group::GroupArgs),
    /// Batches: open, show, seal, pause, resume, cancel, results
    Batch(bulk::batch::BatchArgs),
    /// One job: show, cancel, run now, reschedule, reprioritise, replay
    Job(bulk::job::JobArgs),
    /// Jobs that match a filter: list, cancel, run now, reschedule, reprioritise; delete finished ones
    Jobs(bulk::jobs::JobsArgs),
    /// Dead jobs: list, replay, purge
    Dead(bulk::dead::DeadArgs),
    /// Records of the refresh module: get, refresh, follow
    Record(refresh::record::RecordArgs),
    /// The refresh module: status, dead letters, release of a held budget
    Refresh(refresh::status::RefreshArgs),
    /// History of records: archive, list, restore
    Archive(refresh::archive::ArchiveArgs),
    /// Migrate the snapshot database to the current schema; `serve` does this at every start
    Migrate(refresh::migrate::MigrateArgs),
    /// Waiting rooms: list, show, history, set limits, pause, resume, close, void passes, draw, delete
    Room(room::rooms::RoomArgs),
    /// Limits: show, change at run time
    Limits(bulk::limits::LimitsArgs),
    /// Explain why a job or a group waits
    Why(bulk::why::WhyArgs),
    /// Push targets: list, enable, disable
    Targets(bulk::targets::TargetsArgs),
    /// Show current counts and rates of the whole system
    Stats(stats::StatsArgs),
    /// Check or show the settings of the service
    Config(config::ConfigArgs),
    /// Create an API key
    Key(key::KeyArgs),
    /// Print the OpenAPI 3.1 description of the HTTP API
    Openapi,
    /// Print a completion script for a shell
    Completions { shell: Shell },
    /// Run a demo: customers share a rate, readers a provider's limit, visitors a waiting room
    Demo(demo::DemoArgs),
    /// Compare policies in virtual time
    Simulate(simulate::SimulateArgs),
    /// Measure throughput and latency on this machine
    Bench(bench::BenchArgs),
    /// Export a store, from a data folder or Redis, as a stream of JSON lines
    Export(bulk::transfer::ExportArgs),
    /// Import an exported stream into a new store, in a data folder or on Redis
    Import(bulk::transfer::ImportArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // `serve` sets up logging from its own settings.
    if !matches!(cli.command, Command::Serve(_)) {
        let filter = std::env::var(settings::LOG_VARIABLE).ok();
        let filter = filter.and_then(|words| words.parse::<Targets>().ok());
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal());
        tracing_subscriber::registry()
            .with(filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN)))
            .with(lines)
            .init();
    }
    let mut out = std::io::stdout();
    let result = match &cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Submit(args) => bulk::submit::run(args),
        Command::Watch(args) => bulk::watch::run(args),
        Command::Group(args) => bulk::group::run(args),
        Command::Batch(args) => bulk::batch::run(args),
        Command::Job(args) => bulk::job::run(args),
        Command::Jobs(args) => bulk::jobs::run(args),
        Command::Dead(args) => bulk::dead::run(args),
        Command::Record(args) => refresh::record::run(args),
        Command::Refresh(args) => refresh::status::run(args),
        Command::Archive(args) => refresh::archive::run(args),
        Command::Migrate(args) => refresh::migrate::run(args),
        Command::Room(args) => room::rooms::run(args),
        Command::Limits(args) => bulk::limits::run(args),
        Command::Why(args) => bulk::why::run(args),
        Command::Targets(args) => bulk::targets::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Config(args) => config::run(args, &mut out),
        Command::Key(args) => key::run(args, &mut out),
        Command::Openapi => writeln!(out, "{}", tidegate_server::openapi_json()).map_err(Into::into),
        Command::Completions { shell } => completions(*shell, &mut out),
        Command::Demo(args) => demo::run(args),
        Command::Simulate(args) => simulate::run(args, &mut out),
        Command::Bench(args) => bench::run(args),
        Command::Export(args) => bulk::transfer::export(args),
        Command::Import(args) => bulk::transfer::import(args),
    };
    let result = result.and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe, as `head` does: not a failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(text) = exit::text(&error) {
                eprintln!("{text}");
            }
            ExitCode::from(exit::code(&error))
        }
    }
}

/// Buffers the whole script: clap's own writer panics on a closed pipe.
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
