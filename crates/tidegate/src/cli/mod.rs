//! Commands and their arguments; each command is a file.

mod bench;
mod demo;
mod simulate;
mod transfer;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate_store::StoreError;
use tracing_subscriber::EnvFilter;

/// Stands between a flood of work and something scarce.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Three customers share one rate: see who waits for whom
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
    let filter = EnvFilter::try_from_env("TIDEGATE_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let mut out = std::io::stdout();
    let result = match &cli.command {
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
            eprintln!("tidegate: {error:#}");
            ExitCode::FAILURE
        }
    }
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
