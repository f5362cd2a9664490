//! `tidegate bench refresh`: child processes serve records of a rate-limited API and keep them fresh. The provider is
//! simulated and counts calls at arrival, so the figures about its limits are what it saw.
//!
//! | scenario | offered load | goal |
//! |---|---|---|
//! | `normal` | 50 HIGH + 200 LOW per second | reads at the 95th percentile < 50 ms |
//! | `peak` | 200 HIGH + 300 LOW | 450 calls per second; reads < 100 ms, HIGH done < 3 s |
//! | `lowAlone` | 1,000 LOW | never above 350 calls in a second |
//! | `flood` | 400 HIGH + 1,000 LOW | never above 500, at least 440 per second |
//! | `herd` | 1,000 readers of one stale record | one call |
//! | `unchanged` | one record that does not change, read continuously | one call per time to live |
//! | `projection` | responses of 300 KB | 2,000 per second and core |

mod load;
mod scenarios;
mod testbed;

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::scenarios::{Scenario, mixed, single};
use super::bulk::DurabilityArg;
use super::usage;

#[derive(Debug, Clone, Args)]
pub(super) struct RefreshArgs {
    /// Seconds that each scenario runs
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(super) seconds: u64,
    /// Processes that share the work; more than one needs --redis and --snapshots
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(super) processes: u64,
    /// Redis for budgets, coalescer and log; the embedded store if absent
    #[arg(long, value_name = "URL")]
    pub(super) redis: Option<String>,
    /// Kafka for the log: host:port of a broker
    #[arg(long, value_name = "BROKER")]
    pub(super) kafka: Option<String>,
    /// Snapshot database, postgres:// or mysql://; a file if absent
    #[arg(long, value_name = "URL")]
    pub(super) snapshots: Option<String>,
    /// Bytes of a provider's response, before compression
    #[arg(long, default_value_t = 300_000)]
    pub(super) payload: usize,
    #[arg(long, value_enum, default_value = "sync")]
    pub(super) durability: DurabilityArg,
    /// These scenarios only
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Scenario>,
    /// Folder to work in; a temporary one below the current folder if absent
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl RefreshArgs {
    /// The backends, in words.
    fn backends(&self) -> String {
        let store = self.redis.as_ref().map_or("embedded", |_| "redis");
        let log = match (&self.kafka, &self.redis) {
            (Some(_), _) => "kafka",
            (None, Some(_)) => "redis",
            (None, None) => "embedded",
        };
        let scheme = self.snapshots.as_deref().and_then(|url| url.split(':').next());
        format!(
            "store {store}, log {log}, snapshots {}",
            scheme.unwrap_or("sqlite")
        )
    }
}

pub(super) fn run(args: &RefreshArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.processes == 1 || (args.redis.is_some() && args.snapshots.is_some()),
        "--processes {}: several processes share a store and a database; give --redis and --snapshots",
        args.processes
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(measure(args))?;
    super::print(&figures, args.json)
}

async fn measure(args: &RefreshArgs) -> anyhow::Result<Map<String, Value>> {
    let folder = usage::folder(args.dir.as_deref())?;
    let mut figures = Map::new();
    figures.insert(
        "settings".to_owned(),
        json!({
            "backends": args.backends(),
            "processes": args.processes,
            "seconds": args.seconds,
            "payload": args.payload,
            "durability": format!("{:?}", args.durability).to_lowercase(),
        }),
    );
    for scenario in Scenario::ALL {
        if !args.only.is_empty() && !args.only.contains(&scenario) {
            continue;
        }
        eprintln!("{} ...", scenario.name());
        let place = folder.path().join(scenario.name());
        let found = match scenario.offered() {
            Some(offered) => value(mixed(args, &place, scenario, offered).await?)?,
            None => single(args, &place, scenario).await?,
        };
        figures.insert(scenario.name().to_owned(), found);
    }
    Ok(figures)
}

fn value(figures: impl Serialize) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(figures)?)
}
