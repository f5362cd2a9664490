//! `tidegate bench`: figures of this machine, as one JSON object or as a table.

mod bulk;
mod child;
mod http;
mod refresh;
mod room;
mod subject;
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
    /// Jobs through the whole bulk engine
    Bulk(bulk::BulkArgs),
    /// Jobs through the port of a service, by pull
    Http(http::HttpArgs),
    /// Records that are read and kept fresh, in front of an upstream that counts its calls
    Refresh(refresh::RefreshArgs),
    /// People who come to a waiting room, wait and are let in
    Room(room::RoomArgs),
    #[command(hide = true)]
    RoomHerd(room::HerdArgs),
}

pub(super) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    match &args.what {
        What::Bulk(args) => bulk::run(args),
        What::Http(args) => http::run(args),
        What::Refresh(args) => refresh::run(args),
        What::Room(args) => room::run(args),
        What::RoomHerd(args) => room::run_herd(args),
    }
}

/// Figures by scenario: one JSON object, or a row for each below the name of its scenario.
fn print(figures: &Map<String, Value>, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(figures)?);
        return Ok(());
    }
    for (scene, found) in figures {
        println!("{scene}");
        for (name, value) in found.as_object().into_iter().flatten() {
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
