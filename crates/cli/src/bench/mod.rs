//! `tidegate bench`: measures this machine, and prints one JSON object or a table.

mod bulk;
mod child;
mod http;
mod refresh;
mod room;
mod times;
mod usage;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Bulk jobs through the engine, in this process
    Bulk(bulk::BulkArgs),
    /// Bulk jobs through the HTTP API of a service, by pull
    Http(http::HttpArgs),
    /// Reads and refreshes of records, in front of a simulated provider that counts its calls
    Refresh(refresh::RefreshArgs),
    /// Joins, event streams and admissions of a waiting room
    Room(room::RoomArgs),
    #[command(hide = true)]
    RoomVisitors(room::VisitorProcessArgs),
}

pub(super) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    match &args.what {
        What::Bulk(args) => bulk::run(args),
        What::Http(args) => http::run(args),
        What::Refresh(args) => refresh::run(args),
        What::Room(args) => room::run(args),
        What::RoomVisitors(args) => room::run_visitors(args),
    }
}

/// Prints the figures as one JSON object, or as rows below the name of each scenario.
fn print(figures: &Map<String, Value>, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    for (scenario, found) in figures {
        println!("{scenario}");
        for (name, value) in found.as_object().into_iter().flatten() {
            let name = words(name);
            match value {
                Value::Number(number) if number.is_f64() => {
                    println!("  {name:<26} {:>12.2}", number.as_f64().unwrap_or_default());
                }
                Value::String(text) => println!("  {name:<26} {text}"),
                other => println!("  {name:<26} {other:>12}"),
            }
        }
    }
    Ok(())
}

/// A field's name for people: `joinsPerSec` becomes `joins per sec`.
fn words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 8);
    for next in name.chars() {
        if next.is_ascii_uppercase() {
            words.push(' ');
        }
        words.push(next.to_ascii_lowercase());
    }
    words
}
