//! `tidegate bench room`: visitors join, wait and are let in. They are connections from several loopback addresses to
//! services in child processes, all on one machine.
//!
//! | scenario | what it measures |
//! |---|---|
//! | `joins` | tickets that the store issues per second, without HTTP |
//! | `streams` | open event streams, the age of the positions they show, memory per stream |
//! | `grant` | time from a free slot to the event for the next visitor |

mod scenarios;
mod visitor;
mod visitor_process;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::bulk::DurabilityArg;
use super::usage;

pub(super) use self::visitor_process::{VisitorProcessArgs, run as run_visitors};

#[derive(Debug, Clone, Args)]
pub(super) struct RoomArgs {
    /// Event streams to hold open; fewer if the system allows fewer
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) streams: u64,
    /// Seconds that positions are watched
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=3_600))]
    pub(super) seconds: u64,
    /// Tickets to issue in `joins`
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub(super) joins: u64,
    /// Redis instead of the embedded store
    #[arg(long, value_name = "URL")]
    pub(super) redis: Option<String>,
    /// Services that share the room of `streams`; more than one needs Redis
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(super) servers: u8,
    #[arg(long, value_enum, default_value = "sync")]
    pub(super) durability: DurabilityArg,
    /// These scenarios only
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Scenario>,
    /// Folder to work in; a temporary one below the current folder if absent
    #[arg(long)]
    dir: Option<PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    Joins,
    Streams,
    Grant,
}

pub(super) fn run(args: &RoomArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(measure(args))?;
    super::print(&figures, args.json)
}

async fn measure(args: &RoomArgs) -> anyhow::Result<Map<String, Value>> {
    anyhow::ensure!(
        args.servers == 1 || args.redis.is_some(),
        "--servers {}: several services share a room on Redis only; give --redis as well",
        args.servers
    );
    let folder = usage::folder(args.dir.as_deref())?;
    let mut figures = Map::new();
    figures.insert(
        "settings".to_owned(),
        json!({
            "store": args.redis.as_ref().map_or("embedded", |_| "redis"),
            "durability": format!("{:?}", args.durability).to_lowercase(),
            "seconds": args.seconds,
        }),
    );
    for scenario in [Scenario::Joins, Scenario::Streams, Scenario::Grant] {
        if !args.only.is_empty() && !args.only.contains(&scenario) {
            continue;
        }
        let name = format!("{scenario:?}").to_lowercase();
        eprintln!("{name} ...");
        let place = folder.path().join(&name);
        std::fs::create_dir_all(&place)?;
        let found = match scenario {
            Scenario::Joins => scenarios::joins(args, &place).await?,
            Scenario::Streams => scenarios::streams(args, &place).await?,
            Scenario::Grant => scenarios::grant(args, &place).await?,
        };
        figures.insert(name, found);
    }
    Ok(figures)
}
