//! The testbed: a simulated provider, the processes in front of it, and their database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use serde_json::{Value, json};
use tidegate_client::{ByPriority, Client};
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_server::config::Config;
use tidegate_server::refresh::open_snapshots;
use tidegate_snapshots::{RecordRef, Snapshots, Write};
use tidegate_upstream::{CORE_FIELDS, Upstream, UpstreamSettings};

use super::RefreshArgs;
use crate::bench::child::Child;

const DAY_MS: u64 = 86_400_000;
/// Rows per write.
const ROWS_PER_WRITE: u64 = 500;

/// What a scenario needs beside the defaults.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Records prefetched per second.
    pub(super) prefetch: u64,
    /// Time to live of a record; an hour or more if absent.
    pub(super) ttl: Option<Millis>,
    /// Latency of the provider: minimum and maximum.
    pub(super) latency_ms: (u64, u64),
}

pub(super) struct Testbed {
    pub(super) upstream: Upstream,
    pub(super) clients: Vec<Client>,
    /// Unique per run: the servers may be shared.
    pub(super) source: String,
    snapshots: Arc<dyn Snapshots>,
    children: Vec<Child>,
}

fn now() -> Timestamp {
    SystemClock.now()
}

/// The offset from UTC at which it is about noon: the provider's day does not end during a run.
fn midday() -> i64 {
    720 - (now().0 / 60_000 % 1_440) as i64
}

impl Testbed {
    pub(super) async fn start(args: &RefreshArgs, folder: &Path, needs: Needs) -> anyhow::Result<Self> {
        let offset = midday();
        let upstream = Upstream::start(UpstreamSettings {
            payload_bytes: args.payload,
            latency_min_ms: needs.latency_ms.0,
            latency_max_ms: needs.latency_ms.1,
            utc_offset_s: (offset * 60) as i32,
            ..UpstreamSettings::default()
        })
        .context("the simulated provider does not start")?;
        let source = format!("bench-{}", now().0);
        let mut testbed = Self {
            snapshots: snapshots(&settings(args, &folder.join("0"), &source, &upstream, &needs)).await?,
            upstream,
            clients: Vec::new(),
            source,
            children: Vec::new(),
        };
        // More stale records than the budget fetches in the scenario and its warm-up, and one record to read.
        if needs.prefetch > 0 {
            testbed
                .seed("low", needs.prefetch.min(500) * (args.seconds + 20), 2 * DAY_MS)
                .await?;
        }
        testbed.seed("known", 1, 0).await?;
        for number in 0..args.processes {
            let place = folder.join(number.to_string());
            std::fs::create_dir_all(&place)?;
            let settings = settings(args, &place, &testbed.source, &testbed.upstream, &needs);
            let child = Child::start(&place, &settings).await?;
            testbed.clients.push(Client::new(child.url())?);
            testbed.children.push(child);
        }
        Ok(testbed)
    }

    /// Records that were fetched `age` milliseconds ago.
    async fn seed(&self, prefix: &str, count: u64, age: u64) -> anyhow::Result<()> {
        // As a fetch would store it.
        let data = tidegate_source::pack(br#"{"character_name":"seed"}"#)?;
        let at = now() - Millis(age);
        for first in (0..count).step_by(ROWS_PER_WRITE as usize) {
            let write = |n: u64| {
                anyhow::Ok(Write::Full {
                    record: self.record(&format!("{prefix}{n}"))?,
                    version: Version(1),
                    data: data.clone().into(),
                    hash: [1; 32],
                    at,
                })
            };
            let writes: Vec<Write> = (first..count.min(first + ROWS_PER_WRITE))
                .map(write)
                .collect::<Result<_, _>>()?;
            self.snapshots.write(&writes).await?;
        }
        Ok(())
    }

    fn record(&self, key: &str) -> anyhow::Result<RecordRef> {
        Ok(RecordRef {
            source: SourceId::new(&self.source)?,
            key: RecordKey::new(key)?,
        })
    }

    /// Calls by priority, of all processes together.
    pub(super) async fn attempts(&self) -> anyhow::Result<ByPriority> {
        let mut all = ByPriority::default();
        for client in &self.clients {
            let attempts = client.refresh_overview().await?.counters.attempts;
            all.high += attempts.high;
            all.low += attempts.low;
        }
        Ok(all)
    }

    /// Kills the processes. Their folders are temporary, so nothing needs to finish.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        for child in self.children {
            child.stop().await?;
        }
        Ok(())
    }
}

async fn snapshots(settings: &Value) -> anyhow::Result<Arc<dyn Snapshots>> {
    let config: Config = toml::from_str(&toml::to_string(settings)?)?;
    Ok(open_snapshots(&config).await?)
}

fn settings(args: &RefreshArgs, folder: &Path, source: &str, upstream: &Upstream, needs: &Needs) -> Value {
    let data: PathBuf = folder.join("data");
    let mut settings = json!({
        "server": {"listen": "127.0.0.1:0"},
        "log": {"filter": "error"},
        "store": {"data": data, "durability": format!("{:?}", args.durability).to_lowercase()},
        "budgets": {"bench": {"zone": {"utc_offset_minutes": midday(), "day_starts_at_minutes": 0}}},
        "sources": {source: {
            "url": format!("{}/character/{{key}}", upstream.url()),
            "target": "bench",
            "fields": CORE_FIELDS,
            "prefetch": needs.prefetch > 0,
        }},
        "refresh": {
            "prefetch": {"tick_ms": 1_000, "peak_rate": needs.prefetch.max(1), "other_rate": needs.prefetch.max(1)},
            "watch": {"lag_every_ms": 500, "follow_every_ms": 100},
            "query": {"cache_ttl_ms": 50},
        },
    });
    if let Some(ttl) = needs.ttl {
        let names = [
            "hot_ms",
            "warm_ms",
            "cold_ms",
            "hot_fresh_ms",
            "warm_fresh_ms",
            "cold_fresh_ms",
        ];
        settings["refresh"]["tiers"] = names.iter().map(|name| (*name, ttl.0)).collect();
    }
    if let Some(url) = &args.redis {
        settings["store"]["kind"] = json!("redis");
        settings["redis"] = json!({"urls": [url], "key_prefix": format!("{source}:")});
        settings["refresh"]["log"] = json!({"prefix": format!("{source}.")});
    }
    if let Some(broker) = &args.kafka {
        settings["refresh"]["log"] = json!({
            "kind": "kafka", "brokers": [broker], "replication_factor": 1, "prefix": format!("{source}."),
        });
    }
    // Beside the data folder, not in it: the bench seeds records before the service initializes the folder.
    let file = || format!("sqlite:{}", folder.join("snapshots.db").display());
    settings["refresh"]["snapshots"] = json!({ "url": args.snapshots.clone().unwrap_or_else(file) });
    settings
}
