//! The scenarios: their load and their figures.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};
use tidegate_client::Freshness;
use tidegate_core::time::Millis;
use tidegate_source::bench_projection;
use tidegate_upstream::{CORE_FIELDS, sample};
use tokio::time::Instant;

use super::RefreshArgs;
use super::load::{Rates, read, storm};
use super::testbed::{Needs, Testbed};

/// Reads per second of the known record, beside the load.
const KNOWN_PER_SECOND: u64 = 100;
const HERD: u64 = 1_000;
/// Longer than a herd needs to arrive.
const HERD_LATENCY_MS: u64 = 2_000;
/// Longer than a process needs to start fetching.
const WARM_UP: Duration = Duration::from_secs(3);
/// Longer than Kafka needs to assign its partitions after the last process has joined.
const KAFKA_WARM_UP: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Scenario {
    Normal,
    Peak,
    LowAlone,
    Flood,
    Herd,
    Unchanged,
    Projection,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Offered {
    high: u64,
    low: u64,
}

impl Scenario {
    pub(super) const ALL: [Scenario; 7] = [
        Scenario::Normal,
        Scenario::Peak,
        Scenario::LowAlone,
        Scenario::Flood,
        Scenario::Herd,
        Scenario::Unchanged,
        Scenario::Projection,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Scenario::Normal => "normal",
            Scenario::Peak => "peak",
            Scenario::LowAlone => "lowAlone",
            Scenario::Flood => "flood",
            Scenario::Herd => "herd",
            Scenario::Unchanged => "unchanged",
            Scenario::Projection => "projection",
        }
    }

    /// Refresh events per second, for the scenarios with both priorities.
    pub(super) fn offered(self) -> Option<Offered> {
        match self {
            Scenario::Normal => Some(Offered { high: 50, low: 200 }),
            Scenario::Peak => Some(Offered { high: 200, low: 300 }),
            Scenario::LowAlone => Some(Offered { high: 0, low: 1_000 }),
            Scenario::Flood => Some(Offered {
                high: 400,
                low: 1_000,
            }),
            Scenario::Herd | Scenario::Unchanged | Scenario::Projection => None,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mixed {
    high_offered_per_sec: u64,
    low_offered_per_sec: u64,
    /// As the provider counted, over whole seconds.
    calls_per_sec: f64,
    high_calls_per_sec: f64,
    low_calls_per_sec: f64,
    most_in_a_second: u32,
    over_a_limit: u64,
    read_p50_ms: f64,
    read_p95_ms: f64,
    read_p99_ms: f64,
    /// From a read of an unknown record until it was fresh.
    high_done_p50_ms: f64,
    high_done_p95_ms: f64,
    /// Age of the oldest LOW refresh event at the end.
    low_oldest_ms: u64,
    reads: u64,
    reads_failed: u64,
}

/// Runs HIGH and LOW refreshes side by side.
pub(super) async fn mixed(
    args: &RefreshArgs,
    folder: &Path,
    scenario: Scenario,
    offered: Offered,
) -> anyhow::Result<Mixed> {
    let needs = Needs {
        prefetch: offered.low,
        latency_ms: (20, 60),
        ..Needs::default()
    };
    let testbed = Testbed::start(args, folder, needs).await?;
    let warm_up = args.kafka.as_ref().map_or(WARM_UP, |_| KAFKA_WARM_UP);
    tokio::time::sleep(warm_up).await;
    let rates = Rates {
        known: KNOWN_PER_SECOND,
        unknown: offered.high,
        during: Duration::from_secs(args.seconds),
    };
    let before = (
        testbed.attempts().await?,
        testbed.upstream.report().calls,
        Instant::now(),
    );
    let ended = async {
        tokio::time::sleep(rates.during).await;
        let took = before.2.elapsed().as_secs_f64();
        anyhow::Ok((testbed.attempts().await?, testbed.upstream.report().calls, took))
    };
    let (reads, after) = tokio::join!(read(&testbed.clients, &testbed.source, rates), ended);
    let (attempts, calls, took) = after?;
    let report = testbed.upstream.report();
    let mut oldest = 0;
    for client in &testbed.clients {
        let lag = client.refresh_overview().await?.lag;
        oldest = oldest.max(lag.low.oldest_ms.unwrap_or(0));
    }
    testbed.stop().await?;
    ensure!(
        report.calls > 0,
        "{}: the provider was never called",
        scenario.name()
    );
    let per_sec = |count: u64| count as f64 / took;
    Ok(Mixed {
        high_offered_per_sec: offered.high,
        low_offered_per_sec: offered.low,
        calls_per_sec: per_sec(calls - before.1),
        high_calls_per_sec: per_sec(attempts.high - before.0.high),
        low_calls_per_sec: per_sec(attempts.low - before.0.low),
        most_in_a_second: report.max_in_second,
        over_a_limit: report.violations(),
        read_p50_ms: reads.answered.at(0.50),
        read_p95_ms: reads.answered.at(0.95),
        read_p99_ms: reads.answered.at(0.99),
        high_done_p50_ms: reads.done.at(0.50),
        high_done_p95_ms: reads.done.at(0.95),
        low_oldest_ms: oldest,
        reads: reads.answered.0.len() as u64,
        reads_failed: reads.failed,
    })
}

pub(super) async fn single(args: &RefreshArgs, folder: &Path, scenario: Scenario) -> anyhow::Result<Value> {
    match scenario {
        Scenario::Herd => herd(args, folder).await,
        Scenario::Unchanged => unchanged(args, folder).await,
        _ => projection(args).await,
    }
}

/// Many readers of one record that has just become stale.
async fn herd(args: &RefreshArgs, folder: &Path) -> anyhow::Result<Value> {
    let needs = Needs {
        ttl: Some(Millis(WARM_UP.as_millis() as u64)),
        latency_ms: (HERD_LATENCY_MS, HERD_LATENCY_MS),
        ..Needs::default()
    };
    let testbed = Testbed::start(args, folder, needs).await?;
    tokio::time::sleep(WARM_UP).await;
    let reads = storm(&testbed.clients, &testbed.source, HERD).await;
    tokio::time::sleep(Duration::from_millis(HERD_LATENCY_MS)).await;
    let report = testbed.upstream.report();
    testbed.stop().await?;
    Ok(json!({
        "readers": HERD,
        "calls": report.calls,
        "readP50Ms": reads.answered.at(0.50),
        "readP95Ms": reads.answered.at(0.95),
        "readsFailed": reads.failed,
    }))
}

/// One record whose data stays the same, read continuously.
async fn unchanged(args: &RefreshArgs, folder: &Path) -> anyhow::Result<Value> {
    let ttl = Millis(1_000);
    let needs = Needs {
        ttl: Some(ttl),
        ..Needs::default()
    };
    let testbed = Testbed::start(args, folder, needs).await?;
    let client = &testbed.clients[0];
    let begun = Instant::now();
    let (mut reads, mut requested_while_fresh, mut changes) = (0_u64, 0_u64, 0_u64);
    let mut updated = None;
    while begun.elapsed() < Duration::from_secs(args.seconds) {
        let record = client.record(&testbed.source, "known0").await?;
        reads += 1;
        requested_while_fresh += u64::from(record.freshness == Freshness::Fresh && record.update_queued);
        if updated != record.last_updated_at {
            changes += 1;
            updated = record.last_updated_at;
        }
    }
    let report = testbed.upstream.report();
    testbed.stop().await?;
    Ok(json!({
        "reads": reads,
        "calls": report.calls,
        "callsAtMost": args.seconds * 1_000 / ttl.0 + 1,
        "requestedWhileFresh": requested_while_fresh,
        // The seeded data, and what the first call found.
        "dataVersions": changes,
    }))
}

async fn projection(args: &RefreshArgs) -> anyhow::Result<Value> {
    let fields: Vec<String> = CORE_FIELDS.iter().map(|field| (*field).to_owned()).collect();
    let answer = sample("bench", args.payload);
    let seconds = args.seconds as f64;
    let run = move || bench_projection(answer.as_bytes(), &fields, seconds);
    let figures = tokio::task::spawn_blocking(run)
        .await?
        .map_err(anyhow::Error::msg)?;
    Ok(json!({
        "answerBytes": figures.answer_bytes,
        "keptBytes": figures.kept_bytes,
        "packedBytes": figures.packed_bytes,
        "projectPerSec": figures.project_per_s,
        "projectHashPerSec": figures.project_hash_per_s,
        "projectHashPackPerSec": figures.project_hash_pack_per_s,
        "gunzipPerSec": figures.gunzip_per_s,
        "skipPerSec": figures.skip_per_s,
        "scanPerSec": figures.scan_per_s,
    }))
}
