//! `tidegate bench room`: people who come, wait and are let in. Visitors are connections from several loopback
//! addresses to services of their own, all on one machine.
//!
//! | scenario | what is measured |
//! |---|---|
//! | `joins` | places that the store gives per second, without HTTP |
//! | `streams` | connections that are held, how old the positions are that they show, memory for each |
//! | `grant` | from a free slot to the event that tells the next one |

mod crowd;
mod herd;
mod scenes;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::bulk::DurabilityArg;
use super::usage;

pub(super) use self::herd::{HerdArgs, run as run_herd};

#[derive(Debug, Clone, Args)]
pub(super) struct RoomArgs {
    /// Connections to hold; as many as the system allows if it allows fewer
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) streams: u64,
    /// How long positions are watched
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=3_600))]
    pub(super) seconds: u64,
    /// Places that are taken in `joins`
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub(super) joins: u64,
    /// Redis instead of the embedded store
    #[arg(long, value_name = "URL")]
    pub(super) redis: Option<String>,
    /// Services that share the room of `streams`; more than one need Redis
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(super) servers: u8,
    #[arg(long, value_enum, default_value = "sync")]
    pub(super) durability: DurabilityArg,
    /// These scenarios only
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Scene>,
    /// Folder to work in; a temporary one below the current folder if absent
    #[arg(long)]
    dir: Option<PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scene {
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
    for scene in [Scene::Joins, Scene::Streams, Scene::Grant] {
        if !args.only.is_empty() && !args.only.contains(&scene) {
            continue;
        }
        let name = format!("{scene:?}").to_lowercase();
        eprintln!("{name} ...");
        let place = folder.path().join(&name);
        std::fs::create_dir_all(&place)?;
        let found = match scene {
            Scene::Joins => scenes::joins(args, &place).await?,
            Scene::Streams => scenes::streams(args, &place).await?,
            Scene::Grant => scenes::grant(args, &place).await?,
        };
        figures.insert(name, found);
    }
    Ok(figures)
}
